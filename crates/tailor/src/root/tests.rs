//! What of a root, or of this computer, an application gets.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use tare_profile::{FileUse, Observer, Phase, Taken, Task as Seen, Way};
use tare_rootfs::oci;

use super::*;

fn profile(program: &str, dirs: &[&str]) -> Profile {
    let mut profile = Profile::empty();
    profile.tasks.push(Seen {
        pid: 1,
        tid: 1,
        name: "x".to_owned(),
        program: program.to_owned(),
        calls: 1,
    });
    for dir in dirs {
        profile.features.files.push(FileUse {
            file_system: "ext4".to_owned(),
            path: (*dir).to_owned(),
            count: 1,
        });
    }
    profile
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A file below `dir` that holds its own name.
fn write(dir: &Path, name: &str, mode: u32) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, name).unwrap();
    allow(&path, mode);
}

#[test]
fn only_what_the_profile_saw_stays_of_a_root() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "usr/bin/server",
        "usr/bin/perl",
        "srv/index.html",
        "usr/share/doc/a",
    ] {
        write(dir.path(), name, 0o644);
    }
    std::os::unix::fs::symlink("usr/bin", dir.path().join("bin")).unwrap();
    let from = RootFrom::Path(dir.path().to_owned());
    let command = ["/bin/server".to_owned()];
    let profile = profile("/bin/server", &["/srv"]);
    let names = |cuts: &BTreeSet<Cut>| {
        let root = gather(&from, &profile, &command, &Check::Runs, cuts).unwrap();
        let is_file = |name: &&str| matches!(root.tree.get(name).unwrap().kind, EntryKind::File(_));
        let names = root.tree.entries().map(|(name, _)| name).filter(is_file);
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&BTreeSet::new()).len(), 4);
    let cut = names(&BTreeSet::from([Cut::Packages]));
    assert_eq!(cut, ["srv/index.html", "usr/bin/server"]);
}

#[test]
fn the_checks_program_stays_of_a_root_or_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "usr/bin/server",
        "usr/bin/ask",
        "usr/bin/perl",
        "usr/local/bin/tell",
    ] {
        write(dir.path(), name, 0o644);
    }
    let (from, command) = (RootFrom::Path(dir.path().to_owned()), ["server".to_owned()]);
    let profile = profile("/usr/bin/server", &["/usr/bin"]);
    let cuts = BTreeSet::from([Cut::Packages]);
    let with = |check: &str| {
        let check = check.parse().unwrap();
        gather(&from, &profile, &command, &check, &cuts)
    };
    for check in ["ask -h", "/usr/bin/ask"] {
        let root = with(check).unwrap();
        let has = |name: &str| root.tree.get(name).is_some();
        assert!(has("usr/bin/ask") && !has("usr/bin/perl"));
    }
    // Where images of applications have theirs.
    assert!(
        with("tell")
            .unwrap()
            .tree
            .get("usr/local/bin/tell")
            .is_some()
    );
    let error = with("question").unwrap_err().to_string();
    assert!(error.contains("no program question"), "{error}");
}

#[test]
fn a_profile_of_this_computer_brings_its_programs_and_data() {
    let data = tempfile::tempdir().unwrap();
    allow(data.path(), 0o755);
    fs::write(data.path().join("page"), "x").unwrap();
    let place = data.path().to_str().unwrap();
    let profile = profile("/bin/sh", &[place, "/etc", "/var/log"]);
    let command = ["sh".to_owned()];
    let gathered = |check: &Check| {
        let none = BTreeSet::new();
        gather(&RootFrom::Profile, &profile, &command, check, &none)
    };
    let root = gathered(&"cat /etc/passwd".parse().unwrap()).unwrap();
    let has = |name: &str| root.tree.get(name.trim_start_matches('/')).is_some();
    assert!(has(&root.task.command[0]) && has("/etc/passwd"));
    assert!(has(&format!("{place}/page")) && has("/var/log"));
    assert!(!has("/etc/shadow"));
    let check = |name: &str| ["bin", "usr/bin"].map(|dir| has(&format!("{dir}/{name}")));
    assert!(check("cat").contains(&true));
    let none = gathered(&"no-such-program".parse().unwrap()).unwrap_err();
    assert!(none.to_string().contains("no-such-program"), "{none}");
}

#[test]
fn a_profile_does_not_bring_what_others_may_not_read() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), 0o755);
    write(dir.path(), "site/page", 0o644);
    write(dir.path(), "site/key", 0o600);
    write(dir.path(), "ssh/config", 0o644);
    allow(&dir.path().join("ssh"), 0o700);
    std::os::unix::fs::symlink("../ssh/config", dir.path().join("site/link")).unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let profile = profile("/bin/sh", &[&place("site"), &place("ssh")]);
    let command = ["sh".to_owned()];
    let none = BTreeSet::new();
    let root = gather(&RootFrom::Profile, &profile, &command, &Check::Runs, &none).unwrap();
    let has = |name: &str| root.tree.get(place(name).trim_start_matches('/')).is_some();
    assert!(has("site/page"));
    assert!(!has("site/key") && !has("ssh/config") && !has("site/link"));
    assert!(root.notes[0].contains("site (1)"), "{:?}", root.notes);
    assert!(root.notes[1].starts_with("3 files that the profile names are left out"));
}

#[test]
fn names_and_targets_of_any_bytes_stay_apart_in_a_root() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), 0o755);
    let at = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
    for name in [&b"caf\xe8"[..], b"caf\xe9"] {
        fs::write(at(name), "x").unwrap();
        allow(&at(name), 0o644);
    }
    std::os::unix::fs::symlink(OsStr::from_bytes(b"caf\xe9"), at(b"link")).unwrap();
    let mut profile = profile("/bin/sh", &[]);
    for (name, asked) in [
        (dir.path().to_owned(), Asked::List),
        (at(b"link"), Asked::Open),
    ] {
        let name = name.to_str().unwrap().to_owned();
        profile.paths.insert(name, [asked].into());
    }
    let (command, none) = (["sh".to_owned()], BTreeSet::new());
    let root = gather(&RootFrom::Profile, &profile, &command, &Check::Runs, &none).unwrap();
    let mut archive = Vec::new();
    tare_rootfs::cpio::archive(&root.tree, &mut archive).unwrap();
    let count = |bytes: &[u8]| {
        archive
            .windows(bytes.len())
            .filter(|it| *it == bytes)
            .count()
    };
    assert_eq!(count(b"/caf\xe8\0"), 1);
    assert_eq!(count(b"/caf\xe9\0"), 1);
    // The target is behind the link's name.
    assert_eq!(count(b"caf\xe9"), 2);
}

/// Names that only some users may see are not in the guest, whether they exist or not: a profile's author
/// would find out.
#[test]
fn a_profile_does_not_bring_names_that_others_may_not_see() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), 0o755);
    write(dir.path(), "open/file", 0o644);
    write(dir.path(), "home/keys/file", 0o644);
    std::os::unix::fs::symlink("../open/file", dir.path().join("home/link")).unwrap();
    for open in ["open", "home/keys"] {
        allow(&dir.path().join(open), 0o755);
    }
    allow(&dir.path().join("home"), 0o700);
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut profile = profile("/bin/sh", &[&place("home/keys")]);
    for (name, asked) in [
        ("home/keys", Asked::List),
        ("home/link", Asked::Open),
        ("home/made", Asked::Write),
        ("home/none", Asked::Open),
        ("open/file", Asked::Open),
    ] {
        profile.paths.insert(place(name), [asked].into());
    }
    let (command, none) = (["sh".to_owned()], BTreeSet::new());
    let root = gather(&RootFrom::Profile, &profile, &command, &Check::Runs, &none).unwrap();
    let below = place("").trim_start_matches('/').to_owned();
    let names = root.tree.entries().map(|(name, _)| name);
    let brought: Vec<&str> = names.filter_map(|name| name.strip_prefix(&below)).collect();
    assert!(brought.contains(&"open/file"), "{brought:?}");
    assert!(
        !brought.iter().any(|name| name.starts_with("home")),
        "{brought:?}"
    );
    let refused = &root.notes[1];
    assert!(
        refused.starts_with("2 files that the profile names are left out"),
        "{refused}"
    );
}

/// An observation that started a command.
fn started(args: &[String]) -> Phase {
    Phase {
        label: String::new(),
        taken: Taken {
            way: Way::Command(args.to_vec()),
            start_unix_s: 0,
            duration_ns: 0,
            kernel_release: String::new(),
            tare_version: String::new(),
        },
        observer: Observer::default(),
    }
}

/// A program whose dynamic linker is another program of its author's.
fn program_of(linker: &Path) -> Vec<u8> {
    let linker = linker.as_os_str().as_encoded_bytes();
    let half = |value: u16| value.to_le_bytes().to_vec();
    let word = |value: u32| value.to_le_bytes().to_vec();
    let long = |value: u64| value.to_le_bytes().to_vec();
    let length = linker.len() as u64 + 1;
    let header = [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
        [half(2), half(62), word(1)].concat(),
        [long(0), long(64), long(0), word(0)].concat(),
        [half(64), half(56), half(1), half(64), half(0), half(0)].concat(),
    ];
    // PT_INTERP, read only, behind both headers.
    let interpreter = [
        [word(3), word(4), long(120), long(0), long(0)].concat(),
        [long(length), long(length), long(1)].concat(),
    ];
    [&header.concat()[..], &interpreter.concat(), linker, b"\0"].concat()
}

/// Its author executes code by its dynamic linker, which lists libraries: it changes nothing, and
/// what it names is taken only if all may read it.
#[test]
fn a_program_that_a_profile_names_does_nothing_and_brings_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), 0o755);
    let at = |name: &str| dir.path().join(name);
    write(dir.path(), "key", 0o600);
    let script = format!(
        "#!/bin/sh\necho x > {0}/acted; rm -f {0}/key; echo 'a => {0}/key (0x1)'\n",
        dir.path().display()
    );
    fs::write(at("linker"), script).unwrap();
    fs::write(at("program"), program_of(&at("linker"))).unwrap();
    for name in ["linker", "program"] {
        allow(&at(name), 0o755);
    }
    let place = |name: &str| at(name).to_str().unwrap().to_owned();
    let profile = profile(&place("program"), &[]);
    let (command, none) = (["sh".to_owned()], BTreeSet::new());
    let root = gather(&RootFrom::Profile, &profile, &command, &Check::Runs, &none).unwrap();
    let has = |name: &str| root.tree.get(place(name).trim_start_matches('/')).is_some();
    assert!(has("program") && has("linker") && !has("key"));
    assert!(root.notes[1].contains("/key"), "{:?}", root.notes);
    assert!(at("key").exists() && !at("acted").exists());
}

#[test]
fn a_profiles_own_command_is_one_that_all_may_read() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), 0o755);
    write(dir.path(), "key", 0o600);
    write(dir.path(), "server", 0o755);
    let gathered = |name: &str, args: &[String]| {
        let place = dir.path().join(name).to_str().unwrap().to_owned();
        let mut profile = profile("/bin/sh", &[]);
        profile.phases.push(started(&[place]));
        let none = BTreeSet::new();
        gather(&RootFrom::Profile, &profile, args, &Check::Runs, &none)
    };
    assert!(gathered("server", &[]).is_ok());
    let refused = gathered("key", &[]).unwrap_err();
    assert!(matches!(refused, RootError::NotPublic(_)), "{refused}");
    // The user may read it, and says so.
    let own = dir.path().join("key").to_str().unwrap().to_owned();
    assert!(gathered("key", &[own]).is_ok());
}

/// A profile may come from a guest, and names what its author likes.
#[test]
fn what_is_this_kernels_stays_out_of_a_root() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), 0o755);
    let link = dir.path().join("symbols");
    std::os::unix::fs::symlink("/proc/kallsyms", &link).unwrap();
    let link = link.to_str().unwrap();
    let mut profile = profile("/proc/kallsyms", &["/proc", "/sys/kernel", "/dev"]);
    for (path, asked) in [
        ("/proc/kallsyms", Asked::Open),
        ("/sys/kernel", Asked::List),
        ("/proc/sys/kernel", Asked::List),
        (link, Asked::Open),
    ] {
        profile.paths.insert(path.to_owned(), [asked].into());
    }
    let (command, none) = (["sh".to_owned()], BTreeSet::new());
    let root = gather(&RootFrom::Profile, &profile, &command, &Check::Runs, &none).unwrap();
    let below = |name: &str| {
        ["proc/", "sys/", "dev/"]
            .iter()
            .any(|it| name.starts_with(it))
    };
    let names = root.tree.entries().map(|(name, _)| name);
    let kernels: Vec<&str> = names.filter(|name| below(name)).collect();
    assert_eq!(kernels, [""; 0]);
    assert!(root.tree.get(link.trim_start_matches('/')).is_none());
}

#[test]
fn words_of_the_user_stand_before_an_images() {
    let image = |config: &str| {
        let layer = oci::testing::layer(&[oci::testing::Entry::File("bin/a", 0o755, b"a")]);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let archive = oci::testing::oci_archive(config, &[layer]);
        std::io::Write::write_all(&mut file, &archive).unwrap();
        file
    };
    let profile = Profile::empty();
    let command = |config: &str, args: &[&str]| {
        let file = image(config);
        let from = RootFrom::Path(file.path().to_owned());
        let args: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
        gather(&from, &profile, &args, &Check::Runs, &BTreeSet::new()).map(|root| root.task.command)
    };
    let with_cmd = r#"{"config":{"Cmd":["/bin/own"]}}"#;
    assert_eq!(command(with_cmd, &[]).unwrap(), ["/bin/own"]);
    assert_eq!(
        command(with_cmd, &["/bin/a", "-x"]).unwrap(),
        ["/bin/a", "-x"]
    );
    let with_entrypoint = r#"{"config":{"Entrypoint":["/bin/a"],"Cmd":["-y"]}}"#;
    assert_eq!(command(with_entrypoint, &["-x"]).unwrap(), ["/bin/a", "-x"]);
    let none = command(r#"{"config":{}}"#, &[]);
    assert!(matches!(none, Err(RootError::NoCommand)));
}

/// As `tare run --root` takes it.
#[test]
fn one_of_several_images_in_a_file_is_a_root() {
    let dir = tempfile::tempdir().unwrap();
    let content = |name| {
        [oci::testing::layer(&[oci::testing::Entry::File(
            name, 0o755, b"a",
        )])]
    };
    let (web, db) = (content("bin/web"), content("bin/db"));
    let with_cmd = r#"{"config":{"Cmd":["/bin/web"]}}"#;
    let archive = oci::testing::oci_archive_of(&[
        (Some("web"), with_cmd, &web[..]),
        (Some("db"), "{}", &db[..]),
    ]);
    fs::write(dir.path().join("two.tar"), archive).unwrap();
    let gathered = |name: &str| {
        let from = RootFrom::Path(dir.path().join(name));
        assert!(from.is_image(), "{name}");
        let profile = Profile::empty();
        gather(&from, &profile, &[], &Check::Runs, &BTreeSet::new())
    };
    let root = gathered("two.tar:web").unwrap();
    assert!(root.tree.get("bin/web").is_some() && root.tree.get("bin/db").is_none());
    assert_eq!(root.task.command, ["/bin/web"]);
    let error = gathered("two.tar").unwrap_err();
    assert!(matches!(error, RootError::Root(_)), "{error}");
}

#[test]
fn nothing_to_run_is_an_error() {
    let (profile, none) = (Profile::empty(), BTreeSet::new());
    let nothing = gather(&RootFrom::Profile, &profile, &[], &Check::Runs, &none);
    assert!(matches!(nothing, Err(RootError::NoCommand)));
}

/// A root with a program behind two links, of which the profile saw look-ups only.
#[test]
fn what_was_looked_up_stays_of_a_root_to_the_end_of_its_links() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "usr/bin/python3.11",
        "usr/bin/perl",
        "usr/lib/python3.11/os.py",
        "usr/lib/python3.11/encodings/__init__.py",
        "usr/lib/python3.11/unseen/a.py",
        "srv/a.html",
        "opt/names/one",
        "opt/names/below/two",
    ] {
        write(dir.path(), name, 0o644);
    }
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
    };
    link("python3.11", "usr/bin/python3");
    link("usr/bin", "bin");
    let mut profile = profile("/bin/python3", &["/srv"]);
    for (path, asked) in [
        ("/usr/lib/python3.11/os.py", Asked::Stat),
        (
            "/usr/bin/../lib/python3.11/encodings/__init__.py",
            Asked::Stat,
        ),
        ("/opt/names", Asked::List),
    ] {
        profile.paths.insert(path.to_owned(), [asked].into());
    }
    let from = RootFrom::Path(dir.path().to_owned());
    let cuts = BTreeSet::from([Cut::Packages]);
    let command = ["python3".to_owned()];
    let root = gather(&from, &profile, &command, &Check::Runs, &cuts).unwrap();
    let is_file = |name: &&str| matches!(root.tree.get(name).unwrap().kind, EntryKind::File(_));
    let names: Vec<&str> = root.tree.entries().map(|(name, _)| name).collect();
    let names: Vec<&str> = names.into_iter().filter(is_file).collect();
    assert_eq!(
        names,
        [
            "opt/names/one",
            "srv/a.html",
            "usr/bin/python3.11",
            "usr/lib/python3.11/encodings/__init__.py",
            "usr/lib/python3.11/os.py",
        ]
    );
}

#[test]
fn what_was_looked_up_comes_from_this_computer() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), 0o755);
    write(dir.path(), "looked-at/module", 0o644);
    write(dir.path(), "looked-at/unseen", 0o644);
    write(dir.path(), "looked-at/key", 0o600);
    write(dir.path(), "listed/a", 0o644);
    for made in ["listed/below", "run", "spool"] {
        fs::create_dir(dir.path().join(made)).unwrap();
    }
    let _socket = UnixListener::bind(dir.path().join("run/socket")).unwrap();
    std::os::unix::fs::symlink("looked-at/module", dir.path().join("link")).unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut profile = profile("/bin/sh", &[]);
    for (name, asked) in [
        ("link", Asked::Stat),
        ("looked-at/key", Asked::Stat),
        ("listed", Asked::List),
        ("gone", Asked::Open),
        ("made", Asked::Write),
        ("run/socket", Asked::Change),
        ("spool/renamed", Asked::Change),
        ("no-such/directory", Asked::Change),
    ] {
        profile.paths.insert(place(name), [asked].into());
    }
    let command = ["sh".to_owned()];
    let none = BTreeSet::new();
    let root = gather(&RootFrom::Profile, &profile, &command, &Check::Runs, &none).unwrap();
    let get = |name: &str| root.tree.get(place(name).trim_start_matches('/'));
    assert!(matches!(&get("link").unwrap().kind, EntryKind::Link(to) if to == "looked-at/module"));
    assert!(get("looked-at/module").is_some() && get("listed/a").is_some());
    for name in ["listed/below", "run", "spool"] {
        assert!(matches!(get(name).unwrap().kind, EntryKind::Directory));
    }
    assert!(get("run/socket").is_none() && get("no-such").is_none());
    assert!(get("looked-at/unseen").is_none() && get("looked-at/key").is_none());
    assert!(root.notes[1].starts_with("1 files"), "{:?}", root.notes);
    assert!(root.notes[2].contains("/gone"), "{:?}", root.notes);
    assert!(!root.notes[2].contains("/made"), "{:?}", root.notes);
}

/// What a profile brings has the size that a root may have, however it names it.
#[test]
fn files_of_this_computer_that_are_too_large_are_refused_by_name() {
    let gathered = |dir: &Path| {
        let profile = profile("/bin/sh", &[dir.to_str().unwrap()]);
        let (command, none) = (["sh".to_owned()], BTreeSet::new());
        gather(&RootFrom::Profile, &profile, &command, &Check::Runs, &none).map(drop)
    };
    let public = |mib: u64| {
        let dir = tempfile::tempdir().unwrap();
        allow(dir.path(), 0o755);
        write(dir.path(), "film", 0o644);
        let film = fs::File::options()
            .write(true)
            .open(dir.path().join("film"));
        film.unwrap().set_len(mib << 20).unwrap();
        dir
    };
    let one = public(600);
    let error = gathered(one.path()).unwrap_err().to_string();
    assert!(
        error.contains("too large") && error.contains("film (600 MiB)"),
        "{error}"
    );
    // Each name is a file of the guest's.
    let many = public(30);
    gathered(many.path()).unwrap();
    for name in 0..20 {
        fs::hard_link(many.path().join("film"), many.path().join(name.to_string())).unwrap();
    }
    let error = gathered(many.path()).unwrap_err().to_string();
    let place = many.path().display().to_string();
    assert!(
        error.contains("too large") && error.contains(&format!("before it: {place}")),
        "{error}"
    );
}

#[test]
fn a_file_that_is_named_again_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", 0o644);
    let path = dir.path().join("a");
    let mut files = HostFiles::new(1024);
    for _ in 0..100 {
        files.file(&path).unwrap();
    }
    let mut files = HostFiles::new(16);
    let error = files.file(&path).unwrap_err();
    assert!(matches!(error, HostFilesError::TooLarge { .. }), "{error}");
}
