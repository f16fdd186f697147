//! The same image on other people's monitors, where they are installed. Neither
//! is a Debian package, so a missing one is a SKIP even where KVM is required.

mod support;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tare_vmtest::{image, or_skip};

/// Longest run in seconds.
const LIMIT_S: &str = "60";

/// Output of a program that must be there; SKIP where it is not.
fn run(program: &str, words: &[&str]) -> Option<Output> {
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/kvm") {
        return or_skip(Err(format!("/dev/kvm cannot be opened: {error}")));
    }
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        tare_vmtest::lacks(format!("{program} is not installed"));
        return None;
    }
    let mut command = Command::new("timeout");
    command.args([LIMIT_S, program]).args(words);
    or_skip(command.stdin(Stdio::null()).output())
}

fn passed(output: &Output) {
    let console = String::from_utf8_lossy(&output.stdout);
    let expected = format!("selftest on 2 cores in ring {}", support::ring_on_kvm());
    assert!(console.contains(&expected), "{output:?}");
    assert!(console.contains("selftest done, 0 failed"), "{output:?}");
}

/// With a device: Firecracker takes its status one step at a time.
#[test]
fn everything_works_on_firecracker() {
    let Some(image) = or_skip(image("selftest")) else {
        return;
    };
    let place = std::env::temp_dir().join(format!("tare-firecracker-{}", std::process::id()));
    fs::write(&place, firecracker_configuration(&image)).expect("the temporary directory");
    let path = place.to_string_lossy();
    let output = run("firecracker", &["--no-api", "--config-file", &path]);
    fs::remove_file(&place).expect("the file that was just written");
    output.as_ref().into_iter().for_each(passed);
}

fn firecracker_configuration(image: &Path) -> String {
    format!(
        r#"{{"boot-source": {{"kernel_image_path": "{}", "boot_args": ""}}, "drives": [],
            "entropy": {{}},
            "machine-config": {{"vcpu_count": 2, "mem_size_mib": 64}}}}"#,
        image.display()
    )
}

#[test]
fn everything_works_on_cloud_hypervisor() {
    let Some(image) = or_skip(image("selftest")) else {
        return;
    };
    let kernel = image.to_string_lossy();
    let machine = ["--kernel", &kernel, "--cpus", "boot=2", "--memory"];
    let console = ["size=64M", "--serial", "tty", "--console", "off"];
    let output = run("cloud-hypervisor", &[machine, console].concat());
    output.as_ref().into_iter().for_each(passed);
}
