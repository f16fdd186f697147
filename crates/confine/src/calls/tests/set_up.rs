//! The set-up's filter, over a table of calls and arguments.

use super::super::set_up::{LISTS, program, without_clone3};
use super::*;

const TRAP: u32 = 0x0003_0000; // SECCOMP_RET_TRAP
/// KVM_CREATE_VM.
const CREATE_VM: u64 = 0xae01;
/// CLONE_VM, _FS, _FILES, _SIGHAND, _THREAD, _SYSVSEM, _SETTLS, _PARENT_SETTID,
/// _CHILD_CLEARTID: what glibc and musl start a thread with.
const THREAD_OF_A_LIBRARY: u64 = 0x003d_0f00;
const O_CLOEXEC: u64 = libc::O_CLOEXEC as u64;

fn may(call: c_long, arguments: &[u64]) -> bool {
    is_allowed(&program().expect("a filter"), call, arguments, TRAP)
}

#[test]
fn a_set_up_executes_connects_and_traces_nothing() {
    for call in [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_personality,
        libc::SYS_modify_ldt,
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_memfd_create,
        libc::SYS_memfd_secret,
        libc::SYS_pkey_mprotect,
    ] {
        assert!(!may(call, &[]), "{call}");
    }
}

/// A list of what is forbidden had these missing.
#[test]
fn siblings_of_forbidden_calls_are_forbidden_in_a_set_up() {
    let families: [&[c_long]; 8] = [
        // A ring does what its entries say, past this filter.
        &[libc::SYS_io_uring_setup, libc::SYS_io_uring_register],
        &[libc::SYS_io_setup, libc::SYS_io_submit],
        &[
            libc::SYS_chmod,
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            SYS_FCHMODAT2,
        ],
        &[
            libc::SYS_chown,
            libc::SYS_fchown,
            libc::SYS_lchown,
            libc::SYS_fchownat,
        ],
        &[
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
        ],
        &[
            libc::SYS_setuid,
            libc::SYS_setreuid,
            libc::SYS_setresuid,
            libc::SYS_setfsuid,
            libc::SYS_setgid,
            libc::SYS_setregid,
            libc::SYS_setresgid,
            libc::SYS_setfsgid,
            libc::SYS_setgroups,
        ],
        &[
            libc::SYS_open,
            libc::SYS_openat2,
            libc::SYS_creat,
            libc::SYS_open_by_handle_at,
            libc::SYS_truncate,
        ],
        &[
            libc::SYS_setxattr,
            libc::SYS_lsetxattr,
            libc::SYS_fsetxattr,
            libc::SYS_removexattr,
            libc::SYS_utimensat,
            libc::SYS_rename,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_link,
            libc::SYS_linkat,
            libc::SYS_symlink,
            libc::SYS_symlinkat,
            libc::SYS_mkdir,
            libc::SYS_mkdirat,
            libc::SYS_mknod,
            libc::SYS_mknodat,
            libc::SYS_rmdir,
        ],
    ];
    for call in families.concat() {
        assert!(!may(call, &[]), "{call}");
    }
    // And what no kernel has yet, or has for other data models (x32).
    for call in (480..640).chain([0x4000_0000 | libc::SYS_execve]) {
        assert!(!may(call, &[]), "{call}");
    }
}
/// Linux 6.6; not in the libc crate for this target yet.
const SYS_FCHMODAT2: c_long = 452;

#[test]
fn a_set_up_asks_by_argument() {
    let (own, read) = (own_pid(), O_CLOEXEC);
    let write = libc::O_WRONLY as u64;
    let table: &[(&str, c_long, &[u64], bool)] = &[
        ("a thread", libc::SYS_clone, &[THREAD_OF_A_LIBRARY], true),
        ("a process", libc::SYS_clone, &[17], false),
        ("as vfork", libc::SYS_clone, &[0x4111], false),
        (
            "a traced thread",
            libc::SYS_clone,
            &[THREAD_OF_A_LIBRARY | 0x2000],
            false,
        ),
        (
            "a user namespace",
            libc::SYS_clone,
            &[THREAD_OF_A_LIBRARY | 0x1000_0000],
            false,
        ),
        ("reading", libc::SYS_openat, &[0, 0, read], true),
        ("writing", libc::SYS_openat, &[0, 0, write], false),
        ("both", libc::SYS_openat, &[0, 0, 2], false),
        ("making", libc::SYS_openat, &[0, 0, 0o100], false),
        ("truncating", libc::SYS_openat, &[0, 0, 0o1000], false),
        ("nameless", libc::SYS_openat, &[0, 0, 0o20200000], false),
        ("a name", libc::SYS_prctl, &[15], true),
        ("no privileges", libc::SYS_prctl, &[38], true),
        ("a seccomp filter", libc::SYS_prctl, &[22], true),
        ("dumpable", libc::SYS_prctl, &[4], false),
        ("a tracer", libc::SYS_prctl, &[0x5961_6d61], false),
        ("another break", libc::SYS_prctl, &[35], false),
        ("kept capabilities", libc::SYS_prctl, &[8], false),
        ("a machine", libc::SYS_ioctl, &[3, CREATE_VM], true),
        ("modes", libc::SYS_ioctl, &[0, TCSETS], true),
        ("typed for others", libc::SYS_ioctl, &[0, 0x5412], false),
        ("a console's", libc::SYS_ioctl, &[0, 0x541c], false),
        ("a tap's", libc::SYS_ioctl, &[0, 0x4004_54ca], false),
        ("a disk's", libc::SYS_ioctl, &[0, 0x125d], false),
        ("a copy", libc::SYS_fcntl, &[3, 1030], true),
        ("a lock", libc::SYS_fcntl, &[3, 37], false),
        ("signals to others", libc::SYS_fcntl, &[3, 8], false),
        ("memory", libc::SYS_mmap, &[0, 4096, 3], true),
        ("code", libc::SYS_mmap, &[0, 4096, 5], false),
        ("made code", libc::SYS_mprotect, &[0, 4096, 7], false),
        ("its own CPU", libc::SYS_sched_setaffinity, &[0], true),
        ("another's CPU", libc::SYS_sched_setaffinity, &[1], false),
        ("a limit", libc::SYS_prlimit64, &[0, 3, 0, 8], true),
        ("no limit", libc::SYS_prlimit64, &[0, 3, 8, 0], false),
        ("another's limit", libc::SYS_prlimit64, &[1, 3, 0, 8], false),
        ("its own end", libc::SYS_tgkill, &[own, 1, 6], true),
        ("another's end", libc::SYS_tgkill, &[own + 1, 1, 6], false),
        ("inherited priority", libc::SYS_futex, &[0, 6], false),
        ("huge pages", libc::SYS_madvise, &[0, 0, 14], true),
        ("small pages", libc::SYS_madvise, &[0, 0, 15], true),
        ("a page's fault", libc::SYS_madvise, &[0, 0, 100], false),
    ];
    for (what, call, arguments, expected) in table {
        assert_eq!(may(*call, arguments), *expected, "{what}");
    }
}

/// A C library that is refused clone3(2) with an error starts its threads by clone(2).
#[test]
fn a_set_up_has_clone_and_no_clone3() {
    let refused = without_clone3().expect("a filter");
    // SECCOMP_RET_ERRNO | ENOSYS
    assert_eq!(verdict(&refused, libc::SYS_clone3, &[]), 0x0005_0026);
    assert_eq!(verdict(&refused, libc::SYS_clone, &[]), ALLOW);
}

/// Whatever a role may do, its thread does under the set-up's filter too.
#[test]
fn what_a_role_may_do_its_set_up_allows() {
    let lists = [
        EVERYWHERE, CONSOLE, CACHE_MODE, EVENTS, LINKS, DISKS, CONTROL,
    ];
    for call in lists.concat() {
        assert!(may(call, &[]), "{call}");
    }
    for number in VCPU_IOCTLS
        .iter()
        .chain(&[KVM_ENABLE_CAP, FIONBIO, TUNSETOFFLOAD])
    {
        assert!(may(libc::SYS_ioctl, &[0, *number]), "{number:#x}");
    }
    let option = |level: i32, option: i32| {
        let arguments = [0, level.unsigned_abs().into(), option.unsigned_abs().into()];
        may(libc::SYS_setsockopt, &arguments)
    };
    assert!(option(libc::SOL_SOCKET, libc::SO_LINGER));
    assert!(!option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER));
    assert!(!option(libc::SOL_TCP, libc::SO_LINGER));
}

/// The figure of `docs/security.md`.
#[test]
fn a_set_up_has_this_many_calls() {
    let by_argument = 13;
    let mut calls = LISTS.concat();
    calls.sort_unstable();
    calls.dedup();
    assert_eq!(calls.len() + by_argument, 73);
}
