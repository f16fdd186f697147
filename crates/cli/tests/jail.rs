//! The jail of machines that root starts, as the kernel shows it.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use support::needs::{built, kvm, skip};
use support::{Place, eventually};

/// A machine in the background, stopped at the end.
struct Running<'a> {
    place: &'a Place,
    name: &'a str,
    pid: u64,
}

impl<'a> Running<'a> {
    fn start(place: &'a Place, name: &'a str, options: &[&str]) -> Option<Self> {
        let image = built("http")?;
        let site = place.path().join("site");
        fs::create_dir_all(&site).unwrap();
        fs::write(site.join("index.html"), "x").unwrap();
        let mut args = vec!["run", image.to_str().unwrap(), "--name", name, "-d"];
        args.extend(["--net", "none", "--engine", "tare", "--root"]);
        args.push(site.to_str().unwrap());
        args.extend(options);
        place.run(&args).expect(0, "");
        let rows = place.run(&["ps", "--json"]).out;
        let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        Some(Self {
            place,
            name,
            pid: row["pid"].as_u64().unwrap(),
        })
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    /// Fields of `/proc/PID/status` after a field's name.
    fn status(&self, field: &str) -> Vec<String> {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let fields = line.unwrap().split_ascii_whitespace();
        fields.map(str::to_owned).collect()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.place.run(&["stop", self.name]);
    }
}

fn is_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip("only root's machines change their user");
    false
}

#[test]
fn machines_of_root_have_users_and_namespaces_of_their_own() {
    if !kvm() || !is_root() {
        return;
    }
    let place = Place::new();
    let (Some(first), Some(second)) = (
        Running::start(&place, "first", &[]),
        Running::start(&place, "second", &[]),
    ) else {
        return;
    };
    let users = [&first, &second].map(|machine| machine.status("Uid:"));
    for user in &users {
        assert!(user.iter().all(|id| *id == user[0]), "{user:?}");
        assert!(user[0].parse::<u32>().unwrap() >= 1_900_000_000);
    }
    assert_ne!(users[0], users[1]);
    assert!(first.status("Groups:").is_empty());
    for namespace in ["mnt", "net", "ipc", "uts"] {
        let of = |path: PathBuf| fs::read_link(path).unwrap();
        let own = of(PathBuf::from(format!("/proc/self/ns/{namespace}")));
        let [first, second] = [&first, &second].map(|it| of(it.proc(&format!("ns/{namespace}"))));
        assert!(
            first != own && second != own && first != second,
            "{namespace}"
        );
    }
    let root = fs::read_dir(first.proc("root")).unwrap();
    let mut names: Vec<_> = root.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert!(names == ["proc", "sys"] || names == ["proc"], "{names:?}");
    drop((first, second));
    // The user may not remove root's files: the main thread still can.
    eventually("the run directories are removed", || {
        place.run_directories().is_empty()
    });
}

#[test]
fn a_machine_becomes_the_user_that_is_named_or_stays() {
    if !kvm() || !is_root() {
        return;
    }
    let place = Place::new();
    let Some(named) = Running::start(&place, "named", &["--user", "65534:65533"]) else {
        return;
    };
    assert_eq!(named.status("Uid:")[0], "65534");
    assert_eq!(named.status("Gid:")[0], "65533");
    let stays = Running::start(&place, "stays", &["--user", "self"]).unwrap();
    assert_eq!(stays.status("Uid:")[0], "0");
    assert_eq!(stays.status("CapEff:"), ["0000000000000000"]);
}
