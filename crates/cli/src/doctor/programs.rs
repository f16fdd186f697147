//! Programs and images beside `tare`.

use std::process::Command;

use tare_host::program::find_program;
use tare_launch::image;
use tare_qemu as qemu;

use super::finding::Finding;

pub(super) fn findings() -> Vec<Finding> {
    vec![qemu(), images()]
}

fn qemu() -> Finding {
    let Ok(path) = find_program(qemu::PROGRAM) else {
        return Finding::missing("qemu", "not installed; a host without KVM needs it")
            .remedy("install qemu-system-x86");
    };
    let version = Command::new(&path)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| {
            let text = String::from_utf8(output.stdout).ok()?;
            let version = text.lines().next()?.split("version ").nth(1)?;
            Some(version.split(' ').next()?.to_owned())
        });
    match version {
        Some(version) => Finding::ok("qemu", version),
        None => Finding::limited(
            "qemu",
            format!("{} does not print its version", path.display()),
        ),
    }
}

fn images() -> Finding {
    let names = image::known();
    match names.as_slice() {
        [] => Finding::missing("images", "no guest images found")
            .remedy("run make build, or set TARE_IMAGES to their directory"),
        names => Finding::ok("images", names.join(", ")),
    }
}
