//! Versions of what a run uses: programs of the host, and applications of packages.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::Deserialize as _;
use serde_json::Value;
use tare_host::program::find_program;

/// Versions by program.
pub type Versions = BTreeMap<String, String>;

/// Programs that experiments may run, and the word for which each prints its version.
const PROGRAMS: [(&str, &str); 10] = [
    ("qemu-system-x86_64", "--version"),
    ("firecracker", "--version"),
    ("cloud-hypervisor", "--version"),
    ("runc", "--version"),
    ("crun", "--version"),
    ("runsc", "--version"),
    ("podman", "--version"),
    ("passt", "--version"),
    ("lighttpd", "-v"),
    ("memcached", "-V"),
];

/// What those of them that are installed print: the first line.
pub fn of_host() -> Versions {
    let printed = PROGRAMS.into_iter().filter_map(|(name, word)| {
        // Debian's servers are not on every user's search path.
        let places = [name.to_owned(), format!("/usr/sbin/{name}")];
        let program = places.iter().find_map(|place| find_program(place).ok())?;
        let output = Command::new(program)
            .arg(word)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        Some((name.to_owned(), line.trim().to_owned()))
    });
    printed.collect()
}

/// The versions in what a record says of its programs.
pub fn of(programs: &Value) -> Versions {
    let versions = programs.get("versions");
    versions
        .and_then(|versions| Versions::deserialize(versions).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_record_are_read_and_others_are_none() {
        let programs = serde_json::json!({"versions": {"runc": "runc version 1.1.5"}});
        let versions = of(&programs);
        assert_eq!(versions["runc"], "runc version 1.1.5");
        assert_eq!(of(&Value::Null), Versions::new());
        assert_eq!(of(&serde_json::json!({"versions": 1})), Versions::new());
    }

    #[test]
    fn a_program_that_is_installed_has_one_line() {
        for (name, version) in of_host() {
            assert!(!version.is_empty() && !version.contains('\n'), "{name}");
        }
    }
}
