//! Roots of programs: what is in their archives, and which machines share one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use tare_rootfs::oci::testing::{Entry, docker_archive, gzip, layer, oci_archive};

use crate::can_run;
use crate::support::compile::c;
use crate::support::needs::{built, kvm, skip};
use crate::support::{TestDir, eventually, free_port, get};

#[test]
fn names_of_a_root_may_have_any_bytes() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "any_bytes.c", &["-static"]) else {
        return;
    };
    let root = place.path().join("root");
    let name = |bytes: &'static [u8]| root.join(OsStr::from_bytes(bytes));
    fs::create_dir_all(name(b"caf\xe9")).unwrap();
    fs::write(name(b"caf\xe9/\xff"), "found\n").unwrap();
    std::os::unix::fs::symlink(OsStr::from_bytes(b"caf\xe9/"), name(b"\xfe")).unwrap();
    let args = ["run", "--root", root.to_str().unwrap(), "--net", "none"];
    let ended = place.run(&[&args[..], &[&program]].concat());
    ended.expect(0, "found");
    assert!(!ended.err.contains("left out"), "{ended:?}");
}

#[test]
fn hard_links_of_a_root_are_one_file_in_the_machine() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "same_file.c", &["-static"]) else {
        return;
    };
    let root = place.path().join("root");
    fs::create_dir_all(root.join("usr")).unwrap();
    fs::rename(program, root.join("same")).unwrap();
    for (first, other, content) in [
        ("large", "usr/large", "abcd".repeat(3000)),
        ("small", "usr/small", "abcd".to_owned()),
    ] {
        fs::write(root.join(first), content).unwrap();
        fs::hard_link(root.join(first), root.join(other)).unwrap();
        let [first, other] = [first, other].map(|name| format!("/{name}"));
        let args = ["run", "--root", root.to_str().unwrap(), "--net", "none"];
        let ended = place.run(&[&args[..], &["--", "/same", &first, &other]].concat());
        ended.expect(0, &format!("{first} 1 2 abcd"));
        ended.expect(0, &format!("{other} 1 2 abcd"));
    }
}

/// redis-server is a link to a program of several names.
#[test]
fn a_program_that_a_link_names_is_called_by_the_link() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "called.c", &["-static"]) else {
        return;
    };
    let root = place.path().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::rename(program, root.join("bin/several")).unwrap();
    std::os::unix::fs::symlink("several", root.join("bin/one-of-them")).unwrap();
    let root = root.to_str().unwrap();
    let args = [
        "run",
        "--root",
        root,
        "--net",
        "none",
        "--",
        "/bin/one-of-them",
    ];
    let expected = "one-of-them /bin/one-of-them /bin/several\n";
    place.run(&args).expect(0, expected);
}

/// As docker save and skopeo write it; the command line's words take the place of the image's `Cmd`.
#[test]
fn a_container_image_with_a_program_runs_without_a_kernel_as_it_says() {
    const CONFIG: &str = r#"{"architecture":"amd64","os":"linux","config":{
        "Entrypoint":["/bin/settings","-v"],"Cmd":["one"],
        "Env":["WHO=image"],"WorkingDir":"/srv"}}"#;

    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "settings.c", &["-static"]) else {
        return;
    };
    let program = fs::read(program).unwrap();
    let low = layer(&[
        Entry::File("bin/settings", 0o755, &program),
        Entry::File("srv/page", 0o644, b"low"),
    ]);
    let high = layer(&[Entry::File("srv/page", 0o644, b"high")]);
    let layers = [gzip(&low), gzip(&high)];
    for (name, image) in [
        ("oci.tar", oci_archive(CONFIG, &layers)),
        ("docker.tar", docker_archive(CONFIG, &layers)),
    ] {
        let image = place.file(name, &image);
        let run = |args: &[&str]| {
            let all = ["run", "--root", &image, "--net", "none"];
            place.run(&[&all[..], args].concat())
        };
        run(&[]).expect(42, "/bin/settings -v one in /srv for image: high");
        let args = ["--env", "WHO=me", "--", "two", "three"];
        run(&args).expect(42, "/bin/settings -v two three in /srv for me: high");
        let entrypoint = ["--entrypoint", "/bin/settings"];
        run(&entrypoint).expect(42, "/bin/settings in /srv for image: high");
        let args = ["--entrypoint", "", "--", "settings", "four"];
        run(&args).expect(42, "settings four in /srv for image: high");
        run(&["--workdir", "/bin"]).expect(1, "page: No such file");
        run(&["--workdir", "srv"]).expect(2, "begin it with /");
    }
    assert!(place.run_directories().is_empty());
}

/// Whether the file system of temporary files keeps archives.
fn keeps_archives(place: &TestDir) -> bool {
    let cache = place.archives().parent().map(tare_rootfs::Cache::at);
    let keeps = cache.is_some_and(|cache| tare_rootfs::ArchiveStore::open(&cache).is_ok());
    if !keeps {
        skip("the file system of temporary files is none that keeps archives");
    }
    keeps
}

/// Archives of roots that a machine has mapped.
fn mapped_archives(place: &TestDir, machine: &str) -> Vec<String> {
    let rows = place.run(&["ps", "--json"]).out;
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == machine).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/maps", row["pid"])).unwrap();
    let archives = place.archives();
    maps.lines()
        .filter(|line| line.contains(archives.to_str().unwrap()))
        .map(|line| {
            // Device and inode: the same file, whatever it is called.
            let fields: Vec<&str> = line.split_whitespace().collect();
            format!("{} {}", fields[3], fields[4])
        })
        .collect()
}

#[test]
fn machines_of_a_root_map_one_archive_until_the_root_changes() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    if !keeps_archives(&place) {
        return;
    }
    let Some(program) = c(&place, "stop.c", &["-static"]) else {
        return;
    };
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::rename(program, root.join("stop")).unwrap();
    let start = |name: &str| {
        let root = root.to_str().unwrap();
        let args = ["run", "-d", "--name", name, "--root", root, "--net", "none"];
        place
            .run(&[&args[..], &["--", "/stop"]].concat())
            .expect(0, name);
        mapped_archives(&place, name)
    };
    let stop = |name: &str| place.run(&["stop", name]).expect(0, "");
    // What has just been written is not kept.
    let settled = |name: &str| {
        for _ in 0..100 {
            let mapped = start(name);
            if !mapped.is_empty() {
                return mapped;
            }
            stop(name);
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("no archive is kept");
    };
    let first = settled("first");
    assert_eq!(first.len(), 1);
    assert_eq!(start("second"), first);
    fs::write(root.join("more"), "x").unwrap();
    assert_ne!(settled("third"), first);
    // Whoever removes the archives does not disturb the machines that have them.
    fs::remove_dir_all(place.archives()).unwrap();
    for name in ["first", "second", "third"] {
        eventually("it runs", || {
            place.run(&["logs", name]).out.contains("ready")
        });
        let stopped = place.run(&["stop", name]);
        stopped.expect(0, "");
        assert!(stopped.err.is_empty(), "its program ends: {stopped:#?}");
    }
}

#[test]
fn files_of_an_images_root_are_mapped_and_served() {
    let (true, Some(image)) = (kvm(), built("http")) else {
        return;
    };
    let place = TestDir::new();
    if !keeps_archives(&place) {
        return;
    }
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("page"), "mapped ".repeat(1000)).unwrap();
    for _ in 0..100 {
        let forward = format!("{}:80", free_port());
        let [image, root] = [&image, &root].map(|path| path.to_str().unwrap());
        let args = [
            "run", image, "-d", "--name", "web", "--root", root, "-p", &forward,
        ];
        place.run(&args).expect(0, "web");
        let port = forward.trim_end_matches(":80").parse().unwrap();
        eventually("it answers", || {
            get(port, "/page").is_ok_and(|answer| answer.ends_with(&"mapped ".repeat(1000)))
        });
        let mapped = mapped_archives(&place, "web");
        place.run(&["stop", "web"]).expect(0, "");
        // What has just been written is mapped from memory.
        if mapped.len() == 1 {
            return;
        }
    }
    panic!("no archive is kept");
}
