//! The filter of a program that reads untrusted input.

use super::super::program::program;
use super::*;

fn may(call: c_long, arguments: &[u64]) -> bool {
    is_allowed(&program().expect("a filter"), call, arguments, LACKING)
}

#[test]
fn a_confined_program_connects_signals_traces_and_changes_nothing() {
    for call in [
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_clone3,
        libc::SYS_mount,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_openat2,
        libc::SYS_creat,
        libc::SYS_unlink,
        libc::SYS_unlinkat,
        libc::SYS_rename,
        libc::SYS_renameat2,
        libc::SYS_link,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_truncate,
        libc::SYS_ftruncate,
        libc::SYS_chmod,
        libc::SYS_fchmod,
        libc::SYS_fchmodat2,
        libc::SYS_fchown,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_setuid,
        libc::SYS_setresuid,
        libc::SYS_capset,
        libc::SYS_execveat,
        libc::SYS_memfd_create,
    ] {
        assert!(!may(call, &[]), "{call}");
    }
}

#[test]
fn a_confined_program_opens_for_reading_and_makes_no_namespaces() {
    let (cwd, name) = (0xffff_ff9c, 0x1000);
    let writes = [
        libc::O_WRONLY,
        libc::O_RDWR,
        libc::O_CREAT,
        libc::O_TRUNC,
        libc::O_TMPFILE,
    ];
    assert!(may(libc::SYS_openat, &[cwd, name, libc::O_CLOEXEC as u64]));
    assert!(may(libc::SYS_open, &[name, 0]));
    for flags in writes.map(|flags| flags as u64) {
        assert!(!may(libc::SYS_openat, &[cwd, name, flags]), "{flags:#o}");
        assert!(!may(libc::SYS_open, &[name, flags]), "{flags:#o}");
    }
    let child = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;
    assert!(may(libc::SYS_clone, &[child]));
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_PTRACE] {
        assert!(!may(libc::SYS_clone, &[child | flag as u64]), "{flag:#x}");
    }
    // TIOCSTI, F_SETOWN, a limit of another process.
    assert!(!may(libc::SYS_ioctl, &[0, 0x5412]));
    assert!(!may(libc::SYS_fcntl, &[0, libc::F_SETOWN as u64, 1]));
    assert!(!may(libc::SYS_prlimit64, &[1, 7, 0x1000, 0]));
}
