//! Each wrong input of `tare run` gives one sentence and its own exit code, and
//! leaves nothing behind.

mod support;

use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::CommandExt as _;

use support::guest::{self, Then};
use support::{TestDir, end, installed, output};
use tare_control::rundir::RunRoot;

/// A run of a small image in QEMU, which needs no KVM, with more arguments.
#[track_caller]
fn refused(args: &[&str], code: i32, says: &str) {
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let mut all = vec!["run", &image];
    all.extend(args);
    check(&place, &all, code, says);
}

/// A run of that image.
#[track_caller]
fn image_refused(content: &[u8], code: i32, says: &str) {
    let place = TestDir::new();
    let image = place.file("bad", content);
    check(
        &place,
        &["run", &image, "--net", "none", "--engine", "qemu"],
        code,
        says,
    );
}

#[track_caller]
fn check(place: &TestDir, args: &[&str], code: i32, says: &str) {
    let ended = place.run(args);
    ended.expect(code, says);
    assert_eq!(ended.err.lines().count(), 1, "one sentence: {ended:#?}");
    assert!(ended.err.starts_with("tare: "), "{ended:#?}");
    assert!(
        place.run_directories().is_empty(),
        "{:?}",
        place.run_directories()
    );
}

#[test]
fn a_missing_image() {
    let place = TestDir::new();
    check(
        &place,
        &["run", "./none"],
        10,
        "cannot open the image ./none",
    );
    check(
        &place,
        &["run", "no-image"],
        10,
        "no image is named no-image",
    );
    let dir = place.path().to_str().unwrap().to_owned();
    check(&place, &["run", &dir], 10, "is not a file");
}

#[test]
fn an_image_that_is_not_elf() {
    image_refused(b"#!/bin/sh", 11, "not an ELF file");
    image_refused(b"", 11, "not an ELF file");
}

#[test]
fn an_image_that_no_machine_can_load() {
    if !installed("qemu-system-x86_64") {
        return tare_vmtest::lacks("QEMU is not installed");
    }
    image_refused(&guest::truncated(), 12, "truncated");
    // Without the note it is a program of Linux, and a wrong one.
    image_refused(&guest::without_note(), 11, "writable and executable");
    image_refused(&guest::too_large(), 14, "memory");
    image_refused(
        &guest::below_one_mib(),
        15,
        "outside what its segments load",
    );
}

#[test]
fn a_ring_that_the_image_does_not_run_in() {
    refused_image("storm", "3", "storm runs in ring 0 only, not in ring 3");
}

fn refused_image(image: &str, ring: &str, says: &str) {
    let place = TestDir::new();
    place.run(&["run", image, "--ring", ring]).expect(2, says);
}

#[test]
fn a_number_of_cpus_that_no_machine_has() {
    refused(&["--cpus", "0"], 20, "0 CPUs: use 1 to 16");
    refused(&["-c", "17"], 20, "17 CPUs");
}

#[test]
fn negative_and_huge_numbers_are_refused_as_numbers() {
    for (args, says) in [
        (["-c", "-1"], "use 1 to 16 CPUs"),
        (["-c", "99999999999"], "use 1 to 16 CPUs"),
        (["-m", "-5"], "invalid size: use a number of MiB"),
    ] {
        let place = TestDir::new();
        let all = [&["run", "tiny"], &args[..]].concat();
        place.run(&all).expect(2, says);
    }
}

#[test]
fn memory_that_is_too_small_or_not_there() {
    refused(&["--memory", "4M"], 21, "4 MiB of memory is too small");
    refused(&["-m", "1000000G"], 21, "more than this host has");
    for limit in ["0", "15M"] {
        refused(&["--limit-memory", limit], 2, "give at least 16M");
    }
}

#[test]
fn a_command_line_for_the_guest_that_does_not_fit() {
    refused(&["--cmdline", &"x".repeat(4096)], 22, "the limit is 4095");
    refused(&["--cmdline", "a\u{7}"], 22, "only printable ASCII");
}

#[test]
fn a_port_in_use() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    refused(
        &["-p", &format!("{port}:80")],
        30,
        &format!("port {port} of 127.0.0.1 is in use"),
    );
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = udp.local_addr().unwrap().port();
    refused(&["-p", &format!("{port}:53/udp")], 30, "is in use");
    refused(
        &["-p", "198.51.100.9:18080:80"],
        30,
        "not an address of this host",
    );
}

#[test]
fn a_port_of_two_forwards() {
    for [first, second] in [
        ["18080:80", "18080:81"],
        ["18080:80", "0.0.0.0:18080:80"],
        ["0.0.0.0:18080:80", "127.0.0.2:18080:80"],
    ] {
        refused(&["-p", first, "-p", second], 2, "is forwarded twice");
    }
}

#[test]
fn a_tap_that_is_missing_or_something_else() {
    refused(&["--net", "tap=tare-none"], 31, "ip tuntap add");
    refused(&["--net", "tap=lo"], 31, "tap");
}

#[test]
fn passt_that_is_not_installed() {
    if !installed("qemu-system-x86_64") {
        return tare_vmtest::lacks("QEMU is not installed");
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let path = place.path().join("bin");
    std::fs::create_dir(&path).unwrap();
    std::os::unix::fs::symlink("/bin/true", path.join("qemu-system-x86_64")).unwrap();
    let mut command = place.tare(&["run", &image, "--engine", "qemu"]);
    command.env("PATH", &path);
    end(command.spawn().unwrap()).expect(32, "passt is not installed");
    assert!(place.run_directories().is_empty());
}

#[test]
fn an_engine_that_is_not_installed() {
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let mut command = place.tare(&["run", &image, "--engine", "qemu"]);
    command.env("PATH", place.path());
    end(command.spawn().unwrap()).expect(62, "is not installed");
}

#[test]
fn a_root_that_is_missing_or_too_large() {
    refused(&["--root", "/no/such/directory"], 40, "does not exist");
    refused(&["--root", "/etc/passwd"], 40, "is not a directory");
    let root = TestDir::new();
    let file = std::fs::File::create(root.path().join("large")).unwrap();
    file.set_len(80 << 20).unwrap();
    refused(
        &["--root", root.path().to_str().unwrap()],
        41,
        "more memory with --memory",
    );
}

#[test]
fn a_site_file_that_cannot_be_used() {
    refused(
        &["--site", "/no/such/site.toml"],
        47,
        "cannot read the website configuration",
    );
    let place = TestDir::new();
    let wrong = place.file("a.toml", b"[[paths]]\n");
    refused(&["--site", &wrong], 47, "a.toml:1:3: unknown key \"paths\"");
    let wrong = place.file("b.toml", b"[[path]]\nmatch = \"a\"\nheader = 1\n");
    let checked = place.run(&["check", &wrong]);
    checked.expect(47, "2 mistakes in");
    checked.expect(47, "b.toml:2:9: invalid path \"a\"");
    checked.expect(47, "b.toml:3:1: unknown key \"header\"");
    let root = TestDir::new();
    let page = place.file("page.toml", b"[errors]\n404 = \"404.html\"\n");
    let args = ["--root", root.path().to_str().unwrap(), "--site", &page];
    refused(
        &args,
        47,
        "page.toml:2:7: the root has no file \"404.html\"",
    );
    root.file("404.html", b"gone");
    refused(
        &args,
        2,
        "tiny ignores --site, which is for the images http",
    );
    refused(
        &["--reload"],
        2,
        "tiny ignores --reload, which is for the image http: leave it out, or serve the files as a \
         directory: tare run http --root DIR --reload",
    );
    let args = ["reload", "web", "--root", root.path().to_str().unwrap()];
    place.run(&args).expect(51, "web");
    let valid = "valid: 0 paths, 0 redirects, missing files get 404.html";
    place.run(&["check", &page]).expect(0, valid);
}

#[test]
fn a_disk_that_cannot_be_used() {
    refused(&["--disk", "/no/such/disk"], 34, "does not exist");
    refused(&["--disk", "/etc"], 35, "neither a file nor a block device");
    let place = TestDir::new();
    let empty = place.file("empty", b"");
    refused(&["--disk", &empty], 35, "is empty");
    let odd = place.file("odd", &[0; 1000]);
    refused(&["--disk", &odd], 35, "truncate -s %512");
    let mut qcow2 = vec![0; 4096];
    qcow2[..4].copy_from_slice(b"QFI\xfb");
    let qcow2 = place.file("qcow2", &qcow2);
    refused(&["--disk", &qcow2], 35, "is a qcow2 image");
    let raw = place.file("raw", &[0; 4096]);
    // Given twice is in use, too, unless it is only read.
    let twice = ["--disk", &raw, "--disk", &raw];
    refused(&twice, 36, "is already in use");
    let coalesced = format!("{raw},coalesce=1/4");
    if installed("qemu-system-x86_64") {
        let alone = ["--disk", &coalesced, "--engine", "qemu", "--net", "none"];
        refused(&alone, 2, "needs Tare's own monitor");
    }
}

#[test]
fn an_initramfs_that_is_missing_or_too_large() {
    refused(
        &["--initrd", "/no/such/file"],
        10,
        "cannot open the initramfs",
    );
    let place = TestDir::new();
    let path = place.file("large", b"");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(80 << 20)
        .unwrap();
    refused(&["--initrd", &path], 14, "does not fit into 64 MiB");
}

#[test]
fn a_name_that_runs_already() {
    if !installed("qemu-system-x86_64") {
        return tare_vmtest::lacks("QEMU is not installed");
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let root = RunRoot::open(place.run_root()).unwrap();
    let (_dir, _lock) = root.create("web").unwrap();
    let args = [
        "run", &image, "--name", "web", "--net", "none", "--engine", "qemu",
    ];
    place.run(&args).expect(50, "stop it (tare stop web)");
    assert_eq!(place.run_directories(), ["web"]);
}

#[test]
fn words_that_mean_nothing() {
    let place = TestDir::new();
    for args in [
        &["run"] as &[&str],
        &["run", "x", "--no-such"],
        &["run", "x", "--memory", "much"],
        &["run", "x", "-p", "80"],
        &["run", "x", "-p", "80:99999"],
        &["run", "x", "--net", "wifi"],
        &["run", "x", "--idle", "busily"],
        &["run", "x", "--ring", "1"],
        &["run", "x", "--halt", "sometimes"],
        &["run", "x", "--halt", "poll=-1"],
        &["run", "x", "--halt", "budget=0"],
        &["run", "x", "--halt", "budget=100"],
        &["run", "x", "--halt", "budget=little"],
        &["run", "x", "--disk", ""],
        &["run", "x", "--disk", "d,cache=unsafe"],
        &["run", "x", "--disk", "d,coalesce=sometimes"],
        &["run", "x", "--disk", "d,queues=0"],
        &["run", "x", "--root", "a", "--initrd", "b"],
        &["fly"],
    ] {
        let ended = place.run(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:#?}");
        assert!(!ended.err.is_empty(), "{args:?}");
    }
}

#[test]
fn words_that_do_not_go_together() {
    refused(&["--name", "../web"], 2, "invalid machine name");
    refused(
        &["--net", "none", "-p", "18080:80"],
        2,
        "--publish needs --net user",
    );
    let program = ["run", "/bin/sh", "--initrd", "/no/such/file"];
    check(&TestDir::new(), &program, 2, "--initrd is for images");
}

/// As a user who may neither open /dev/kvm nor use low ports.
#[test]
fn what_a_user_without_rights_may_not_do() {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !root {
        return tare_vmtest::lacks("only root can become another user");
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let shared = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(), shared).unwrap();
    // The program's own directory may be closed to others. Another process
    // copies: a file that this one had open for writing could not be executed
    // while a test beside this one starts a program.
    let tare = place.path().join("tare");
    output("cp", &[env!("CARGO_BIN_EXE_tare"), tare.to_str().unwrap()]);
    let as_nobody = |args: &[&str]| {
        let mut command = std::process::Command::new(&tare);
        command
            .args(args)
            .env("TARE_RUN_ROOT", place.run_root())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .uid(65_534)
            .gid(65_534);
        end(command.spawn().unwrap())
    };
    if std::path::Path::new("/dev/kvm").exists() {
        let refused = as_nobody(&["run", &image, "--net", "none"]);
        match refused.code {
            Some(60) => refused.expect(60, "no permission to open /dev/kvm"),
            _ => tare_vmtest::lacks("every user may open /dev/kvm here"),
        }
    }
    let low = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if low.is_ok_and(|low| low.trim().parse::<u16>().is_ok_and(|low| low > 81)) {
        as_nobody(&["run", &image, "-p", "81:80"]).expect(30, "needs privileges");
    }
    if tare_vmtest::installed("qemu-system-x86_64") {
        let args = ["--engine", "qemu", "--net", "none", "--limit-cpu", "0.5"];
        let refused = as_nobody(&[&["run", &image][..], &args].concat());
        refused.expect(24, "only root may make cgroups");
    }
}
