//! The filter of a reader of what others wrote.

use super::super::reader::{Opens, program, without_opening};
use super::*;

const REFUSE: u32 = 0x0005_0000 + libc::EACCES as u32; // SECCOMP_RET_ERRNO
/// Numbers of calls up to Linux 6.18, and some more.
const CALLS: std::ops::Range<c_long> = 0..512;

fn may(opens: Opens, call: c_long, arguments: &[u64]) -> bool {
    verdict(&program(opens).expect("a filter"), call, arguments) == ALLOW
}

/// Those with any arguments; a value that no filter allows stands in for all others.
fn reachable(opens: Opens) -> Vec<c_long> {
    CALLS
        .filter(|call| may(opens, *call, &[u64::MAX; 6]))
        .collect()
}

#[test]
fn a_reader_of_an_image_opens_executes_connects_and_starts_nothing() {
    for opens in [Opens::Nothing, Opens::Below] {
        for call in [
            libc::SYS_open,
            libc::SYS_creat,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_fork,
            libc::SYS_vfork,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_sendmsg,
            libc::SYS_sendto,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_ioctl,
            libc::SYS_prctl,
            libc::SYS_kill,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_unlinkat,
            libc::SYS_renameat2,
            libc::SYS_linkat,
            libc::SYS_symlinkat,
            libc::SYS_fchmodat2,
            libc::SYS_mount,
            libc::SYS_setresuid,
            libc::SYS_bpf,
        ] {
            assert!(!may(opens, call, &[]), "{call}");
        }
        let fails = verdict(&without_opening().expect("a filter"), libc::SYS_openat, &[]);
        assert_eq!(fails, REFUSE);
        let writable_and_executable = [0, 4096, 7, 0x22];
        assert!(!may(opens, libc::SYS_mmap, &writable_and_executable));
    }
}

#[test]
fn a_reader_of_a_directory_may_open_below_it_and_no_more() {
    let (archive, directory) = (reachable(Opens::Nothing), reachable(Opens::Below));
    let more: Vec<_> = directory
        .iter()
        .filter(|call| !archive.contains(call))
        .collect();
    assert_eq!(more, [&libc::SYS_openat2]);
    // The one that fails by its own filter among them.
    assert_eq!(archive.len(), 29);
}
