//! Linux guests: a kernel of a few bytes in Tare's monitor, Debian's in QEMU's
//! translator with roots from a directory and from container images.
#![allow(clippy::unwrap_used)]

#[path = "linux/signals.rs"]
mod signals;
mod support;
#[path = "linux/volumes.rs"]
mod volumes;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use support::{TestDir, end, eventually, free_port, get, installed, needs};
use tare_init::{Logging, Refusal};
use tare_profile::Profile;
use tare_qemu::MachineType;
use tare_rootfs::kernel::debian;
use tare_rootfs::oci::testing::{Entry, docker_archive, gzip, layer, oci_archive, oci_archive_of};
use tare_rootfs::tree::{Content, EntryKind};
use tare_rootfs::{Cache, Tree, guest, host};
use tare_tailor::check::Check;
use tare_tailor::machine::Execution;
use tare_tailor::prove::{ProofConfig, prove};
use tare_tailor::root::{RootFrom, gather};
use tare_tailor::training::Training;

const PAGE: &str = "<p>from a Linux guest";
const CONFIG: &str = r#"{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/bin/busybox","sh","-c"],"Cmd":["exit 3"],"Env":["WHO=image"],"WorkingDir":"/srv","User":"7:8"}}"#;

/// A bzImage whose 64-bit entry looks for "HdrS" in its zero page, prints K and
/// ends with status 7; with 99 if it is not there.
fn tiny_kernel() -> Vec<u8> {
    let mut file = vec![0; 1024 + 0x200];
    file[0x1f1] = 1;
    file[0x1f4] = 0x20;
    file[0x1fe..0x202].copy_from_slice(&[0x55, 0xaa, 0xeb, 0x66]);
    file[0x202..0x208].copy_from_slice(b"HdrS\x0f\x02");
    file[0x22c..0x230].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    file[0x236] = 1;
    file[0x258..0x260].copy_from_slice(&0x10_0000_u64.to_le_bytes());
    file.extend([0x81, 0xbe, 0x02, 0x02, 0, 0]); // cmp dword [rsi+0x202],
    file.extend(b"HdrS"); //                        "HdrS"
    file.extend([0x75, 0x0e]); //                   jne 1f
    file.extend([0x66, 0xba, 0xf8, 0x03]); //       mov dx, 0x3f8
    file.extend([0xb0, b'K', 0xee]); //             mov al, 'K'; out dx, al
    file.extend([0xb8, 0x10, 7, 0, 0]); //          mov eax, status 7
    file.extend([0xeb, 0x05]); //                   jmp 2f
    file.extend([0xb8, 0x10, 99, 0, 0]); //      1: mov eax, status 99
    file.extend([0x66, 0xba, 0xf4, 0, 0xef]); // 2: mov dx, 0xf4; out dx, eax
    file.extend([0xf4, 0xeb, 0xfd]); //             hlt; jmp
    file
}

/// Whether Debian's kernel can be booted here.
fn debian() -> bool {
    let cache = Cache::open_default();
    let kernel = cache.map(|cache| debian::find_or_obtain(&cache));
    let skip = |why: &str| {
        tare_vmtest::lacks(why);
        false
    };
    match kernel {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return skip(&error.to_string()),
        Err(error) => return skip(&error.to_string()),
    }
    let programs = ["qemu-system-x86_64", "passt", "busybox"];
    if let Some(missing) = programs.into_iter().find(|program| !installed(program)) {
        return skip(&format!("{missing} is not installed"));
    }
    guest::find_init().is_ok() || skip("tare-init is not built (cargo xtask init)")
}

/// busybox of this host with its libraries, below `/bin`, and a page.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut tree = Tree::new();
    let busybox = host::add_program(&mut tree, "busybox").unwrap();
    let contents = tree.entries().filter_map(|(name, node)| match &node.kind {
        EntryKind::File(Content::Host(file)) => {
            let name = if format!("/{name}") == busybox {
                "bin/busybox"
            } else {
                name
            };
            Some((name.to_owned(), std::fs::read(file.path()).unwrap()))
        }
        _ => None,
    });
    let page = ("srv/index.html".to_owned(), PAGE.as_bytes().to_vec());
    contents.chain([page]).collect()
}

/// The files of a Debian guest in this directory.
fn root_in(place: &TestDir) -> PathBuf {
    let root = place.path().join("root");
    write_below(&root);
    root
}

fn write_below(root: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for (name, bytes) in files() {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn image_layers() -> Vec<Vec<u8>> {
    let files = files();
    let entry = |(name, bytes): &'_ (String, Vec<u8>)| (name.clone(), bytes.clone());
    let files: Vec<_> = files.iter().map(entry).collect();
    let entries: Vec<Entry<'_>> = files
        .iter()
        .map(|(name, bytes)| Entry::File(name, 0o755, bytes))
        .collect();
    let high = [
        Entry::File("srv/new", 0o644, b"x"),
        Entry::File("srv/.wh.old", 0o644, b""),
    ];
    let low = [entries.as_slice(), &[Entry::File("srv/old", 0o644, b"x")]].concat();
    vec![gzip(&layer(&low)), gzip(&layer(&high))]
}

/// Runs a server in the guest, and fetches the page once it is ready.
/// `tare run` with Debian's kernel in QEMU: with this root, more options and a command.
fn with_debian<'a>(root: &'a str, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let run = [
        "run", "--kernel", "debian", "--root", root, "--engine", "qemu",
    ];
    [&run[..], options, &["--"], command].concat()
}

fn serves(place: &TestDir, root: &str, command: &[&str]) {
    let port = free_port();
    let publish = format!("{port}:80");
    let options = ["--name", "web", "-d", "-p", &publish];
    place
        .run(&with_debian(root, &options, command))
        .expect(0, "web");
    eventually("the guest is ready", || {
        place.run(&["logs", "web"]).out.contains("ready")
    });
    eventually("the guest serves", || {
        get(port, "/").is_ok_and(|answer| answer.contains(PAGE))
    });
    place.run(&["stop", "web"]).expect(0, "");
    eventually("nothing is left", || place.run_directories().is_empty());
}

#[test]
fn a_64_bit_kernel_finds_its_boot_parameters() {
    if !needs::kvm() {
        return;
    }
    let place = TestDir::new();
    let kernel = place.file("tiny", &tiny_kernel());
    let args = [
        "run", "--kernel", &kernel, "--net", "none", "--engine", "tare",
    ];
    let ended = place.run(&args);
    ended.expect(7, "the application ended with status 7");
    assert!(ended.out.contains('K'), "{ended:#?}");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_directory_serves_from_debians_kernel() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    let script = "echo ready; exec /bin/busybox httpd -f -h /srv";
    let command = ["/bin/busybox", "sh", "-c", script];
    serves(&place, root.to_str().unwrap(), &command);
}

#[test]
fn an_oci_archive_serves_from_debians_kernel() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let config = CONFIG.replace(r#","User":"7:8""#, "");
    let image = place.file("image.tar", &oci_archive(&config, &image_layers()));
    let script = "echo ready for $WHO; exec /bin/busybox httpd -f -h .";
    serves(&place, &image, &[script]);
}

#[test]
fn an_images_settings_are_honoured_and_its_status_is_ours() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("image.tar", &docker_archive(CONFIG, &image_layers()));
    let script = "busybox() { /bin/busybox $@; }; busybox id; busybox pwd; busybox ls; echo $WHO $TOO; exit 42";
    let options = ["--net", "none", "--env", "TOO=users"];
    let ended = place.run(&with_debian(&image, &options, &[script]));
    ended.expect(42, "uid=7 gid=8");
    for text in ["/srv", "index.html", "new", "image users"] {
        assert!(ended.out.contains(text), "{text}: {ended:#?}");
    }
    assert!(!ended.out.contains("old"), "{ended:#?}");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_pipe_passes_every_byte_and_its_end_on() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    let root = root.to_str().unwrap();
    let script = "/bin/busybox cat; echo complaint >&2; exit 3";
    let command = ["/bin/busybox", "sh", "-c", script];
    // Each byte, and more than a port's buffers hold.
    let input: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let mut tare = place.tare(&with_debian(root, &["--net", "none"], &command));
    let mut child = tare.stdin(Stdio::piped()).spawn().unwrap();
    let mut to_guest = child.stdin.take().unwrap();
    let sent = input.clone();
    let writer = thread::spawn(move || to_guest.write_all(&sent));
    // A slow reader: whatever could end while the pipe is full has had time to.
    eventually("the pipe is full", || {
        let waiting = rustix::io::ioctl_fionread(child.stdout.as_ref().unwrap()).unwrap();
        waiting >= 65_536
    });
    // Were they not blocking, QEMU would keep what the pipe does not take, and lose it.
    for stream in [1, 2] {
        assert!(!is_non_blocking(child.id(), stream), "stream {stream}");
    }
    thread::sleep(Duration::from_secs(3));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        output.stdout == input,
        "{} bytes: {said}",
        output.stdout.len()
    );
    assert!(said.contains("complaint\n"), "{said}");
}

/// Whether a process's descriptor is non-blocking (`proc_pid_fdinfo(5)`).
fn is_non_blocking(process: u32, descriptor: u32) -> bool {
    let info = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = u32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    OFlags::from_bits_retain(flags).contains(OFlags::NONBLOCK)
}

#[test]
fn an_images_user_has_its_groups_and_its_directories_are_made() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let accounts = [
        Entry::File("etc/passwd", 0o644, b"web:x:7:8::/srv:/bin/sh\n"),
        Entry::File("etc/group", 0o644, b"web:x:8:\ncerts:x:9:web\n"),
        Entry::HardLink("etc/shared", "etc/group"),
    ];
    let config = r#"{"architecture":"amd64","os":"linux","config":{"User":"web",
        "WorkingDir":"/made/here","Volumes":{"/data":{}},"Entrypoint":["/bin/busybox","sh","-c"]}}"#;
    let mut layers = image_layers();
    layers.push(layer(&accounts));
    let image = place.file("image.tar", &gzip(&docker_archive(config, &layers)));
    let script = "b=/bin/busybox; $b id; $b pwd; $b ls -d /data; $b stat -c 'links %h' /etc/group";
    let ended = place.run(&with_debian(&image, &["--net", "none"], &[script]));
    ended.expect(0, "groups=");
    for part in ["9(certs)", "/made/here\n", "/data\n", "links 2\n"] {
        assert!(ended.out.contains(part), "{part}: {ended:#?}");
    }
}

#[test]
fn a_root_on_a_disk_is_the_guests_and_the_console_is_its_commands_terminal() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    let script = "/bin/busybox grep ' / ext4 rw' /proc/mounts && /bin/busybox touch /new \
                  && echo to the terminal > /dev/tty && exit 6";
    let options = ["--root-disk", "64M", "--net", "none"];
    let command = ["/bin/busybox", "sh", "-c", script];
    let ended = place.run(&with_debian(root.to_str().unwrap(), &options, &command));
    ended.expect(6, "/ ext4 rw");
    assert!(ended.err.contains("to the terminal"), "{ended:#?}");
    assert!(!root.join("new").exists());
    assert!(place.run_directories().is_empty());
}

/// As docker and podman give them to each container.
#[test]
fn a_root_without_names_gets_those_of_its_machine() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/hosts"), "192.0.2.1\tmine\n").unwrap();
    let script = "/bin/busybox cat /etc/hosts /etc/hostname /etc/resolv.conf";
    let (root, options) = (root.to_str().unwrap(), ["--name", "named"]);
    let command = ["/bin/busybox", "sh", "-c", script];
    let told = place.run(&with_debian(root, &options, &command));
    told.expect(0, "");
    assert_eq!(
        told.out, "192.0.2.1\tmine\nnamed\nnameserver 10.0.2.2\n",
        "{told:?}"
    );
}

/// A signal while the root is laid out for a disk. SIGINT may be ignored where tests run in the
/// background.
#[test]
fn an_interrupted_root_disk_leaves_nothing() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let scratch = place.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let root = root_in(&place);
    std::fs::write(root.join("large"), vec![1; 200 << 20]).unwrap();
    let options = ["--root-disk", "1G", "--net", "none"];
    let command = ["/bin/busybox", "true"];
    let mut tare = place.tare(&with_debian(root.to_str().unwrap(), &options, &command));
    let child = tare.env("TMPDIR", &scratch).spawn().unwrap();
    let made = || std::fs::read_dir(&scratch).unwrap().count();
    eventually("the root is laid out", || made() >= 2);
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    end(child).expect(143, "terminated");
    assert_eq!(made(), 0);
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_kernel_without_a_root_panics_and_tare_says_so() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let args = [
        "run", "--kernel", "debian", "--net", "none", "--engine", "qemu",
    ];
    place.run(&args).expect(70, "the guest panicked");
    assert!(place.run_directories().is_empty());
}

#[test]
fn roots_and_kernels_that_are_wrong_are_refused_by_name() {
    let place = TestDir::new();
    let kernel = place.file("tiny", &tiny_kernel());
    let run = |more: &[&str]| {
        let ended = place.run(&[&["run", "--kernel", &kernel, "--net", "none"], more].concat());
        assert!(place.run_directories().is_empty(), "{ended:#?}");
        ended
    };
    let climbs = [layer(&[Entry::File("../etc/passwd", 0o644, b"x")])];
    let climbs = place.file("climbs.tar", &oci_archive(CONFIG, &climbs));
    run(&["--root", &climbs]).expect(42, "\"../etc/passwd\" of ");
    let mut damaged = oci_archive(CONFIG, &[layer(&[])]);
    damaged.truncate(2000);
    let damaged = place.file("damaged.tar", &damaged);
    run(&["--root", &damaged]).expect(42, "damaged.tar");
    run(&["--root", "/no/such"]).expect(40, "/no/such");
    run(&["--", "/bin/sh"]).expect(2, "add --root");
    run(&["--root-disk", "64M"]).expect(2, "--root");
    let layers = [layer(&[])];
    let several = [(Some("a"), CONFIG, &layers[..]), (Some("b"), "{}", &layers)];
    let several = place.file("several.tar", &oci_archive_of(&several));
    run(&["--root", &several]).expect(42, "there are several images: a, b");
    run(&["--root", &format!("{several}:c")]).expect(42, "there is no image named c");
    if guest::find_init().is_ok() && installed("mke2fs") {
        let full = [layer(&[Entry::File("f", 0o644, &vec![1; 8 << 20])])];
        let full = place.file("full.tar", &oci_archive(CONFIG, &full));
        let small = ["--root", &full, "--root-disk", "8M"];
        run(&small).expect(41, "make it larger with --root-disk");
    }
    let root = place.path().to_str().unwrap();
    run(&["--root", root]).expect(2, "names no command");
    let text = place.file("text", b"#!/bin/sh");
    let args = ["run", "--kernel", &text, "--net", "none"];
    place.run(&args).expect(11, "neither a vmlinux");
}

/// How a kernel is proven in these tests.
fn terms(check: Check, refusals: Logging) -> ProofConfig {
    ProofConfig {
        check,
        machine_type: MachineType::Q35,
        execution: Execution::Translated,
        cmdline: String::new(),
        memory_mib: 512,
        limit: Duration::from_secs(120),
        // A guest on a busy host takes its time: an application that ends is waited for.
        goes_on: Duration::from_secs(120),
        refusals,
        interrupted: Arc::default(),
        tare: env!("CARGO_BIN_EXE_tare").into(),
    }
}

#[test]
fn what_a_kernel_refuses_a_program_is_reported_by_its_guest() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    // By a child, by another beside it, twice, and not at all.
    let script = "busybox cat /dev/tare-none 2> /dev/null
        busybox sh -c 'busybox cat /proc/tare-none' 2> /dev/null & wait
        busybox cat /dev/tare-none 2> /dev/null
        busybox cat /dev/null && exit 3";
    let command = ["/bin/busybox", "sh", "-c", script].map(str::to_owned);
    let application = gather(
        &RootFrom::Path(root),
        &Profile::empty(),
        &command,
        &Check::Runs,
        &BTreeSet::new(),
    );
    let terms = terms(Check::Runs, Logging::On);
    let kernel = debian::find_or_obtain(&Cache::open_default().unwrap()).unwrap();
    let console = place.path().join("console");
    let proof = prove(&kernel.image, &[], &application.unwrap(), &terms, &console).unwrap();
    assert_eq!(proof.failure.unwrap(), "it ended with status 3");
    let console = std::fs::read_to_string(console).unwrap();
    for (path, count) in [
        ("/dev/tare-none", 1),
        ("/proc/tare-none", 1),
        ("/dev/null", 0),
    ] {
        let refused = Refusal::all_on(&console);
        let here = |it: &&Refusal| it.text.as_deref() == Some(path);
        let errors: Vec<u16> = refused.iter().filter(here).map(|it| it.error).collect();
        assert_eq!(errors, vec![2; count], "{path}: {console}");
        let lines = console.lines().filter(|line| line.contains("refused: "));
        let told = lines.filter(|line| line.contains(&format!("\"{path}\"")));
        assert_eq!(told.count(), count, "{path}: {console}");
    }
}

#[test]
fn a_check_that_passes_with_boot_parameters_only_gets_them() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    let asks = "busybox mount -t proc proc /proc 2> /dev/null
        busybox grep -q hugepages=3 /proc/cmdline";
    let command = ["/bin/busybox", "sh", "-c", asks].map(str::to_owned);
    let application = gather(
        &RootFrom::Path(root),
        &Profile::empty(),
        &command,
        &Check::Runs,
        &BTreeSet::new(),
    );
    let application = application.unwrap();
    let kernel = debian::find_or_obtain(&Cache::open_default().unwrap()).unwrap();
    for (cmdline, right) in [("", false), ("hugepages=3", true)] {
        let terms = ProofConfig {
            cmdline: cmdline.to_owned(),
            ..terms(Check::Runs, Logging::Off)
        };
        let console = place.path().join("console");
        let proof = prove(&kernel.image, &[], &application, &terms, &console).unwrap();
        assert_eq!(proof.passed(), right, "{cmdline}: {:?}", proof.failure);
    }
}

/// Debian's kernel is not an instrumented one; an application with root's rights can write where its counts go.
#[test]
fn a_guest_without_counts_or_with_wrong_ones_is_an_error_with_what_it_said() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    let kernel = debian::find_or_obtain(&Cache::open_default().unwrap()).unwrap();
    let objects = place.path().join("build");
    let boot = objects.join("arch/x86/boot");
    std::fs::create_dir_all(&boot).unwrap();
    std::fs::copy(&kernel.image, boot.join("bzImage")).unwrap();
    let forged = "printf 'tare-counts/1 4\\nabcd' > /dev/ttyS1; busybox sleep 1";
    for (script, why, said) in [
        ("exit 0", "counted nothing", "this kernel counts nothing"),
        (forged, "list of files is damaged", ""),
    ] {
        let command = ["/bin/busybox", "sh", "-c", script].map(str::to_owned);
        let application = gather(
            &RootFrom::Path(root.clone()),
            &Profile::empty(),
            &command,
            &Check::Runs,
            &BTreeSet::new(),
        );
        let training = Training {
            application: &application.unwrap(),
            terms: &terms(Check::Runs, Logging::Off),
            load: None,
            console: &place.path().join("console"),
        };
        let error = training.run(&objects).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        let console = std::fs::read_to_string(training.console).unwrap();
        assert!(console.contains(said), "{console}");
    }
}

/// The kernel stops where memory ends, and starts the first process all the same.
#[test]
fn a_root_that_the_guest_cannot_unpack_is_named() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    // Less than half of the memory, of which the kernel keeps a part and gives its root half of the rest.
    std::fs::write(root.join("srv/large"), vec![1; 90 << 20]).unwrap();
    let args = [
        "run", "--kernel", "debian", "--memory", "256M", "--net", "none", "--engine", "qemu",
    ];
    let root = ["--root", root.to_str().unwrap(), "--"];
    let command = ["/bin/busybox", "echo", "it runs"];
    let ended = place.run(&[&args[..], &root, &command].concat());
    ended.expect(126, "the root was not unpacked to its end");
    assert!(!ended.out.contains("it runs"), "{ended:#?}");
}

/// To a guest of QEMU's user network the gateway is the host's loopback interface.
#[test]
fn a_proofs_guest_answers_at_its_port_and_reaches_no_service_of_the_host() {
    if !debian() {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    let service = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    service.set_nonblocking(true).unwrap();
    let port = service.local_addr().unwrap().port();
    let script = format!(
        "busybox timeout 5 busybox nc -w 3 10.0.2.2 {port} < /dev/null && echo connected || echo refused
        exec busybox httpd -f -p 80 -h /srv"
    );
    let command = ["/bin/busybox", "sh", "-c", &script].map(str::to_owned);
    let check = Check::Http {
        port: 80,
        path: "/".to_owned(),
    };
    let application = gather(
        &RootFrom::Path(root),
        &Profile::empty(),
        &command,
        &check,
        &BTreeSet::new(),
    );
    let terms = terms(check, Logging::Off);
    let kernel = debian::find_or_obtain(&Cache::open_default().unwrap()).unwrap();
    let modules = kernel.machine_modules(&[]).unwrap();
    let log = place.path().join("console");
    let application = application.unwrap();
    let proof = prove(&kernel.image, &modules, &application, &terms, &log).unwrap();
    let console = std::fs::read_to_string(log).unwrap();
    assert_eq!(proof.failure, None, "{console}");
    assert!(console.contains("refused"), "{console}");
    let reached = service.accept().map(drop).unwrap_err();
    assert_eq!(reached.kind(), std::io::ErrorKind::WouldBlock);
}
