//! Memory of programs: new, moved, and in large pages.

use std::fs;
use std::process::Command;

use crate::offers::answers_as_here_on_one_and_two_cpus;
use crate::support::TestDir;
use crate::support::compile::c;
use crate::support::needs::qemu;
use crate::{can_run, run};

#[test]
fn new_memory_is_zero_wherever_it_was_before() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "zeros.c", &["-static"]) else {
        return;
    };
    let ended = run(&place, &program, &["--memory", "64M"]);
    ended.expect(0, "all zero");
}

/// Most of it untouched, so that the host needs little.
#[test]
fn a_program_has_as_many_page_tables_as_its_memory_and_threads_need() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "sparse.c", &["-static-pie"]) else {
        return;
    };
    let ended = run(&place, &program, &["--memory", "4G"]);
    ended.expect(0, "all there");
}

#[test]
fn the_address_space_has_limits_as_on_linux() {
    if can_run() {
        answers_as_here_on_one_and_two_cpus("space.c");
    }
}

#[test]
fn memory_moves_to_an_address_as_on_linux() {
    if can_run() {
        answers_as_here_on_one_and_two_cpus("moves.c");
    }
}

/// Memory that is used from beginning to end comes in large pages, which are split where a part of
/// them changes.
#[test]
fn large_pages_are_split_where_a_part_changes() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "large.c", &["-static", "-pthread"]) else {
        return;
    };
    let host = Command::new(&program).output().unwrap();
    assert!(host.status.success(), "{host:?}");
    for cpus in ["1", "2"] {
        let args = ["--cpus", cpus, "--memory", "256M", "--", "huge"];
        let ended = run(&place, &program, &args);
        ended.expect(0, "every page is right");
        let kib = |when: &str| -> u64 {
            let begin = format!("huge {when}: ");
            let line = ended.out.lines().find_map(|line| line.strip_prefix(&begin));
            line.unwrap().parse().unwrap()
        };
        // All of 24 MiB but the first large page and the last part.
        assert!(kib("at first") >= 20 << 10, "{ended:#?}");
        assert_eq!(kib("at last"), 0, "{ended:#?}");
    }
}

/// Memory below 256 MiB, where programs with fixed addresses are linked, was kept for these: up to
/// half of the machine's.
#[test]
fn a_program_may_use_nearly_all_of_the_machines_memory() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    for (link, name) in [("-static", "fixed"), ("-static-pie", "moved")] {
        let Some(program) = c(&place, "most.c", &[link]) else {
            return;
        };
        let ended = run(&place, &program, &["--memory", "64M", "--cpus", "2"]);
        ended.expect(0, "all as written");
        let free = ended.out.split(" of ").next().unwrap().parse::<u64>();
        assert!(free.unwrap() >= 56, "{ended:#?}");
        fs::copy(&program, root.join(name)).unwrap();
    }
    // Frames of the first are where the second is linked.
    let root = root.to_str().unwrap();
    let args = ["run", "--root", root, "--memory", "64M", "--net", "none"];
    for engine in ["tare", "qemu"] {
        if engine == "qemu" && !qemu() {
            return;
        }
        let words = ["--engine", engine, "--", "/moved", "/fixed"];
        let ended = place.run(&[&args[..], &words].concat());
        ended.expect(0, "all as written");
        assert_eq!(ended.out.matches("all as written").count(), 2, "{ended:#?}");
    }
}
