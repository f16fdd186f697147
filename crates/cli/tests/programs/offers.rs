//! Calls that some programs ask for, compared with the host's Linux line by line.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use crate::support::TestDir;
use crate::support::compile::c;
use crate::{answers_as_here, can_run, run};

/// What a program in C prints here and in a machine is the same, on one CPU and on two.
pub(crate) fn answers_as_here_on_one_and_two_cpus(source: &str) {
    let place = TestDir::new();
    let Some(program) = c(&place, source, &["-static"]) else {
        return;
    };
    for cpus in ["1", "2"] {
        answers_as_here(&place, &program, &["--cpus", cpus], &[]);
    }
}

#[test]
fn calls_that_some_programs_ask_for_answer_as_linux_does() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("offers.c");
}

/// CAP_SETGID and CAP_SETUID (kernel `include/uapi/linux/capability.h`).
const OF_OTHERS: u64 = 1 << 6 | 1 << 7;
/// CAP_SETPCAP and CAP_SYS_NICE.
const OF_PRIVILEGES: u64 = 1 << 8 | 1 << 23;

/// Whether this process is user 0 and has these capabilities.
fn is_root_with(capabilities: u64) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1).map(str::to_owned))
    };
    let own = field("CapEff:").and_then(|word| u64::from_str_radix(&word, 16).ok());
    field("Uid:").as_deref() == Some("0") && own.is_some_and(|own| !own & capabilities == 0)
}

/// A group of calls that is compared where the host can do it.
fn answers_alone_as_here(group: &str) {
    let place = TestDir::new();
    if let Some(program) = c(&place, "offers.c", &["-static"]) {
        answers_as_here(&place, &program, &[], &[group]);
    }
}

#[test]
fn users_and_groups_change_as_on_linux() {
    if !can_run() {
        return;
    }
    if !is_root_with(OF_OTHERS) {
        tare_vmtest::lacks("only root with CAP_SETUID and CAP_SETGID becomes other users");
        return;
    }
    answers_alone_as_here("identities");
}

#[test]
fn sockets_of_ipv6_leave_ipv4_to_others_as_on_linux() {
    if !can_run() {
        return;
    }
    if UdpSocket::bind("[::1]:0").is_err() {
        tare_vmtest::lacks("this host has no IPv6");
        return;
    }
    answers_alone_as_here("only v6");
}

#[test]
fn capabilities_and_what_needs_them_are_as_on_linux() {
    if !can_run() {
        return;
    }
    if !is_root_with(OF_OTHERS | OF_PRIVILEGES) {
        tare_vmtest::lacks("only root with CAP_SETPCAP and CAP_SYS_NICE gives up the others");
        return;
    }
    answers_as_here_on_one_and_two_cpus("privileges.c");
}

#[test]
fn what_calls_leave_behind_and_say_later_is_as_on_linux() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("edges.c");
}

/// On the host it makes a PID namespace, in which it is alone too.
#[test]
fn processes_are_named_by_number_as_where_a_process_is_alone_on_linux() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "alone.c", &["-static"]) else {
        return;
    };
    let alone = Command::new(&program).env("TMPDIR", place.path()).status();
    if alone.unwrap().code() == Some(77) {
        tare_vmtest::lacks("this host makes no PID namespace for a process");
        return;
    }
    for cpus in ["1", "2"] {
        answers_as_here(&place, &program, &["--cpus", cpus], &[]);
    }
}

#[test]
fn calls_stop_refuse_and_read_back_as_on_linux() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("bounds.c");
}

#[test]
fn a_call_is_interrupted_only_in_the_thread_that_takes_the_signal() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("takers.c");
    let place = TestDir::new();
    let Some(program) = c(&place, "takers.c", &["-static"]) else {
        return;
    };
    for cpus in ["1", "2"] {
        let ended = run(&place, &program, &["--cpus", cpus, "--env", "SPURIOUS=1"]);
        ended.expect(0, " spurious = 0 ");
    }
}

#[test]
fn files_of_the_kernel_say_what_they_say_on_linux() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("kernel_files.c");
}

#[test]
fn watches_of_files_tell_what_they_tell_on_linux() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("inotify.c");
}

#[test]
fn instances_and_watches_of_files_have_limits() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "inotify.c", &["-static"]) else {
        return;
    };
    for cpus in ["1", "2"] {
        let ended = run(&place, &program, &["--cpus", cpus, "--", "limits"]);
        ended.expect(0, "left 0");
        for line in [
            "made == limit_of(\"max_user_instances\") = 1 ",
            "inotify_init1(0) = -1 EMFILE",
            "watches == most = 1 ",
            "inotify_add_watch(in[0], \".\", IN_ATTRIB) = -1 ENOSPC",
            "inotify_add_watch(in[0], \".\", IN_ATTRIB) > 0 = 1 ",
        ] {
            assert!(ended.out.contains(line), "{line}: {ended:#?}");
        }
    }
}

#[test]
fn futexes_with_an_owner_go_from_thread_to_thread_as_on_linux() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("owners.c");
}

#[test]
fn each_pointer_of_a_call_is_checked_as_on_linux() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("pointers.c");
}

#[test]
fn missing_calls_are_named_once_and_counted() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "missing.c", &["-static"]) else {
        return;
    };
    let first = "the program calls fanotify_init (300), which is missing here (ENOSYS)";
    let once = run(&place, &program, &["--", "/"]);
    once.expect(3, "");
    let again = run(&place, &program, &["--", "/", "a", "b", "c"]);
    again.expect(3, "");
    for ended in [&once, &again] {
        assert_eq!(ended.err.matches(first).count(), 1, "{ended:#?}");
    }
    let counted = "the program called fanotify_init (300) 4 times";
    assert!(again.err.contains(counted), "{again:#?}");
    assert!(!once.err.contains(" times"), "{once:#?}");
}
