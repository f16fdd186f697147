//! Networks: passt without privileges, taps with them. Directories: virtiofsd.

use std::fs::OpenOptions;
use std::io;

use tare_host::program::find_program;
use tare_launch::volume;

use super::finding::Finding;

pub(super) fn findings() -> Vec<Finding> {
    vec![passt(), tap(), virtiofsd()]
}

fn passt() -> Finding {
    match find_program("passt") {
        Ok(path) => Finding::ok("passt", path.display().to_string()),
        Err(_) => Finding::missing(
            "passt",
            "not installed: machines of ordinary users have no network",
        )
        .remedy("install passt (Debian: passt)"),
    }
}

fn virtiofsd() -> Finding {
    match volume::server() {
        Some(path) => Finding::ok("virtiofsd", path.display().to_string()),
        None => Finding::missing(
            "virtiofsd",
            "not installed: Linux guests share no directories",
        )
        .remedy(
            "only tare run --volume needs it: install virtiofsd (Debian 12: qemu-system-common)",
        ),
    }
}

fn tap() -> Finding {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    match opened {
        Ok(_) => Finding::ok("tap", "/dev/net/tun opens, for --net tap=NAME"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::missing("tap", "this user may not open /dev/net/tun")
                .remedy("only --net tap=NAME needs it; its usual mode: chmod 666 /dev/net/tun")
        }
        Err(error) => Finding::missing("tap", format!("/dev/net/tun: {error}"))
            .remedy("only --net tap=NAME needs it: modprobe tun"),
    }
}
