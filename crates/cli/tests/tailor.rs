//! `tare tailor` from a profile to a report, on a tree whose Makefile is the
//! test's: its "kernels" are guests of a few bytes, which say that a call is
//! missing, or that the command ended, by what they were configured with.
#![allow(clippy::unwrap_used)]

#[path = "tailor/builds.rs"]
mod builds;
#[path = "tailor/optimized.rs"]
mod optimized;
#[path = "tailor/several.rs"]
mod several;
mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;
use support::guest::{Then, image};
use support::process::{
    USER, as_user, can_refuse_namespaces, children, has_own, is_gone, may_make_namespaces, root,
    status, users_make_namespaces, without, without_namespaces,
};
use support::{CommandOutput, TestDir, end, eventually, installed};
use tare_abi::exit::STATUS_LINE;
use tare_init::Figures;
use tare_init::Refusal;
use tare_profile::{Call, FileUse, Profile};
use tare_rootfs::guest::find_init;

/// Programs that a tailoring runs here: without apt nothing is downloaded.
const PROGRAMS: &[&str] = &[
    "make",
    "bash",
    "setsid",
    "sleep",
    "id",
    "env",
    "touch",
    "head",
    "truncate",
    "prlimit",
    "ln",
    "echo",
    "sh",
    "cp",
    "cat",
    "grep",
    "mkdir",
    "patch",
    "gcc",
    "ld",
    "setpriv",
    "unshare",
    "qemu-system-x86_64",
];

/// A tree, and what runs in it.
struct Bench {
    place: TestDir,
}

impl Bench {
    /// `image` is the recipe that makes the bzImage.
    fn new(image: &str) -> Self {
        let place = TestDir::new();
        let tree = place.path().join("tree");
        for dir in ["scripts/kconfig", "arch/x86/entry/syscalls", "fs"] {
            fs::create_dir_all(tree.join(dir)).unwrap();
        }
        fs::write(tree.join("Kconfig"), "config EPOLL\n\tbool \"epoll\"\n").unwrap();
        let table = "0\tcommon\tread\tsys_read\n232\tcommon\tepoll_wait\tsys_epoll_wait\n";
        fs::write(tree.join("arch/x86/entry/syscalls/syscall_64.tbl"), table).unwrap();
        let bench = Self { place };
        bench.makes(image);
        let programs = bench.place.path().join("bin");
        fs::create_dir(&programs).unwrap();
        for program in PROGRAMS {
            let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|dir| dir.join(program))
                .find(|path| path.is_file());
            if let Some(found) = found {
                symlink(found, programs.join(program)).unwrap();
            }
        }
        let root = bench.place.path().join("root/bin");
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("app"), "").unwrap();
        bench
    }

    /// Symbols that the scripts do not know, or without what they depend on, are
    /// not granted.
    fn makes(&self, image: &str) {
        let makefile = format!(
            "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\nOUT = $(O)/arch/x86/boot/bzImage\n\
             DROPPED = UNKNOWN\\|_NUMA$(shell grep -q IKCONFIG=y $(KCONFIG_ALLCONFIG) \
             || echo '\\|IKCONFIG_PROC')\n\
             allnoconfig:\n\t@grep -v '$(DROPPED)' $(KCONFIG_ALLCONFIG) > $(O)/.config\n\
             bzImage:\n\t@mkdir -p $(O)/arch/x86/boot\n\t@echo '  LD      vmlinux'\n\
             \t@{image}\n\t@cp $(OUT) $(O)/vmlinux\n"
        );
        fs::write(self.path("tree/Makefile"), makefile).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A profile with these calls and paths.
    fn profile(&self, calls: &[&str], paths: &[&str]) -> String {
        let mut profile = Profile::empty();
        for call in calls {
            let seen = Call {
                count: 1,
                ..Call::default()
            };
            profile.calls.insert((*call).to_owned(), seen);
        }
        profile.features.files = paths
            .iter()
            .map(|path| FileUse {
                file_system: "proc".to_owned(),
                path: (*path).to_owned(),
                count: 1,
            })
            .collect();
        let json = serde_json::to_vec(&profile).unwrap();
        self.place.file("profile.json", &json)
    }

    fn tare(&self, args: &[&str]) -> Command {
        let mut tare = self.place.tare(args);
        tare.env("TARE_CACHE", self.path("cache"))
            .env("PATH", self.path("bin"));
        tare
    }

    /// `tare tailor` for an application in the root.
    fn tailor(&self, profile: &str, more: &[&str]) -> CommandOutput {
        let more = [&["--check-timeout", "20"][..], more].concat();
        end(self.command(profile, &more).spawn().unwrap())
    }

    fn command(&self, profile: &str, more: &[&str]) -> Command {
        let [tree, root, out] = ["tree", "root", "out"].map(|name| self.word(name));
        let args = ["tailor", profile, "--source", &tree, "--root", &root];
        let args = [&args[..], &["--out", &out], more, &["--", "/bin/app"]].concat();
        self.tare(&args)
    }

    /// A kernel of Debian's in the cache, with this configuration.
    fn debian(&self, config: &str, image: &[u8]) {
        let release = "6.1.0-99999-cloud-amd64";
        let kernels = self.path("cache/kernels/debian").join(release);
        fs::create_dir_all(kernels.join("lib/modules").join(release)).unwrap();
        fs::create_dir(kernels.join("boot")).unwrap();
        let boot = |name: &str| kernels.join(format!("boot/{name}-{release}"));
        fs::write(boot("config"), config).unwrap();
        fs::write(boot("vmlinuz"), image).unwrap();
    }

    fn report(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("out/report.json")).unwrap()).unwrap()
    }
}

/// A recipe for a kernel that works with an option, and one that ends with this
/// line without it; both are files of the sources.
fn works_with(bench: &Bench, option: &str, lacking: &str) -> String {
    let works = image(&format!("{STATUS_LINE}0"), Then::Exit(0x10));
    let works = bench.place.file("tree/works", &works);
    let ends = image(lacking, Then::Exit(0x11));
    let ends = bench.place.file("tree/ends", &ends);
    format!("cp $$(grep -q {option}=y $(O)/.config && echo {works} || echo {ends}) $(OUT)")
        .replace("echo", "printf %s")
}

fn ready() -> bool {
    let why = if !installed("qemu-system-x86_64") {
        "qemu-system-x86_64 is not installed"
    } else if find_init().is_err() {
        "tare-init is not built (cargo xtask init)"
    } else {
        return true;
    };
    tare_vmtest::lacks(why);
    false
}

#[test]
fn what_a_guest_says_it_lacks_is_added_and_the_kernel_made_again_bit_for_bit() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(
        &bench,
        "EPOLL",
        "app: epoll_wait: Function not implemented",
    ));
    let profile = bench.profile(&["read", "raed"], &[]);
    bench
        .tailor(&profile, &[])
        .expect(0, "Added EPOLL: the guest said: app: epoll_wait");
    let report = bench.report();
    assert_eq!(report["kernels"], 2);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("no calls of these names, which the profile has: raed"),
        "{notes}"
    );
    let [lock, tree, again] = ["out/kernel.lock", "tree", "again"].map(|name| bench.word(name));
    let args = [
        "tailor", "--lock", &lock, "--source", &tree, "--out", &again,
    ];
    end(bench.tare(&args).spawn().unwrap()).expect(0, "Equal bit for bit");
    // A kernel grows again in its directory.
    bench
        .tailor(&profile, &["--add", "EPOLL", "--add", "PACKET"])
        .expect(0, "Proven by");
    assert_eq!(bench.report()["kernels"], 1);
}

#[test]
fn names_of_a_profile_do_not_steer_the_terminal() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(&bench, "NOTHING", &format!("{STATUS_LINE}0")));
    let profile = bench.profile(&["read", "ra\x1b]0;title\x07ed"], &[]);
    let ended = bench.tailor(&profile, &[]);
    ended.expect(0, "no calls of these names");
    let kept = fs::read_to_string(bench.path("out/report.txt")).unwrap();
    for text in [ended.out, ended.err, kept] {
        let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text.contains(steers), "{text:?}");
    }
}

#[test]
fn what_a_guest_does_not_say_is_found_by_bisection() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(&bench, "CONFIG_PSI", "app: it does not work"));
    let looked_at = [
        "/proc/pressure/cpu",
        "/proc/config.gz",
        "/proc/self/io",
        "/proc/self/cgroup",
    ];
    let ended = bench.tailor(&bench.profile(&["read"], &looked_at), &[]);
    ended.expect(0, "Added PSI: the proof fails without it");
    assert_eq!(bench.report()["added"].as_array().unwrap().len(), 1);
}

#[test]
fn what_only_the_tailored_kernel_refuses_is_added() {
    if !ready() {
        return;
    }
    let refusals = |paths: &[&str]| {
        let of = |path: &&str| Refusal {
            call: 257,
            error: 2,
            selectors: Vec::new(),
            text: Some((*path).to_owned()),
        };
        let lines: Vec<String> = paths.iter().map(|path| of(path).line()).collect();
        lines.join("\n")
    };
    let bench = Bench::new("");
    let lacking = refusals(&["/etc/ld.so.preload", "/proc/pressure/cpu", "/dev/mystery"]);
    bench.makes(&works_with(&bench, "CONFIG_PSI", &lacking));
    let granted = refusals(&["/etc/ld.so.preload"]) + &format!("\n{STATUS_LINE}0");
    bench.debian("CONFIG_PSI=y\n", &image(&granted, Then::Exit(0x10)));
    let profile = bench.profile(&["read"], &["/proc/self/io", "/proc/self/cgroup"]);
    let ended = bench.tailor(&profile, &[]);
    ended.expect(0, "Added PSI: only this kernel refuses /proc/pressure/cpu");
    let report = bench.report();
    assert_eq!(report["added"].as_array().unwrap().len(), 1);
    // Without it, with it to see what is refused then, tried, and to be reported; the
    // last two compile nothing.
    assert_eq!(report["kernels"], 4);

    bench.makes(&works_with(&bench, "NOTHING", &lacking));
    let ended = bench.tailor(&profile, &[]);
    ended.expect(78, "only this kernel refuses openat /dev/mystery (ENOENT)");
}

#[test]
fn a_check_that_never_passes_ends_in_time_and_names_the_console() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(&bench, "NOTHING", "app: it does not work"));
    let ended = bench.tailor(&bench.profile(&["read"], &[]), &[]);
    ended.expect(78, "Not proven by");
    let console = bench.word("out/logs/proof-1.log");
    ended.expect(78, &format!("Console: {console}"));
    assert!(
        fs::read_to_string(console)
            .unwrap()
            .contains("it does not work")
    );
}

/// `tare tailor` while it proves a kernel that prints a line and halts, and its QEMU.
struct Proving {
    tare: Child,
    qemu: u32,
}

impl Proving {
    fn start(bench: &Bench) -> Self {
        Self::start_as(bench, |mut tare| tare.spawn().unwrap())
    }

    fn start_as(bench: &Bench, start: impl FnOnce(Command) -> Child) -> Self {
        let halts = bench.place.file("tree/halts", &image("up", Then::Halt));
        bench.makes(&format!("cp {halts} $(OUT)"));
        let profile = bench.profile(&["read"], &[]);
        let args = ["--check-timeout", "600", "--check", "http:80/"];
        let mut proving = Self {
            tare: start(bench.command(&profile, &args)),
            qemu: 0,
        };
        let console = bench.path("out/logs/proof-1.log");
        eventually("the guest has spoken", || {
            fs::read_to_string(&console).is_ok_and(|console| console.contains("up"))
        });
        let qemus = children(proving.tare.id(), "qemu");
        assert_eq!(qemus.len(), 1, "{qemus:?}");
        proving.qemu = qemus[0];
        proving
    }

    /// What carries connections to QEMU.
    fn carrier(&self) -> u32 {
        let carriers = children(self.tare.id(), "tare");
        assert_eq!(carriers.len(), 1, "{carriers:?}");
        carriers[0]
    }
}

impl Drop for Proving {
    fn drop(&mut self) {
        let _ = self.tare.kill();
        let _ = self.tare.wait();
    }
}

#[test]
fn a_proofs_qemu_is_in_the_jail_of_a_machine() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    let proving = Proving::start(&bench);
    let qemu = proving.qemu;
    assert_eq!(status(qemu, "Seccomp:"), ["2"]);
    assert_eq!(status(qemu, "NoNewPrivs:"), ["1"]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(status(qemu, set), ["0000000000000000"], "{set}");
    }
    let carrier = proving.carrier();
    eventually("what carries has given up its capabilities", || {
        status(carrier, "CapPrm:") == ["0000000000000000"]
    });
    if !rustix::process::geteuid().is_root() || !may_make_namespaces() {
        return;
    }
    for name in ["pid", "mnt", "net", "ipc", "uts"] {
        assert!(has_own(qemu, name), "{name}");
    }
    assert!(has_own(carrier, "net"));
    assert_eq!(root(qemu), [""; 0]);
    assert!(status(qemu, "Groups:").is_empty());
    let (users, others) = (status(qemu, "Uid:"), status(carrier, "Uid:"));
    assert!(users.iter().all(|id| *id == users[0]), "{users:?}");
    assert!(users[0].parse::<u32>().unwrap() >= 1_900_000_000);
    assert!(
        others.iter().all(|id| id != "0" && *id != users[0]),
        "{others:?}"
    );
}

/// By way of a user namespace, in which what carries and QEMU are one user.
#[test]
fn an_ordinary_users_proof_is_in_the_jail_of_a_machine() {
    if !ready() || !users_make_namespaces() {
        return;
    }
    let bench = Bench::new("");
    let start = |tare| as_user(bench.place.path(), &tare).spawn().unwrap();
    let proving = Proving::start_as(&bench, start);
    let (qemu, carrier) = (proving.qemu, proving.carrier());
    eventually("what carries has given up its capabilities", || {
        has_own(carrier, "net") && status(carrier, "CapPrm:") == ["0000000000000000"]
    });
    for name in ["user", "pid", "mnt", "net", "ipc", "uts"] {
        assert!(has_own(qemu, name), "{name}");
    }
    assert_eq!(root(qemu), [""; 0]);
    for pid in [qemu, carrier] {
        let users = status(pid, "Uid:");
        assert!(users.iter().all(|id| *id == USER.to_string()), "{users:?}");
        assert_eq!(status(pid, "CapEff:"), ["0000000000000000"]);
    }
    // What only root traces has files of root's (`proc_pid(5)`): its root is the host's.
    let owner = |pid: u32| fs::metadata(format!("/proc/{pid}/status")).unwrap().uid();
    assert_eq!((owner(qemu), owner(carrier)), (USER, 0));
}

/// Tailors a kernel that prints the figures of a start and halts: QEMU takes connections for it.
fn reached(bench: &Bench) -> Command {
    let figures = Figures::default().to_string();
    let halts = bench.place.file("tree/halts", &image(&figures, Then::Halt));
    bench.makes(&format!("cp {halts} $(OUT)"));
    let profile = bench.profile(&["read"], &[]);
    bench.command(&profile, &["--check-timeout", "20", "--check", "tcp:80"])
}

#[test]
fn an_ordinary_users_port_leads_into_the_namespace_of_its_qemu() {
    if !ready() || !users_make_namespaces() {
        return;
    }
    let bench = Bench::new("");
    let tare = reached(&bench);
    let ended = end(as_user(bench.place.path(), &tare).spawn().unwrap());
    ended.expect(0, "Proven by");
    assert!(!ended.err.contains("namespaces"), "{}", ended.err);
}

/// As root in a container: the jail's user makes the namespaces, in a user namespace.
#[test]
fn a_root_that_may_use_no_namespaces_proves_kernels_in_those_of_a_user() {
    if !ready() || !users_make_namespaces() {
        return;
    }
    for bounding_set in [
        "-sys_admin,-sys_ptrace,-net_admin",
        "-sys_admin",
        "-sys_ptrace",
        "-net_admin",
    ] {
        let bench = Bench::new("");
        let start = |tare| without(bounding_set, &tare).spawn().unwrap();
        let proving = Proving::start_as(&bench, start);
        let (qemu, carrier) = (proving.qemu, proving.carrier());
        eventually("what carries is in QEMU's namespace", || {
            has_own(carrier, "net") && status(carrier, "CapPrm:") == ["0000000000000000"]
        });
        for name in ["user", "pid", "mnt", "net", "ipc", "uts"] {
            assert!(has_own(qemu, name), "{bounding_set}: {name}");
        }
        assert_eq!(root(qemu), [""; 0], "{bounding_set}");
        let users = [qemu, carrier].map(|pid| status(pid, "Uid:")[0].clone());
        assert!(users[0].parse::<u32>().unwrap() >= 1_900_000_000);
        assert_eq!(users[0], users[1], "{bounding_set}");
        assert!(status(qemu, "Groups:").is_empty());
    }
}

#[test]
fn a_host_that_grants_no_namespaces_proves_kernels_and_says_so() {
    if !ready() || !can_refuse_namespaces() {
        return;
    }
    let bench = Bench::new("");
    let tare = reached(&bench);
    let ended = end(without_namespaces(&tare).spawn().unwrap());
    ended.expect(0, "Proven by");
    ended.expect(0, "this host grants QEMU no namespaces");
}

#[test]
fn a_proofs_qemu_ends_with_a_tare_that_is_killed() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    let mut proving = Proving::start(&bench);
    let carrier = proving.carrier();
    proving.tare.kill().unwrap();
    proving.tare.wait().unwrap();
    is_gone(proving.qemu);
    is_gone(carrier);
}

#[test]
fn bisection_passes_over_what_is_not_granted() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(
        &bench,
        "CONFIG_IKCONFIG_PROC",
        "app: it does not work",
    ));
    // NUMA is not granted at all, IKCONFIG_PROC not without IKCONFIG.
    let looked_at = [
        "/proc/config.gz",
        "/proc/pressure/cpu",
        "/sys/devices/system/node/online",
    ];
    let ended = bench.tailor(&bench.profile(&["read"], &looked_at), &[]);
    ended.expect(0, "Added IKCONFIG: the proof fails without it");
    ended.expect(0, "Added IKCONFIG_PROC: the proof fails without it");
    assert_eq!(bench.report()["added"].as_array().unwrap().len(), 2);
}

#[test]
fn a_search_that_finds_nothing_leaves_the_kernel_that_is_reported() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(&bench, "NOTHING", "app: it does not work"));
    let ended = bench.tailor(&bench.profile(&["read"], &["/proc/pressure/cpu"]), &[]);
    ended.expect(78, "Not proven by");
    let lock = fs::read_to_string(bench.path("out/kernel.lock")).unwrap();
    assert!(!lock.contains("CONFIG_PSI=y"), "{lock}");
    let config = fs::read_to_string(bench.path("out/build/.config")).unwrap();
    assert!(!config.contains("CONFIG_PSI=y"));
}

#[test]
fn nothing_is_built_where_debians_kernel_fails_too() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(&bench, "CONFIG_PSI", "app: it does not work"));
    let fails = image("app: it does not work here", Then::Exit(0x11));
    bench.debian("CONFIG_PSI=y\n", &fails);
    let ended = bench.tailor(&bench.profile(&["read"], &["/proc/pressure/cpu"]), &[]);
    ended.expect(78, "does not work on Debian's kernel either");
    ended.expect(78, "--cmdline gives boot parameters");
    assert!(!bench.path("out/kernel.lock").exists());
    let console = fs::read_to_string(bench.path("out/logs/proof-debian.log")).unwrap();
    assert!(console.contains("does not work here"), "{console}");
}

#[test]
fn a_cut_without_its_compiler_ends_before_any_guest() {
    if !ready() {
        return;
    }
    // None of the host's programs but those of a build by gcc are on its PATH.
    let bench = Bench::new("");
    let profile = bench.profile(&["read"], &[]);
    let ended = bench.tailor(&profile, &["--cut", "thin-lto"]);
    ended.expect(46, "the cut thin-lto needs clang, lld and llvm");
    assert!(!ended.err.contains("checking"), "{}", ended.err);
    assert!(!bench.path("out").exists());
}

#[test]
fn a_full_disk_is_named_and_the_same_command_goes_on() {
    if !ready() {
        return;
    }
    let bench = Bench::new("echo 'ld: vmlinux: No space left on device' >&2; exit 1");
    let profile = bench.profile(&["epoll_wait"], &[]);
    let ended = bench.tailor(&profile, &[]);
    ended.expect(76, "run the same command again, it goes on from there");
    bench.makes(&works_with(&bench, "EPOLL", ""));
    bench.tailor(&profile, &[]).expect(0, "Proven by");
}

#[test]
fn sources_options_and_patches_that_do_not_fit_are_named() {
    let bench = Bench::new("true");
    let profile = bench.profile(&["read"], &[]);
    let unknown = bench.tailor(&profile, &["--add", "UNKNOWN_OPTION"]);
    unknown.expect(
        45,
        "UNKNOWN_OPTION (for added by the user; these sources have no such option",
    );
    let patch = bench.tailor(&profile, &["--trusting"]);
    patch.expect(44, "the patch read-only-noexec does not apply");
    patch.expect(44, "Leave it out by --keep read-only-noexec");
    fs::write(
        bench.path("tree/Makefile"),
        "VERSION = 5\nPATCHLEVEL = 10\nSUBLEVEL = 3\n",
    )
    .unwrap();
    bench
        .tailor(&profile, &[])
        .expect(44, "is Linux 5.10.3; Tare tailors Linux 6.1");
}

/// A kernel is made again as the lock says, and nothing else is done.
#[test]
fn a_lock_that_is_missing_or_has_other_words_beside_it_is_refused() {
    let place = TestDir::new();
    let with = |more: &[&str]| {
        let args = [&["tailor", "--lock", "/no/such/kernel.lock"], more].concat();
        place.run(&args)
    };
    with(&[]).expect(44, "cannot read the lock file /no/such/kernel.lock");
    for more in [
        &["--json"][..],
        &["--check", "tcp:80"],
        &["--root", "x"],
        &["--with", "volumes"],
        &["--", "true"],
    ] {
        with(more).expect(2, "cannot be used with");
    }
}

#[test]
fn a_search_without_a_load_is_refused_before_a_build() {
    let bench = Bench::new("echo > $(OUT)");
    let profile = bench.profile(&["read"], &[]);
    let refused = |more: &[&str], why: &str| {
        bench.tailor(&profile, more).expect(2, why);
        assert!(!bench.path("out").exists());
    };
    refused(&["--search", "5"], "give --load http:PORT/PATH");
    let tcp = ["--search", "5", "--check", "tcp:7"];
    refused(&tcp, "give --load http:PORT/PATH");
    let load = ["--search", "5", "--load", "tcp:7"];
    refused(&load, "invalid load `tcp:7`");
    refused(&["--search", "0", "--load", "http:80/"], "--search");
    refused(&["--load", "http:80/"], "--search");
    refused(&["--kernel", "debian"], "--search");
}
