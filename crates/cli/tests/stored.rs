//! Files that stay: `tare run ./program --disk FILE`. File systems are made and checked by
//! e2fsprogs. SKIP without /dev/kvm, the compiler or the image `linux-disk`.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};

use support::compile::{c, c_with};
use support::needs::{built, kvm, qemu, skip};
use support::suites::fetched;
use support::{CommandOutput, TestDir, end, eventually, is_locked};

/// Whether machines with programs and disks can run here.
fn can_run() -> bool {
    kvm() && built("linux-disk").is_some()
}

/// A disk with an empty file system.
fn formatted(place: &TestDir, mib: u64) -> String {
    let path = place.file("disk.img", &[]);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(mib << 20).unwrap();
    let mut made = Command::new("mke2fs");
    done(made.args(["-q", "-F", "-t", "ext4", &path]));
    path
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// A copy of a disk in which a journal that waits is replayed, as a kernel does that mounts it,
/// and what came of that: of a disk that is being written the copy may be torn.
fn replayed(disk: &str) -> (String, Output) {
    let copy = format!("{disk}.copy");
    fs::copy(disk, &copy).unwrap();
    let mut replay = Command::new("e2fsck");
    let output = replay.args(["-E", "journal_only", "-y", &copy]).output();
    (copy, output.unwrap())
}

/// Finds no fault, also none that waits in a journal.
fn assert_sound(disk: &str) {
    let (copy, replayed) = replayed(disk);
    assert!(
        matches!(replayed.status.code(), Some(0 | 1)),
        "{replayed:?}"
    );
    done(Command::new("e2fsck").args(["-f", "-n", &copy]));
}

fn cat(disk: &str, path: &str) -> String {
    let mut debugfs = Command::new("debugfs");
    let output = done(debugfs.args(["-R", &format!("cat {path}"), disk]));
    String::from_utf8(output.stdout).unwrap()
}

/// The program `store.c` in a directory of the test; none where machines cannot run.
fn store() -> Option<(TestDir, String)> {
    if !can_run() {
        return None;
    }
    let place = TestDir::new();
    let program = c(&place, "store.c", &["-static"])?;
    Some((place, program))
}

fn run(place: &TestDir, program: &str, disk: &str, args: &[&str]) -> CommandOutput {
    let mut all = vec!["run", program, "--net", "none", "--disk", disk];
    all.extend(args);
    place.run(&all)
}

/// A machine of this name.
fn start(place: &TestDir, name: &str, program: &str, disk: &str, args: &[&str]) -> Child {
    let mut all = vec![
        "run", program, "--net", "none", "--name", name, "--disk", disk, "--",
    ];
    all.extend(args);
    place.tare(&all).spawn().unwrap()
}

fn logged(place: &TestDir, name: &str) -> String {
    place.run(&["logs", name]).out
}

/// Kills a machine's monitor, as it would die with its host, and waits until its disk is free.
fn kill(mut child: Child, disk: &str) {
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its disk is free", || !is_locked(Path::new(disk)));
}

/// The last number that a line with this word has.
fn last_number(text: &str, word: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix(word));
    let mut numbers = lines.filter_map(|line| line.trim().parse().ok());
    numbers.next_back().unwrap_or(0)
}

#[test]
fn what_a_program_writes_is_there_for_the_host_and_its_next_run() {
    let Some((place, program)) = store() else {
        return;
    };
    let disk = formatted(&place, 16);
    run(&place, &program, &disk, &["--", "put"]).expect(0, "put");
    assert_sound(&disk);
    assert_eq!(cat(&disk, "/hello"), "hello, disk\n");
    let again = run(&place, &program, &disk, &["--", "get"]);
    again.expect(0, "mode 100640, 12 bytes: hello, disk");
    assert!(again.out.contains("write allowed"), "{again:#?}");
    let read_only = format!("{disk},ro");
    let again = run(&place, &program, &read_only, &["--", "get"]);
    again.expect(0, "write EROFS");
    let elsewhere = format!("{disk},at=/var/lib/db");
    let args = ["--", "get", "/var/lib/db"];
    run(&place, &program, &elsewhere, &args).expect(0, "hello, disk");
}

#[test]
fn a_program_and_a_script_on_a_disk_are_executed() {
    let Some((place, program)) = store() else {
        return;
    };
    let disk = formatted(&place, 16);
    let became = run(&place, &program, &disk, &["--", "become"]);
    became.expect(0, "became /data/copy");
    assert_sound(&disk);
}

#[test]
fn a_machine_that_is_stopped_or_killed_keeps_what_it_wrote() {
    let Some((place, program)) = store() else {
        return;
    };
    let disk = formatted(&place, 16);
    let child = start(&place, "stopped", &program, &disk, &["wait"]);
    keeps_what_it_wrote(&place, child, &disk);
    // Without a sync: written back some seconds later.
    let other = formatted(&place, 16);
    let child = start(&place, "killed", &program, &other, &["wait"]);
    eventually("it is on the disk", || {
        let (copy, _) = replayed(&other);
        let mut debugfs = Command::new("debugfs");
        let shown = debugfs.args(["-R", "cat /hello", &copy]).output().unwrap();
        shown.stdout == b"hello, disk\n"
    });
    kill(child, &disk);
    assert_sound(&other);
}

/// The machine `stopped` unmounts its disk when it is stopped.
fn keeps_what_it_wrote(place: &TestDir, child: Child, disk: &str) {
    eventually("it has written", || {
        logged(place, "stopped").contains("put")
    });
    place.run(&["stop", "stopped"]).expect(0, "");
    end(child).expect(143, "");
    assert_eq!(cat(disk, "/hello"), "hello, disk\n");
    assert_sound(disk);
    // Unmounted: its journal is empty, and a kernel would mount it without a word.
    done(Command::new("e2fsck").args(["-n", disk]));
}

#[test]
fn a_program_in_qemu_that_is_stopped_keeps_what_it_wrote() {
    let Some((place, program)) = store().filter(|_| qemu()) else {
        return;
    };
    let disk = formatted(&place, 16);
    let args = [
        "run", &program, "--engine", "qemu", "--net", "none", "--name", "stopped", "--disk", &disk,
        "--", "wait",
    ];
    let child = place.tare(&args).spawn().unwrap();
    keeps_what_it_wrote(&place, child, &disk);
}

#[test]
fn what_was_synced_survives_kills_of_the_monitor() {
    let Some((place, program)) = store() else {
        return;
    };
    let disk = formatted(&place, 16);
    let mut promised = 0;
    for round in 1..=5 {
        let name = format!("round{round}");
        let child = start(&place, &name, &program, &disk, &["records"]);
        eventually("it has synced", || {
            let log = logged(&place, &name);
            assert!(!log.contains("damaged"), "{log}");
            last_number(&log, "synced") > promised + 7 * round
        });
        kill(child, &disk);
        let log = logged(&place, &name);
        let found = last_number(&log, "found");
        assert!(found >= promised, "round {round}: {found} of {promised}");
        promised = last_number(&log, "synced");
        assert_sound(&disk);
    }
}

#[test]
fn a_database_is_whole_after_kills() {
    if !can_run() {
        return;
    }
    if !Path::new("/usr/include/sqlite3.h").exists() {
        skip("libsqlite3-dev is not installed");
        return;
    }
    let place = TestDir::new();
    let libraries = ["-lsqlite3", "-lm", "-ldl"];
    let Some(program) = c_with(&place, "sqlite.c", &["-static"], &libraries) else {
        return;
    };
    for journal in ["delete", "wal"] {
        let disk = formatted(&place, 32);
        let mut promised = 0;
        for round in 1..=3 {
            let name = format!("{journal}{round}");
            let child = start(&place, &name, &program, &disk, &[journal]);
            eventually("it commits", || {
                last_number(&logged(&place, &name), "committed") > promised + 5 * round
            });
            kill(child, &disk);
            let log = logged(&place, &name);
            assert!(log.contains("integrity_check ok"), "{journal}: {log}");
            assert!(log.contains(&format!("journal_mode {journal}")), "{log}");
            let found = last_number(&log, "last");
            assert!(found >= promised, "{name}: {found} of {promised}");
            promised = last_number(&log, "committed");
            assert_sound(&disk);
        }
    }
}

/// SQLite's speedtest1 from its source, of the version that is installed.
fn speedtest(place: &TestDir) -> Option<String> {
    if !Path::new("/usr/include/sqlite3.h").exists() {
        skip("libsqlite3-dev is not installed");
        return None;
    }
    let Some(source) = fetched("sqlite3-") else {
        tare_vmtest::lacks("the source of SQLite (make test fetches it)");
        return None;
    };
    let source = source.join("test/speedtest1.c");
    let named = format!("-DSPEEDTEST1=\"{}\"", source.display());
    let libraries = ["-lsqlite3", "-lm", "-ldl"];
    c_with(place, "speedtest.c", &["-static", &named], &libraries)
}

/// The lines of speedtest1's output without times.
fn without_times(text: &str) -> Vec<&str> {
    let steps = text.lines().map(|line| line.split("..").next().unwrap());
    steps.filter(|line| !line.contains("TOTAL")).collect()
}

/// All results of its queries are in one hash.
#[test]
fn sqlites_speedtest_has_the_results_of_this_host_and_leaves_a_whole_database() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = speedtest(&place) else {
        return;
    };
    let disk = formatted(&place, 64);
    for journal in ["delete", "wal"] {
        let args = |database| {
            let options = ["--verify", "--size", "5", "--testset", "fp,orm,main"];
            let journal = ["--journal", journal, database];
            [&options[..], &journal].concat()
        };
        let file = place.path().join(journal);
        let here = done(Command::new(&program).args(args(file.to_str().unwrap()))).stdout;
        let here = String::from_utf8(here).unwrap();
        let here = without_times(&here);
        assert!(here.contains(&"integrity_check ok"), "{here:#?}");
        let args = |database| [&["--"][..], &args(database)].concat();
        let in_memory = [&["run", &program, "--net", "none"][..], &args("/tmp/db")].concat();
        for there in [
            place.run(&in_memory),
            run(&place, &program, &disk, &args("/data/db")),
        ] {
            there.expect(0, &format!("journal_mode {journal}"));
            assert_eq!(without_times(&there.out), here, "{there:#?}");
        }
        assert_sound(&disk);
    }
}

#[test]
fn a_full_disk_mappings_and_threads_behave_as_on_linux() {
    let Some((place, program)) = store() else {
        return;
    };
    let disk = formatted(&place, 8);
    let full = run(&place, &program, &disk, &["--", "fill"]);
    full.expect(0, "full ENOSPC 1\nfull ENOSPC 1\n");
    let mapped = run(&place, &program, &disk, &["--", "map"]);
    mapped.expect(
        0,
        "msync 0\nby msync\nmunmap 0\nby munmap\nprivate by msync\nfile 0\n",
    );
    assert!(cat(&disk, "/mapped").starts_with("by the end"));
    let here = place.path().join("here");
    fs::create_dir(&here).unwrap();
    for part in ["coherent", "two", "grown"] {
        let args = [part, here.to_str().unwrap()];
        let here = done(Command::new(&program).args(args)).stdout;
        let here = String::from_utf8(here).unwrap();
        let there = run(&place, &program, &disk, &["--", part]);
        there.expect(0, &here);
        // Also in memory.
        let there = place.run(&["run", &program, "--net", "none", "--", part, "/tmp"]);
        there.expect(0, &here);
    }
    for cpus in ["1", "2"] {
        let threads = run(&place, &program, &disk, &["--cpus", cpus, "--", "threads"]);
        threads.expect(
            0,
            "shared 2000\nstill here, links 0\nkind ef53, blocks 1\nacross EXDEV\nmount EBUSY\n",
        );
    }
    assert_sound(&disk);
}

/// What a program prints here and with its files on a disk is the same, line by line.
fn answers_as_here(place: &TestDir, program: &str, disk: &str, args: &[&str]) {
    let mut here = Command::new(program);
    let here = done(here.args(args).env("TMPDIR", place.path()));
    let here = String::from_utf8(here.stdout).unwrap();
    let mut all = vec!["--env", "TMPDIR=/data", "--"];
    all.extend(args);
    let there = run(place, program, disk, &all);
    let mut lines = there.out.lines().filter(|line| !line.starts_with("warn: "));
    for (number, line) in here.lines().enumerate() {
        let other = lines.next().unwrap_or("(the program ended)");
        // Times of a disk's files are in whole seconds.
        if !line.contains("tv_nsec") {
            assert_eq!(other, line, "line {number} of {args:?}, there and here");
        }
    }
    assert_eq!(lines.next(), None, "{args:?}");
    there.expect(0, "");
    assert_sound(disk);
}

#[test]
fn system_calls_answer_on_a_disk_as_linux_does() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let disk = formatted(&place, 32);
    for source in ["calls.c", "corners.c", "edges.c", "inotify.c"] {
        let Some(program) = c(&place, source, &["-static"]) else {
            return;
        };
        answers_as_here(&place, &program, &disk, &[]);
    }
}

/// `TARE_SOAK=SEQUENCES` for that many, of 2000 calls each.
#[test]
fn random_system_calls_answer_on_a_disk_as_linux_does() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "random.c", &["-static"]) else {
        return;
    };
    let disk = formatted(&place, 32);
    let soak = std::env::var("TARE_SOAK").ok();
    let (first, sequences, calls) = match &soak {
        Some(sequences) => ("1000", sequences.as_str(), "2000"),
        None => ("1", "8", "250"),
    };
    for kind in ["files", "memory"] {
        answers_as_here(&place, &program, &disk, &[kind, first, sequences, calls]);
    }
}

#[test]
fn disks_that_cannot_be_used_are_refused_with_a_remedy() {
    let Some((place, program)) = store() else {
        return;
    };
    let refused = |disk: &str, code: i32, texts: &[&str]| {
        let ended = run(&place, &program, disk, &["--", "get"]);
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        for word in texts {
            assert!(
                ended.err.contains(word) || ended.out.contains(word),
                "{word}: {ended:#?}"
            );
        }
    };
    let empty = place.file("empty.img", &vec![0; 1 << 20]);
    refused(
        &empty,
        35,
        &["no ext4 file system", &format!("mkfs.ext4 {empty}")],
    );
    let disk = formatted(&place, 16);
    for at in ["data", "/", "/a/../b"] {
        refused(&format!("{disk},at={at}"), 2, &["absolute path"]);
    }
    refused(
        &format!("{disk},at=/store"),
        1,
        &["cannot mount a disk at /store", "at=DIR"],
    );
    let damaged = place.path().join("damaged.img");
    let mut bytes = fs::read(&disk).unwrap();
    bytes[1024 + 0x20] ^= 0xff;
    fs::write(&damaged, bytes).unwrap();
    refused(damaged.to_str().unwrap(), 1, &["damaged", "e2fsck"]);
    let features = place.file("features.img", &vec![0; 16 << 20]);
    let mut made = Command::new("mke2fs");
    done(made.args(["-q", "-F", "-t", "ext4", "-O", "inline_data", &features]));
    refused(&features, 1, &["not supported", "mkfs.ext4"]);
    let args = ["run", &program, "--disk", &disk, "--disk", &empty];
    place
        .run(&args)
        .expect(2, "2 disks: a program can mount one");
    let image = built("kv").map(|image| image.to_str().unwrap().to_owned());
    if let Some(image) = image {
        let at = format!("{disk},at=/data");
        place
            .run(&["run", &image, "--disk", &at])
            .expect(2, "at= is for programs");
    }
    assert!(Path::new(&disk).exists());
}
