//! What takes steps in a virtual machine, in namespaces of this host around a small read-only root.
//! Needs root.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use support::Stage;

/// The root is read-only, and has no disk for what runs write.
const AROUND: &str = "mount --bind $0 $0; mount --rbind /dev $0/dev; \
                      mount -o remount,bind,ro $0; \
                      exec chroot $0 /bin/bash /tare/agent";
const MOUNT: &str = r#"[[ "$*" != *vdb* ]] || set -- -t tmpfs tmpfs /scratch
exec /bin/mount "$@""#;
/// Has a verdict on one request alone.
const CRUN: &str = r#"[ "$3" = run ] || exit 0
cat "$5/config.json"
request=$(head -n 1 /scratch/request)
[ "$request" != good ] || echo "@tare verdict ok 1""#;

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/bash\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Debian's root has files in /run, which the first process then leaves as it is.
#[test]
fn containers_of_a_machine_start_on_a_root_with_files_in_run() {
    let Some(stage) = Stage::new("true", "true") else {
        return;
    };
    let tree = stage.tree();
    for dir in ["run/lock", "sbin", "tare/bundle"] {
        fs::create_dir_all(tree.join(dir)).unwrap();
    }
    fs::write(tree.join("tare/agent"), include_str!("../src/agent.sh")).unwrap();
    fs::write(tree.join("tare/bundle/config.json"), "on CPUs @CPUS@\n").unwrap();
    script(&tree.join("sbin/mount"), MOUNT);
    script(&tree.join("sbin/crun"), CRUN);
    let mut agent = Command::new("unshare")
        .args(["--mount", "--uts", "bash", "-ec", AROUND])
        .arg(&tree)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let requests = "container 0-1 good\ncontainer 0 bad\n";
    let mut stdin = agent.stdin.take().unwrap();
    stdin.write_all(requests.as_bytes()).unwrap();
    drop(stdin);
    let said = agent.wait_with_output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let (_, said) = said.split_once("@tare ready\n").unwrap();
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("cgroup"))
        .collect();
    let expected = [
        "on CPUs 0-1",
        "@tare verdict ok 1",
        "@tare over",
        "on CPUs 0",
        "@tare over",
    ];
    assert_eq!(lines, expected);
}
