//! `--volume`: a directory that the host and a Linux guest share while the guest runs.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use super::support::{TestDir, eventually};
use super::{debian, root_in};

const SERVERS: &[&str] = &[
    "/usr/lib/qemu/virtiofsd",
    "/usr/libexec/virtiofsd",
    "/usr/lib/virtiofsd",
];

fn needs_volumes() -> bool {
    let has_server = SERVERS.iter().any(|path| Path::new(path).is_file());
    if !has_server {
        tare_vmtest::lacks("virtiofsd is not installed");
    }
    has_server && debian()
}

/// A root with busybox, and a directory to share.
fn place() -> (TestDir, String, PathBuf) {
    let place = TestDir::new();
    let root = root_in(&place);
    let shared = place.path().join("shared");
    fs::create_dir(&shared).unwrap();
    (place, root.to_str().unwrap().to_owned(), shared)
}

fn volume(shared: &Path, rest: &str) -> String {
    format!("{}:{rest}", shared.display())
}

/// Processes whose root is the directory.
fn servers(shared: &Path) -> Vec<i32> {
    let own = fs::metadata(shared).unwrap();
    let is_server = |root: PathBuf| {
        fs::metadata(root).is_ok_and(|it| (it.dev(), it.ino()) == (own.dev(), own.ino()))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter(|it| is_server(it.path().join("root")));
    let number = |it: fs::DirEntry| it.file_name().to_str()?.parse().ok();
    processes.filter_map(number).collect()
}

#[test]
fn a_directory_is_shared_with_its_owners_and_read_only_where_that_is_said() {
    if !needs_volumes() {
        return;
    }
    let (place, root, shared) = place();
    fs::write(place.path().join("secret"), "secret").unwrap();
    fs::write(shared.join("a"), "from the host").unwrap();
    symlink("../secret", shared.join("climbs")).unwrap();
    symlink(place.path().join("secret"), shared.join("leads")).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(shared.join("a"), Some(1234), Some(2345)).unwrap();
    }
    let script = "/bin/busybox --install -s /bin; cat /data/deep/a; stat -c %u:%g /data/deep/a
        echo guest >/data/deep/b; chown 77:88 /data/deep/b
        cat /data/deep/climbs /data/deep/leads /data/deep/../../secret
        cp /data/deep/a /look/b || echo refused
        mount -o remount,rw /look; rm -f /look/a; echo x >/look/c || echo refused; exit 5";
    let volumes = [volume(&shared, "/data/deep/"), volume(&shared, "/look:ro")];
    let args = [
        &[
            "run", "--kernel", "debian", "--root", &root, "--net", "none",
        ][..],
        &["--engine", "qemu", "-v", &volumes[0], "--volume"],
        &[&volumes[1], "--", "/bin/busybox", "sh", "-c", script],
    ];
    let ended = place.run(&args.concat());
    ended.expect(5, "from the host");
    assert_eq!(ended.out.matches("refused").count(), 2, "{ended:#?}");
    assert!(!ended.out.contains("secret"), "{ended:#?}");
    assert_eq!(fs::read_to_string(shared.join("b")).unwrap(), "guest\n");
    assert!(shared.join("a").exists() && !shared.join("c").exists());
    let written = fs::metadata(shared.join("b")).unwrap();
    if is_root {
        ended.expect(5, "1234:2345");
        assert_eq!((written.uid(), written.gid()), (77, 88));
    } else {
        ended.expect(5, "0:0");
        assert_eq!(written.uid(), rustix::process::geteuid().as_raw());
    }
    assert!(servers(&shared).is_empty());
    assert!(place.run_directories().is_empty());
}

#[test]
fn both_sides_see_changes_while_the_guest_runs_and_nothing_serves_after_it() {
    if !needs_volumes() {
        return;
    }
    let (place, root, shared) = place();
    let shares = volume(&shared, "/data");
    let script = "/bin/busybox --install -s /bin; echo >/data/ready; while ! [ -e /data/go ]; do sleep 0.1; done
        cat /data/go >/data/done; rm /data/go; while :; do sleep 1; done";
    let run = |name: &str, args: &[&str]| {
        let args = [
            &["run", "--kernel", "debian", "--root", &root, "--name", name],
            &["--net", "none", "--engine", "qemu", "-v", &shares][..],
            args,
            &["--", "/bin/busybox", "sh", "-c", script],
        ];
        place.tare(&args.concat()).spawn().unwrap()
    };
    let exchange = || {
        eventually("the guest writes", || shared.join("ready").exists());
        fs::write(shared.join("new"), "by the host").unwrap();
        fs::rename(shared.join("new"), shared.join("go")).unwrap();
        eventually("the guest answers and removes", || {
            !shared.join("go").exists()
        });
        assert_eq!(
            fs::read_to_string(shared.join("done")).unwrap(),
            "by the host"
        );
        fs::remove_file(shared.join("ready")).unwrap();
    };
    let started = super::support::end(run("background", &["-d"]));
    started.expect(0, "background");
    exchange();
    place.run(&["stop", "background"]).expect(0, "");
    eventually("nothing serves", || servers(&shared).is_empty());
    // Where nothing can clean up.
    let mut killed = run("killed", &[]);
    exchange();
    if rustix::process::geteuid().is_root() {
        assert!(!servers(&shared).is_empty());
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    eventually("nothing serves", || servers(&shared).is_empty());
}

#[test]
fn a_server_that_ends_later_ends_the_machine() {
    if !needs_volumes() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return tare_vmtest::lacks("only root sees what a process has as its root");
    }
    let (place, root, shared) = place();
    let shares = volume(&shared, "/data");
    let script = "echo >/data/ready; while :; do read x </data/ready; done";
    let args = [
        &[
            "run", "--kernel", "debian", "--root", &root, "--net", "none",
        ][..],
        &["--engine", "qemu", "-v", &shares],
        &["--", "/bin/busybox", "sh", "-c", script],
    ];
    let machine = place.tare(&args.concat()).spawn().unwrap();
    eventually("the guest writes", || shared.join("ready").exists());
    for server in servers(&shared) {
        let server = rustix::process::Pid::from_raw(server).unwrap();
        rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    }
    super::support::end(machine).expect(38, "virtiofsd has ended, and the machine with it");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_directory_that_cannot_be_shared_is_refused_in_a_sentence() {
    if !needs_volumes() {
        return;
    }
    let (place, root, shared) = place();
    let file = place.file("file", b"");
    let run = |args: &[&str]| {
        let linux = [
            "run", "--kernel", "debian", "--root", &root, "--engine", "qemu",
        ];
        place.run(&[&linux[..], args, &["--", "/bin/busybox", "true"]].concat())
    };
    let there = |rest: &str| volume(&shared, rest);
    run(&["-v", "/no/such:/data"]).expect(37, "cannot share /no/such: No such file");
    run(&["-v", &format!("{file}:/data")]).expect(37, ": Not a directory");
    let below = there("/bin/busybox/x");
    run(&["-v", &below]).expect(37, "/bin/busybox in the root is a file, not");
    let twice = [there("/data"), there("/data/.:ro")];
    run(&["-v", &twice[0], "-v", &twice[1]]).expect(2, "two directories at /data ");
    let nine: Vec<String> = (0..9).map(|it| there(&format!("/{it}"))).collect();
    let nine: Vec<&str> = nine.iter().flat_map(|it| ["-v", it]).collect();
    run(&nine).expect(2, "at most 8");
    let data = there("/data");
    for (args, code) in [
        (&["run", "http", "-v", &data][..], 2),
        (&["run", "/bin/busybox", "-v", &data], 2),
        (&["run", "--kernel", "debian", "-v", &data], 2),
    ] {
        place.run(args).expect(code, "");
    }
    assert!(place.run_directories().is_empty());
    assert!(servers(&shared).is_empty());
}

#[test]
fn shared_directories_are_for_linux_in_qemu() {
    let place = TestDir::new();
    let data = volume(place.path(), "/data");
    let image = place.file("image", b"\x7fELF");
    place
        .run(&["run", "-v", &data, &image])
        .expect(2, "--volume needs a Linux guest and its files");
}
