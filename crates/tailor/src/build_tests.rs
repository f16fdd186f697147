//! Builds of a tree whose Makefile is the test's.

use std::cell::Cell;
use std::num::NonZeroUsize;

use super::*;

/// A tree whose `bzImage` is made by this recipe.
fn tree(recipe: &str) -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("scripts/kconfig")).unwrap();
    fs::write(dir.path().join("Kconfig"), "").unwrap();
    let makefile = format!("VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\n\nbzImage:\n\t@{recipe}\n");
    fs::write(dir.path().join("Makefile"), makefile).unwrap();
    let tree = Tree::open(dir.path()).unwrap();
    (dir, tree)
}

fn built(recipe: &str, progress: impl FnMut(&str)) -> Result<Image, BuildError> {
    built_while(&|| true, recipe, progress)
}

fn built_while(
    goes_on: &dyn Fn() -> bool,
    recipe: &str,
    progress: impl FnMut(&str),
) -> Result<Image, BuildError> {
    let (_dir, tree) = tree(recipe);
    let out = tempfile::tempdir().unwrap();
    let jobs = NonZeroUsize::MIN;
    build(
        &Starter::Test,
        (&Toolchain::Gnu, &[]),
        &tree,
        out.path(),
        jobs,
        goes_on,
        progress,
    )
}

#[test]
fn each_file_that_is_made_is_reported() {
    let mut files = Vec::new();
    let recipe = "echo '  CC      fs/open.o'; echo '  LD      vmlinux'; echo 'Kernel: ready'; \
                  mkdir -p $(O)/arch/x86/boot; touch $(O)/arch/x86/boot/bzImage $(O)/vmlinux";
    let image = built(recipe, |file| {
        files.push(file.to_owned());
    });
    assert!(image.unwrap().bz_image.ends_with("arch/x86/boot/bzImage"));
    assert_eq!(files, ["fs/open.o", "vmlinux"]);
}

#[test]
fn a_link_is_no_image_of_a_build() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    let link = format!("ln -s {} $(O)/vmlinux", secret.path().display());
    let recipe = format!("mkdir -p $(O)/arch/x86/boot; touch $(O)/arch/x86/boot/bzImage; {link}");
    let error = built(&recipe, |_| {}).unwrap_err();
    assert!(error.to_string().ends_with("vmlinux"), "{error}");
}

#[test]
fn the_log_is_not_written_where_a_link_in_its_place_leads() {
    let (_dir, tree) =
        tree("rm $(O)/build.log; ln -s $(O)/../kept $(O)/build.log; echo said; exit 1");
    let place = tempfile::tempdir().unwrap();
    let kept = place.path().join("kept");
    fs::write(&kept, "kept").unwrap();
    let out = place.path().join("out");
    fs::create_dir(&out).unwrap();
    for _ in 0..2 {
        let jobs = NonZeroUsize::MIN;
        let compiler = (&Toolchain::Gnu, &[][..]);
        build(
            &Starter::Test,
            compiler,
            &tree,
            &out,
            jobs,
            &|| true,
            |_| {},
        )
        .unwrap_err();
        assert_eq!(fs::read(&kept).unwrap(), b"kept");
    }
}

#[test]
fn the_first_error_is_said_and_the_log_is_named() {
    let recipe = "echo 'fs/a.c:1: error: no such thing' >&2; exit 1";
    let error = built(recipe, |_| {}).unwrap_err().to_string();
    assert!(error.contains("fs/a.c:1: error: no such thing"), "{error}");
    assert!(error.contains(LOG), "{error}");
}

#[test]
fn a_full_disk_differs_from_other_failures() {
    // The log, on the same disk, has nothing of it, and the line is not text.
    let recipe = "rm $(O)/build.log; printf 'ld: \\377: No space left on device\\n' >&2; exit 1";
    assert!(matches!(
        built(recipe, |_| {}),
        Err(BuildError::Full { .. })
    ));
}

#[test]
fn a_build_ends_when_it_shall_and_leaves_no_compiler() {
    let recipe = "echo '  CC      a.o'; exec sleep 77.3";
    let is_made = Cell::new(false);
    let error = built_while(&|| !is_made.get(), recipe, |_| is_made.set(true)).unwrap_err();
    assert!(matches!(error, BuildError::Interrupted));
    let sleeping = |entry: fs::DirEntry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|words| words == b"sleep\x0077.3\x00")
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    assert_eq!(
        processes
            .filter(|_| true)
            .filter_map(|e| sleeping(e).then_some(()))
            .count(),
        0
    );
}

#[test]
fn a_build_that_prints_nothing_ends_when_it_shall() {
    // Asked before it prints and while it sleeps: it says nothing by which it would be asked.
    let asked = Cell::new(0);
    let goes_on = || {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let error = built_while(&goes_on, "exec sleep 4000", |_| {}).unwrap_err();
    assert!(matches!(error, BuildError::Interrupted));
}

#[test]
fn what_is_kept_is_counted_and_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("fs")).unwrap();
    fs::write(dir.path().join("fs/a.o"), vec![7; 100_000]).unwrap();
    std::os::unix::fs::symlink("/usr", dir.path().join("source")).unwrap();
    let bytes = kept_bytes(dir.path());
    assert!((100_000..200_000).contains(&bytes), "{bytes}");
    assert_eq!(kept_bytes(&dir.path().join("none")), 0);
}

#[test]
fn what_an_option_compiles_again_is_in_the_build_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("fs")).unwrap();
    for number in 0..4 {
        let only = match number {
            0 => "    $(wildcard include/config/PSI) \\\n",
            _ => "",
        };
        let list = format!(
            "deps_fs/a.o := \\\n    $(wildcard include/config/SMP) \\\n\
             {only}    $(wildcard include/config/SMP) \\\n  /usr/src/a.h \\\n"
        );
        fs::write(dir.path().join(format!("fs/.{number}.o.cmd")), list).unwrap();
    }
    let reach = Reach::of(dir.path());
    let all = ["SMP", "PSI", "P", "NEW"].map(|option| reach.objects(option));
    assert_eq!(all, [4, 1, 0, 0]);
    assert!(!reach.is_near("SMP") && reach.is_near("PSI") && reach.is_near("NEW"));
    assert!(Reach::of(&dir.path().join("none")).is_near("SMP"));
}

#[test]
fn a_build_that_took_too_much_says_of_what() {
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;
    use std::time::Duration;

    use tare_launch::building::{TOO_FULL, TOO_LARGE, TOO_LONG, TOO_MUCH_MEMORY};

    let bounds = crate::starter::Bounds {
        time: Duration::from_secs(90),
        memory: 3 << 30,
        ..crate::starter::bounds()
    };
    let starter = Starter::Tare(PathBuf::from("tare"), bounds);
    let said = |code: i32| {
        let excess = starter.excess(ExitStatus::from_raw(code << 8));
        excess.map(|excess| excess.to_string()).unwrap_or_default()
    };
    assert_eq!(said(TOO_LONG), "it took longer than 2 min");
    let memory = "its processes took more than 3072 MiB of memory together";
    assert_eq!(said(TOO_MUCH_MEMORY), memory);
    assert_eq!(said(TOO_LARGE), "what it made takes more than 8192 MiB");
    let free = "it left less than 64 MiB of the file system free";
    assert_eq!(said(TOO_FULL), free);
    for code in [0, 1, 2, 126, 127, 137] {
        assert_eq!(starter.excess(ExitStatus::from_raw(code << 8)), None);
    }
    for (recipe, says) in [
        (
            "ulimit -f 1; head -c 100000 /dev/zero > $(O)/x",
            "would be larger than 4096 MiB",
        ),
        ("bash -c 'kill -XCPU $$$$'", "more than 60 min of CPU time"),
    ] {
        let error = built(recipe, |_| {}).unwrap_err();
        assert!(matches!(error, BuildError::Excess { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_log_has_a_largest_size_and_says_so() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    let mut log = fs::File::create(&path).unwrap();
    let mut room = Some(10);
    for line in ["abcd", "efgh", "ij", "k"] {
        keep(&mut log, &mut room, line).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert!(kept.starts_with("abcd\nefgh\n("), "{kept}");
    assert_eq!(kept.lines().count(), 3, "{kept}");
}
