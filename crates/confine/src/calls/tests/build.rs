//! The filter of a build.

use super::super::build::program;
use super::*;

fn may(call: c_long, arguments: &[u64]) -> bool {
    is_allowed(&program().expect("a filter"), call, arguments, LACKING)
}

#[test]
fn a_build_has_no_call_for_sockets_namespaces_or_other_processes() {
    for call in [
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_sendmsg,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_kcmp,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_clone3,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_open_by_handle_at,
        libc::SYS_setgroups,
        libc::SYS_setfsuid,
        libc::SYS_accept4,
        libc::SYS_listen,
        libc::SYS_capset,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_settimeofday,
        libc::SYS_msgget,
        libc::SYS_shmget,
        libc::SYS_mq_open,
        libc::SYS_fanotify_init,
        libc::SYS_quotactl,
        libc::SYS_personality,
        libc::SYS_modify_ldt,
    ] {
        assert!(!may(call, &[]), "{call}");
    }
}

#[test]
fn a_build_makes_pipes_and_no_devices_or_namespaces() {
    let (cwd, name) = (0xffff_ff9c, 0x1000);
    let kinds = [
        (libc::S_IFIFO, true),
        (libc::S_IFCHR, false),
        (libc::S_IFBLK, false),
        (libc::S_IFSOCK, false),
    ];
    for (kind, allowed) in kinds {
        let mode = u64::from(kind | 0o600);
        assert_eq!(may(libc::SYS_mknod, &[name, mode]), allowed);
        assert_eq!(may(libc::SYS_mknodat, &[cwd, name, mode]), allowed);
    }
    let child = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;
    assert!(may(libc::SYS_clone, &[child]));
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_PTRACE] {
        assert!(!may(libc::SYS_clone, &[child | flag as u64]), "{flag:#x}");
    }
    for (family, allowed) in [(libc::AF_UNIX, true), (libc::AF_INET, false)] {
        assert_eq!(may(libc::SYS_socketpair, &[family as u64, 1]), allowed);
    }
    // TIOCSTI, F_SETOWN, a limit of another process and its own.
    assert!(!may(libc::SYS_ioctl, &[0, 0x5412]));
    assert!(!may(libc::SYS_fcntl, &[0, libc::F_SETOWN as u64, 1]));
    assert!(!may(libc::SYS_prlimit64, &[1, 7, 0x1000, 0]));
    assert!(may(libc::SYS_prlimit64, &[0, 3, 0x1000, 0]));
    // What compilers and scripts do.
    for call in [libc::SYS_openat, libc::SYS_renameat2, libc::SYS_execve] {
        assert!(may(call, &[]), "{call}");
    }
}
