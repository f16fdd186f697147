//! seccomp: the system calls of each thread. Another one ends the process with
//! a sentence ([`super::violation`]).

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::ConfineError;

/// What a thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs a vCPU.
    Vcpu,
    /// Queues, links, standard input.
    Io,
    /// Signals, control socket, the end.
    Main,
    /// Queues and messages of a vhost-user front-end.
    Frontend,
}

impl Role {
    /// The thread's name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vcpu => "vcpu",
            Self::Io => "io",
            Self::Main => "main",
            Self::Frontend => "io",
        }
    }
}

/// Memory, locks, signals, time, ends of threads, descriptors that are open.
const EVERYWHERE: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    // A reset (a vCPU's) and the end wait for what a disk's ring has in flight.
    // The ring was restricted to that disk when it was made, and no thread may
    // make another.
    libc::SYS_io_uring_enter,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];

/// The console's output, written by vCPU threads.
const CONSOLE: &[c_long] = &[
    libc::SYS_ftruncate,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_sendto,
];

/// A vCPU that switches a disk's write cache off waits until the disk has what
/// was in it.
const CACHE_MODE: &[c_long] = &[libc::SYS_fdatasync];

const EVENTS: &[c_long] = &[
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
];

const LINKS: &[c_long] = &[libc::SYS_recvfrom, libc::SYS_sendto];

/// Disks: io_uring, and the calls that stand in where it is refused.
const DISKS: &[c_long] = &[
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev2,
];

/// A vhost-user front-end: it comes, sends descriptors with its messages, and
/// gets memory for the log of what is in flight.
const FRONTEND: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_memfd_create,
    // Notifications, without waiting.
    libc::SYS_preadv2,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_statx,
];

const CONTROL: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_statx,
    libc::SYS_tgkill,
    // The timer on CPU time that reconsiders halt polling; it was made before.
    libc::SYS_timer_delete,
    libc::SYS_timer_settime,
    // Of the run directory and the vhost-user socket.
    libc::SYS_unlink,
    libc::SYS_unlinkat,
];

/// `KVMIO`, the type of KVM's ioctls (`asm-generic/ioctl.h`: bits 8 to 15).
const KVM_TYPE: u64 = 0xae << 8;
const TYPE_MASK: u64 = 0xff << 8;
/// `_IOW(KVMIO, 0xa3, struct kvm_enable_cap)`: halt polling of the machine.
const KVM_ENABLE_CAP: u64 = 0x4068_aea3;
const FIONBIO: u64 = 0x5421;
const TUNSETOFFLOAD: u64 = 0x4004_54d0;
const TCSETS: u64 = 0x5402;
const TCSETS2: u64 = 0x402c_542b;

/// Filters the calling thread.
pub(super) fn restrict(role: Role) -> Result<(), ConfineError> {
    Ok(seccompiler::apply_filter(&program(role)?)?)
}

fn program(role: Role) -> Result<BpfProgram, ConfineError> {
    let lists: &[&[c_long]] = match role {
        Role::Vcpu => &[EVERYWHERE, CONSOLE, CACHE_MODE],
        Role::Io => &[EVERYWHERE, EVENTS, LINKS, DISKS],
        Role::Main => &[EVERYWHERE, EVENTS, CONTROL],
        Role::Frontend => &[EVERYWHERE, EVENTS, DISKS, FRONTEND],
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in lists.iter().copied().flatten() {
        rules.insert(*call, Vec::new());
    }
    rules.insert(libc::SYS_ioctl, ioctls(role)?);
    // Debug builds of std look whether a descriptor that they close is open.
    let is_open = u64::from(libc::F_GETFD.unsigned_abs());
    let mut asks = vec![argument(1, SeccompCmpOp::Eq, is_open)?];
    if role == Role::Frontend {
        // A descriptor of the front-end's must not make the thread wait; the
        // connection has one for each of the two that end it.
        for command in [libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC] {
            let command = u64::from(command.unsigned_abs());
            asks.push(argument(1, SeccompCmpOp::Eq, command)?);
        }
    }
    rules.insert(libc::SYS_fcntl, asks);
    // Memory never becomes executable.
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let not_executable = argument(2, SeccompCmpOp::MaskedEq(executable), 0)?;
        rules.insert(call, vec![not_executable]);
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Trap,
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    Ok(filter.try_into()?)
}

fn ioctls(role: Role) -> Result<Vec<SeccompRule>, ConfineError> {
    // Every thread may put the terminal back when it has to end the process.
    let mut rules = vec![
        argument(1, SeccompCmpOp::Eq, TCSETS)?,
        argument(1, SeccompCmpOp::Eq, TCSETS2)?,
    ];
    if role == Role::Main {
        rules.push(argument(1, SeccompCmpOp::Eq, KVM_ENABLE_CAP)?);
    }
    rules.push(match role {
        Role::Vcpu => argument(1, SeccompCmpOp::MaskedEq(TYPE_MASK), KVM_TYPE)?,
        Role::Io => argument(1, SeccompCmpOp::Eq, TUNSETOFFLOAD)?,
        Role::Main | Role::Frontend => argument(1, SeccompCmpOp::Eq, FIONBIO)?,
    });
    Ok(rules)
}

fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, ConfineError> {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_a_filter_that_compiles() {
        for role in [Role::Vcpu, Role::Io, Role::Main, Role::Frontend] {
            assert!(!program(role).unwrap().is_empty(), "{role:?}");
        }
    }

    #[test]
    fn no_role_may_open_connect_or_execute() {
        let forbidden = [
            libc::SYS_open,
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_fork,
            libc::SYS_ptrace,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_register,
        ];
        for list in [
            EVERYWHERE, CONSOLE, CACHE_MODE, EVENTS, LINKS, DISKS, FRONTEND, CONTROL,
        ] {
            assert!(list.iter().all(|call| !forbidden.contains(call)));
        }
    }
}
