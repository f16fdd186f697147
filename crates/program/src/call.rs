//! The system calls that the personality in the guest answers. `guest/linux` serves each by a
//! `match` without a default, so that this list and what is served cannot differ; `tare
//! profile` compares a program's calls with it.

use syscalls::x86_64::Sysno;

macro_rules! calls {
    ($($answer:ident: $($name:ident)+;)+) => {
        /// A system call with an answer, by the kernel's name.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $($($name = Sysno::$name as isize,)+)+
        }

        impl Call {
            /// All of them.
            pub const ALL: &[Self] = &[$($(Self::$name,)+)+];

            /// The call with this number.
            #[inline]
            pub fn of(number: u32) -> Option<Self> {
                match Sysno::new(number as usize)? {
                    $($(Sysno::$name => Some(Self::$name),)+)+
                    _ => None,
                }
            }

            /// What a program gets.
            pub const fn answer(self) -> Answer {
                match self {
                    $($(Self::$name)|+ => Answer::$answer,)+
                }
            }
        }
    };
}

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As on Linux.
    Served,
    /// With ENOSYS, which C libraries expect of it and go on.
    Spared,
    /// With ENOSYS: there is one process. `execve` is served where that has one thread.
    OneProcess,
}

calls! {
    Served:
        read write pread64 pwrite64 readv writev lseek preadv pwritev preadv2 pwritev2 copy_file_range sendfile
        splice
        open openat openat2 creat memfd_create close close_range dup dup2 dup3 fcntl ioctl stat lstat fstat newfstatat statx
        getdents64 readlink readlinkat access faccessat faccessat2 mkdir mkdirat unlink rmdir
        unlinkat rename renameat renameat2 ftruncate fallocate chmod fchmodat fchmodat2 getcwd chdir fchdir
        truncate symlink symlinkat link linkat umask chown lchown fchownat utimensat fchmod flock
        getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr llistxattr flistxattr
        removexattr lremovexattr fremovexattr
        statfs fstatfs fsync fdatasync syncfs sync_file_range readahead fadvise64 fchown sync
        mmap munmap mprotect mremap madvise brk msync mlock mlock2 munlock mlockall munlockall mincore
        epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 poll ppoll select
        pselect6 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
        inotify_init inotify_init1 inotify_add_watch inotify_rm_watch pipe pipe2
        socketpair socket bind listen accept accept4 connect shutdown getsockname getpeername
        sendto sendmsg recvfrom recvmsg sendmmsg recvmmsg setsockopt getsockopt
        clock_gettime clock_getres clock_settime gettimeofday time nanosleep clock_nanosleep
        clone clone3 futex sched_yield sched_getaffinity sched_setaffinity getcpu membarrier setpriority
        sched_getscheduler sched_setscheduler sched_getparam sched_setparam sched_getattr sched_setattr
        sched_get_priority_max sched_get_priority_min sched_rr_get_interval get_robust_list set_robust_list getpriority
        rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigreturn
        rt_sigqueueinfo rt_tgsigqueueinfo
        timer_create timer_settime timer_gettime timer_getoverrun timer_delete
        sigaltstack setitimer getitimer alarm times kill tkill tgkill pause
        arch_prctl prctl uname getrandom prlimit64 getrlimit setrlimit sysinfo getrusage
        exit exit_group set_tid_address gettid getpid getpgrp getpgid getsid setsid getppid
        getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
        setresuid setresgid setfsuid setfsgid setgroups capget capset
        setpgid wait4 waitid;
    Spared: rseq;
    OneProcess: fork vfork execve execveat;
}

/// The calls without an answer by number: each number is that of the name behind it, and the
/// names that follow count on.
const MISSING: &str = "\
    29 shmget shmat shmctl 64 semget semop semctl shmdt msgget msgsnd msgrcv msgctl 78 getdents \
    101 ptrace 103 syslog 132 utime mknod uselib personality ustat 139 sysfs 153 vhangup \
    modify_ldt pivot_root _sysctl 159 adjtimex 161 chroot 163 acct settimeofday mount umount2 \
    swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module \
    delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall \
    tuxcall security 205 set_thread_area io_setup io_destroy io_getevents io_submit io_cancel \
    get_thread_area lookup_dcookie 214 epoll_ctl_old epoll_wait_old remap_file_pages 219 \
    restart_syscall semtimedop 235 utimes vserver mbind set_mempolicy get_mempolicy mq_open \
    mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load 248 add_key \
    request_key keyctl ioprio_set ioprio_get 256 migrate_pages 259 mknodat 261 futimesat 272 unshare 276 tee 278 vmsplice \
    move_pages 298 perf_event_open 300 fanotify_init fanotify_mark 303 \
    name_to_handle_at open_by_handle_at clock_adjtime 308 setns 310 process_vm_readv \
    process_vm_writev kcmp finit_module 317 seccomp 320 kexec_file_load bpf 323 userfaultfd 329 \
    pkey_mprotect pkey_alloc pkey_free 333 io_pgetevents 335 uretprobe uprobe 424 \
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount \
    fsopen fsconfig fsmount fspick pidfd_open 438 pidfd_getfd 440 process_madvise 442 \
    mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self \
    memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat 453 \
    map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr \
    lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat \
    open_tree_attr file_getattr file_setattr";

/// The name of a call without an answer.
pub fn missing(number: u32) -> Option<&'static str> {
    let mut next = 0;
    for word in MISSING.split(' ') {
        match word.parse() {
            Ok(first) => next = first,
            Err(_) if next == number => return Some(word),
            Err(_) => next += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_found_by_its_number() {
        for call in Call::ALL {
            assert_eq!(Call::of(*call as u32), Some(*call));
        }
        assert_eq!(Call::of(1), Some(Call::write));
        assert_eq!(Call::of(300), None, "fanotify_init");
        assert_eq!(Call::of(u32::MAX), None);
    }

    #[test]
    fn a_call_without_an_answer_has_its_name() {
        for number in Sysno::iter() {
            let served = Call::of(number.id() as u32);
            let named = missing(number.id() as u32);
            let expected = served.is_none().then(|| number.name());
            assert_eq!(named, expected, "{number:?}");
        }
        assert_eq!((missing(337), missing(u32::MAX)), (None, None));
    }

    #[test]
    fn calls_of_other_processes_are_not_served() {
        assert_eq!(Call::vfork.answer(), Answer::OneProcess);
        assert_eq!(Call::rseq.answer(), Answer::Spared);
        assert_eq!(Call::openat.answer(), Answer::Served);
    }
}
