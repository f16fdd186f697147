//! The system calls of x86-64: number, name, how many arguments.
//!
//! Numbers and names are those of the crate `syscalls`, which is generated from the kernel's
//! `syscall_64.tbl`. Neither it nor the kernel's UAPI headers say how many arguments a call
//! has: that is in each call's definition (`SYSCALL_DEFINEn`), and here.

use syscalls::x86_64::Sysno;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// How many arguments it has.
    pub arguments: usize,
}

/// The call with this number.
pub fn row(number: u32) -> Option<Row> {
    let call = Sysno::new(usize::try_from(number).ok()?)?;
    Some(Row {
        name: call.name(),
        arguments: arguments(call).unwrap_or(crate::MAX_ARGUMENTS),
    })
}

/// Its name; `call_` and the number where it has none.
pub fn name(number: u32) -> String {
    row(number).map_or_else(|| format!("call_{number}"), |row| row.name.to_owned())
}

/// The number of the call with this name.
pub fn number(name: &str) -> Option<u32> {
    let call: Sysno = name.parse().ok()?;
    u32::try_from(call.id()).ok()
}

/// `None` for a call that is newer than this list.
#[rustfmt::skip]
fn arguments(call: Sysno) -> Option<usize> {
    use Sysno::*;
    let count = match call {
        rt_sigreturn | sched_yield | pause | getpid | fork | vfork | getuid | getgid |
        geteuid | getegid | getppid | getpgrp | setsid | munlockall | vhangup | sync |
        afs_syscall | tuxcall | security | gettid | restart_syscall | vserver | inotify_init |
        uretprobe | uprobe => 0,
        close | brk | pipe | dup | alarm | exit | uname | shmdt | fsync | fdatasync | chdir |
        fchdir | rmdir | unlink | umask | sysinfo | times | setuid | setgid | getpgid |
        setfsuid | setfsgid | getsid | uselib | personality | sched_getscheduler |
        sched_get_priority_max | sched_get_priority_min | mlockall | _sysctl | adjtimex |
        chroot | acct | swapoff | iopl | get_kernel_syms | time | set_thread_area |
        io_destroy | get_thread_area | epoll_create | set_tid_address | timer_getoverrun |
        timer_delete | exit_group | mq_unlink | unshare | eventfd | epoll_create1 |
        inotify_init1 | syncfs | userfaultfd | pkey_free | memfd_secret => 1,
        stat | fstat | lstat | munmap | access | dup2 | nanosleep | getitimer | shutdown |
        listen | kill | msgget | flock | truncate | ftruncate | getcwd | rename | mkdir |
        creat | link | symlink | chmod | fchmod | gettimeofday | getrlimit | getrusage |
        setpgid | setreuid | setregid | getgroups | setgroups | capget | capset |
        rt_sigpending | rt_sigsuspend | sigaltstack | utime | ustat | statfs | fstatfs |
        getpriority | sched_setparam | sched_getparam | sched_rr_get_interval | mlock |
        munlock | pivot_root | arch_prctl | setrlimit | settimeofday | umount2 | swapon |
        sethostname | setdomainname | create_module | delete_module | removexattr |
        lremovexattr | fremovexattr | tkill | io_setup | timer_gettime | clock_settime |
        clock_gettime | clock_getres | utimes | mq_notify | ioprio_get | inotify_rm_watch |
        set_robust_list | timerfd_create | timerfd_gettime | eventfd2 | pipe2 |
        fanotify_init | clock_adjtime | setns | memfd_create | pkey_alloc | io_uring_setup |
        fsopen | pidfd_open | clone3 | landlock_restrict_self | process_mrelease => 2,
        read | write | open | poll | lseek | mprotect | ioctl | readv | writev | msync |
        mincore | madvise | shmget | shmat | shmctl | setitimer | socket | connect | accept |
        sendmsg | recvmsg | bind | getsockname | getpeername | execve | semget | semop |
        msgctl | fcntl | getdents | readlink | chown | fchown | lchown | syslog | setresuid |
        getresuid | setresgid | getresgid | rt_sigqueueinfo | mknod | sysfs | setpriority |
        sched_setscheduler | modify_ldt | ioperm | init_module | nfsservctl | readahead |
        listxattr | llistxattr | flistxattr | sched_setaffinity | sched_getaffinity |
        io_submit | io_cancel | lookup_dcookie | getdents64 | timer_create | tgkill |
        set_mempolicy | mq_getsetattr | ioprio_set | inotify_add_watch | mkdirat | futimesat |
        unlinkat | symlinkat | fchmodat | faccessat | get_robust_list | signalfd | dup3 |
        open_by_handle_at | getcpu | finit_module | sched_setattr | seccomp | getrandom |
        bpf | membarrier | mlock2 | open_tree | fsmount | fspick | close_range | pidfd_getfd |
        landlock_create_ruleset | map_shadow_stack | lsm_list_modules | mseal => 3,
        rt_sigaction | rt_sigprocmask | pread64 | pwrite64 | sendfile | socketpair | wait4 |
        semctl | msgsnd | ptrace | rt_sigtimedwait | reboot | quotactl | getxattr |
        lgetxattr | fgetxattr | epoll_ctl_old | epoll_wait_old | semtimedop | fadvise64 |
        timer_settime | clock_nanosleep | epoll_wait | epoll_ctl | mq_open | kexec_load |
        request_key | migrate_pages | openat | mknodat | newfstatat | renameat | readlinkat |
        tee | sync_file_range | vmsplice | utimensat | fallocate | timerfd_settime | accept4 |
        signalfd4 | rt_tgsigqueueinfo | prlimit64 | sendmmsg | sched_getattr | pkey_mprotect |
        rseq | pidfd_send_signal | io_uring_register | openat2 | faccessat2 | quotactl_fd |
        landlock_add_rule | set_mempolicy_home_node | cachestat | fchmodat2 | futex_wake |
        futex_requeue | statmount | listmount | lsm_get_self_attr | lsm_set_self_attr |
        removexattrat => 4,
        select | mremap | setsockopt | getsockopt | clone | msgrcv | prctl | mount |
        query_module | getpmsg | putpmsg | setxattr | lsetxattr | fsetxattr | io_getevents |
        remap_file_pages | get_mempolicy | mq_timedsend | mq_timedreceive | waitid | add_key |
        keyctl | fchownat | linkat | ppoll | preadv | pwritev | perf_event_open | recvmmsg |
        fanotify_mark | name_to_handle_at | kcmp | renameat2 | kexec_file_load | execveat |
        statx | move_mount | fsconfig | process_madvise | mount_setattr | futex_waitv |
        listxattrat | open_tree_attr | file_getattr | file_setattr => 5,
        mmap | sendto | recvfrom | futex | mbind | pselect6 | splice | move_pages |
        epoll_pwait | process_vm_readv | process_vm_writev | copy_file_range | preadv2 |
        pwritev2 | io_pgetevents | io_uring_enter | epoll_pwait2 | futex_wait | setxattrat |
        getxattrat => 6,
        _ => return None,
    };
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_a_count_of_arguments_and_its_name_leads_back() {
        let calls: Vec<Sysno> = (0..1024).filter_map(Sysno::new).collect();
        assert_eq!(calls.len(), Sysno::count());
        for call in calls {
            let found = u32::try_from(call.id()).unwrap();
            assert_eq!(number(&name(found)), Some(found));
            let arguments = arguments(call).unwrap_or_else(|| panic!("{call}: no count"));
            assert!(arguments <= crate::MAX_ARGUMENTS);
        }
    }

    #[test]
    fn a_call_is_found_by_number_and_by_name() {
        assert_eq!(
            row(9),
            Some(Row {
                name: "mmap",
                arguments: 6
            })
        );
        assert_eq!(number("openat2"), Some(437));
        assert_eq!(number("call_9999"), None);
        assert_eq!(name(9999), "call_9999");
        assert_eq!(name(u32::MAX), format!("call_{}", u32::MAX));
    }
}
