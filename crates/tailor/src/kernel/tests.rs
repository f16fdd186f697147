//! Kernels of a tree whose Makefile is the test's.

use std::cell::Cell;
use std::sync::Arc;

use tare_profile::Profile;

use super::*;
use crate::counts::of_one_object;
use crate::spec::Counted;
use crate::target::{Part, Target};

/// Makes a configuration of what was requested, and an "image" of it.
const MAKEFILE: &str = "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\n\
    allnoconfig:\n\t@cp $(KCONFIG_ALLCONFIG) $(O)/.config\n\
    bzImage:\n\t@echo '  CC      a.o'\n\t@mkdir -p $(O)/arch/x86/boot\n\
    \t@cat $(O)/.config > $(O)/arch/x86/boot/bzImage; echo '$(KCFLAGS)' >> $(O)/arch/x86/boot/bzImage\n\
    \t@touch $(O)/vmlinux\n";

struct Fixture {
    dir: tempfile::TempDir,
    builder: KernelBuilder,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("scripts/kconfig")).unwrap();
    fs::write(tree.join("Kconfig"), "").unwrap();
    fs::write(tree.join("Makefile"), MAKEFILE).unwrap();
    let builder = KernelBuilder {
        cache: Cache::at(dir.path().join("cache")),
        source: Source::Directory(tree),
        jobs: NonZeroUsize::MIN,
        patching: Patching::Cached,
        starter: Starter::Test,
    };
    Fixture { dir, builder }
}

#[test]
fn a_kernel_is_made_again_from_its_lock() {
    let Fixture { dir, builder } = fixture();
    let mut spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    spec.cuts.insert(Cut::O3);
    let net = Symbol::new("NET").unwrap();
    let why = "the proof fails without it".to_owned();
    spec.add.insert(net, why);
    let first = dir.path().join("first");
    let kernel = builder.make(&spec, &first, &|| true, |_| {}).unwrap();
    assert_eq!(kernel.files_made, 1);
    assert_eq!(kernel.lock.flags, ["-O3"]);
    let lock = Lock::read(&first.join(LOCK)).unwrap();
    assert_eq!(lock, kernel.lock);
    assert_eq!(lock.added, spec.add);
    let again = builder.make_again(&lock, None, &dir.path().join("again"), &|| true, |_| {});
    // With why each option is there.
    assert_eq!(again.unwrap().lock, lock);
}

#[test]
fn a_kernel_by_counts_is_made_again_with_them_only() {
    let Fixture { dir, builder } = fixture();
    let mut spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    spec.cuts.insert(Cut::Pgo);
    let plain = dir.path().join("plain");
    let instrumented = builder.make(&spec.instrumented(), &plain, &|| true, |_| {});
    let instrumented = instrumented.unwrap();
    let lock = instrumented.lock;
    assert!(lock.config.contains(&"CONFIG_GCOV_KERNEL=y".to_owned()));
    assert_eq!((lock.counts, lock.flags.len()), (None, 0));

    let counts = of_one_object([1, 2, 3]);
    spec.counted = Some(Counted {
        counts: Arc::new(counts.clone()),
        sources: "/elsewhere".into(),
    });
    let moved = builder.make(&spec, &plain, &|| true, |_| {}).unwrap_err();
    assert!(moved.to_string().contains("of sources in /elsewhere"));
    spec.counted = Some(Counted {
        counts: Arc::new(counts.clone()),
        sources: instrumented.sources,
    });
    let first = dir.path().join("first");
    let kernel = builder.make(&spec, &first, &|| true, |_| {}).unwrap();
    let lock = kernel.lock;
    assert_eq!(lock.flags, counts::FLAGS);
    assert!(!lock.config.iter().any(|line| line.contains("GCOV")));
    let image = fs::read_to_string(&kernel.image.bz_image).unwrap();
    assert!(image.contains("-fprofile-use=counts-"), "{image}");
    assert_eq!(ExecutionCounts::read(&first.join(COUNTS)).unwrap(), counts);

    let again = |lock: &Lock, counts: Option<&ExecutionCounts>| {
        let out = dir.path().join("again");
        let made = builder.make_again(lock, counts, &out, &|| true, |_| {});
        made.map(|kernel| kernel.lock)
    };
    let made = again(&lock, Some(&counts)).unwrap();
    assert_eq!(made.counts, lock.counts);
    assert!(matches!(again(&lock, None), Err(MakeError::NoCounts)));
    let others = of_one_object([1, 2, 4]);
    let other = again(&lock, Some(&others));
    assert!(matches!(other, Err(MakeError::OtherCounts { .. })));
    let mut moved = lock;
    moved.counts.as_mut().unwrap().sources = "/elsewhere".to_owned();
    let moved = again(&moved, Some(&counts)).unwrap_err();
    assert!(moved.to_string().contains("of sources in /elsewhere"));
}

#[test]
fn a_lock_of_other_sources_is_refused() {
    let Fixture { dir, builder } = fixture();
    let spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    let kernel = builder.make(&spec, dir.path(), &|| true, |_| {}).unwrap();
    fs::write(dir.path().join("tree/more.c"), "").unwrap();
    let error = builder.make_again(&kernel.lock, None, dir.path(), &|| true, |_| {});
    assert!(matches!(error, Err(MakeError::OtherSources { .. })));
}

#[test]
fn a_lock_of_someone_elses_is_no_command() {
    let Fixture { dir, builder } = fixture();
    let mut spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    spec.cuts.insert(Cut::O3);
    let lock = builder
        .make(&spec, dir.path(), &|| true, |_| {})
        .unwrap()
        .lock;
    let out = dir.path().join("again");
    let again = |lock: &Lock| {
        builder
            .make_again(lock, None, &out, &|| true, |_| {})
            .unwrap_err()
    };
    let mut flags = lock.clone();
    flags.flags.push("-fplugin=/tmp/plugin.so".to_owned());
    assert!(matches!(again(&flags), MakeError::OtherFlags));
    let mut config = lock;
    let value = "CONFIG_LOCALVERSION=\"$(shell touch made)\"".to_owned();
    config.config.push(value);
    let refused = again(&config);
    assert!(matches!(refused, MakeError::LockConfig(_)), "{refused}");
    assert!(!out.exists());
}

#[test]
fn a_given_configuration_is_completed_by_the_kernels_defaults() {
    let Fixture { dir, builder } = fixture();
    let makefile = format!("{MAKEFILE}olddefconfig:\n\t@echo CONFIG_NEW=y >> $(O)/.config\n");
    fs::write(dir.path().join("tree/Makefile"), makefile).unwrap();
    let given = GivenConfig::read(b"CONFIG_NET=y\n# CONFIG_SMP is not set\n").unwrap();
    let kernel = builder
        .make_given(&given, &dir.path().join("out"), &|| true, |_| {})
        .unwrap();
    assert_eq!(kernel.lock.config, ["CONFIG_NET=y", "CONFIG_NEW=y"]);
    assert_eq!(kernel.lock.cuts, BTreeSet::new());
    let solved = fs::read_to_string(dir.path().join("out/build/.config")).unwrap();
    assert!(solved.contains("# CONFIG_SMP is not set"), "{solved}");
}

#[test]
fn a_program_that_the_scripts_do_not_find_is_named() {
    let Fixture { dir, builder } = fixture();
    let makefile = MAKEFILE.replace("@cp", "@no-such-compiler");
    fs::write(dir.path().join("tree/Makefile"), makefile).unwrap();
    let spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    let error = builder
        .make(&spec, &dir.path().join("out"), &|| true, |_| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("no-such-compiler"), "{error}");
    assert!(!error.contains("***"), "{error}");
}

#[test]
fn what_is_not_granted_leaves_no_new_directory_and_an_old_one_alone() {
    let Fixture { dir, builder } = fixture();
    let makefile = MAKEFILE
        .replace("@cp", "@grep -v UNKNOWN")
        .replace(" $(O)/.config\nbzImage", " > $(O)/.config\nbzImage");
    fs::write(dir.path().join("tree/Makefile"), makefile).unwrap();
    let mut spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    let good = spec.clone();
    let unknown = Symbol::new("UNKNOWN").unwrap();
    spec.add.insert(unknown, "the test".to_owned());
    let out = dir.path().join("out");
    let error = builder.make(&spec, &out, &|| true, |_| {}).unwrap_err();
    assert!(error.to_string().contains("UNKNOWN"), "{error}");
    assert!(!out.exists());
    builder.make(&good, &out, &|| true, |_| {}).unwrap();
    assert!(builder.make(&spec, &out, &|| true, |_| {}).is_err());
    assert!(out.join(LOCK).exists());
}

#[test]
fn a_configuration_is_made_in_a_directory_named_from_here() {
    let Fixture { dir, builder } = fixture();
    let spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    let up: PathBuf = std::env::current_dir()
        .unwrap()
        .components()
        .skip(1)
        .map(|_| "..")
        .collect();
    let here = up.join(dir.path().strip_prefix("/").unwrap()).join("out");
    let config = builder.configure(&spec, &here, &|| true).unwrap();
    assert!(config.on().next().is_some());
    assert!(dir.path().join("out/.config").exists());
}

#[test]
fn two_kernels_are_not_made_in_one_directory_at_once() {
    let Fixture { dir, builder } = fixture();
    let spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    let _held = hold(dir.path()).unwrap();
    let error = builder
        .make(&spec, dir.path(), &|| true, |_| {})
        .unwrap_err();
    assert!(matches!(error, MakeError::Busy(_)), "{error}");
}

#[test]
fn sockets_bring_a_network_card() {
    let mut profile = Profile::empty();
    profile.features.sockets.push(tare_profile::SocketUse {
        family: "AF_INET".to_owned(),
        kind: "SOCK_STREAM".to_owned(),
        protocol: 0,
        count: 1,
    });
    let parts = |profile| KernelSpec::new(profile, Target::Qemu).parts;
    assert_eq!(parts(profile), BTreeSet::from([Part::Network]));
    assert!(parts(Profile::empty()).is_empty());
}

/// As scripts do that ask a program of the sources, which sleeps.
#[test]
fn scripts_of_a_configuration_end_when_they_shall() {
    let Fixture { dir, builder } = fixture();
    let makefile = MAKEFILE.replace("@cp $(KCONFIG_ALLCONFIG) $(O)/.config", "@exec sleep 4000");
    fs::write(dir.path().join("tree/Makefile"), makefile).unwrap();
    let spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    let out = dir.path().join("out");
    // The first question comes before the scripts start: it goes on.
    let asked = Cell::new(0);
    let goes_on = || {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let made = builder.make(&spec, &out, &goes_on, |_| {});
    let configured = builder.configure(&spec, &out, &|| false);
    for error in [made.unwrap_err(), configured.unwrap_err()] {
        let is_interrupted = matches!(error, MakeError::Kconfig(KconfigError::Interrupted));
        assert!(is_interrupted, "{error}");
    }
}
