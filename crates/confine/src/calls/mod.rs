//! seccomp: the system calls of each thread. Another one ends the process with
//! a sentence ([`super::violation`]).

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::ConfineError;

mod build;
mod program;
mod reader;
mod set_up;

pub(super) use build::restrict_build;
pub(super) use program::restrict_program;
pub(super) use reader::{Opens, restrict_reader};
pub(super) use set_up::{pretend_to_set_groups, restrict_set_up};

/// What a thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs a vCPU.
    Vcpu,
    /// Queues, links, standard streams.
    Io,
    /// The same with UDP ports at all addresses of the host.
    IoAllAddresses,
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
            Self::Io | Self::IoAllAddresses | Self::Frontend => "io",
            Self::Main => "main",
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
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    // A reset (a vCPU's) and the end wait for what a disk's ring has in flight.
    // The ring was restricted to that disk when it was made, and no thread may
    // make another.
    libc::SYS_io_uring_enter,
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

/// Output of a program's ports goes to the console's log, which is halved when it is full. The
/// thread may overwrite the disks' files already.
const LOG: &[c_long] = &[libc::SYS_ftruncate];

/// passt, and the clients of published ports, whose listening sockets are open. A new socket
/// comes from those alone.
const LINKS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
];

/// The host's address of a client's datagram, and of its answer, are beside the bytes.
const ALL_ADDRESSES: &[c_long] = &[libc::SYS_recvmsg, libc::SYS_sendmsg];

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
    // Whether its memory is huge pages.
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    // What kind of socket it has given as the back-end's channel.
    libc::SYS_getsockopt,
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
    // The timer on CPU time that reconsiders halt polling; it was made before.
    libc::SYS_timer_delete,
    libc::SYS_timer_settime,
    // Of the run directory and the vhost-user socket.
    libc::SYS_unlink,
    libc::SYS_unlinkat,
];

/// What a vCPU thread asks of KVM (`linux/kvm.h`): run; read the state of a vCPU
/// that crashed; execute in its place what an emulating KVM cannot; route an
/// interrupt that the guest has set.
const VCPU_IOCTLS: &[u64] = &[
    0xae80,      // KVM_RUN
    0x8090_ae81, // KVM_GET_REGS
    0x4090_ae82, // KVM_SET_REGS
    0x8138_ae83, // KVM_GET_SREGS
    0xc018_ae85, // KVM_TRANSLATE
    0x81a0_ae8c, // KVM_GET_FPU
    0x8040_ae9f, // KVM_GET_VCPU_EVENTS
    0x4040_aea0, // KVM_SET_VCPU_EVENTS
    0x4008_ae6a, // KVM_SET_GSI_ROUTING
];
/// `_IOW(KVMIO, 0xa3, struct kvm_enable_cap)`: halt polling of the machine.
const KVM_ENABLE_CAP: u64 = 0x4068_aea3;
/// `IORING_REGISTER_EVENTFD` and `IORING_UNREGISTER_EVENTFD` (`linux/io_uring.h`).
const CHANGE_EVENTFD: [u64; 2] = [4, 5];
/// How long a block device is, without a wait (`linux/fs.h`).
const BLKGETSIZE64: u64 = 0x8008_1272;
const FIONBIO: u64 = 0x5421;
const FIONREAD: u64 = 0x541b;
const TUNSETOFFLOAD: u64 = 0x4004_54d0;
const TCSETS: u64 = 0x5402;
const TCSETS2: u64 = 0x402c_542b;

/// Waiting and waking of locks, without priority inheritance (`linux/futex.h`).
const FUTEX_OPERATIONS: &[i32] = &[
    libc::FUTEX_WAIT,
    libc::FUTEX_WAKE,
    libc::FUTEX_CMP_REQUEUE,
    libc::FUTEX_WAKE_OP,
    libc::FUTEX_WAIT_BITSET,
    libc::FUTEX_WAKE_BITSET,
];
const FUTEX_COMMAND: i32 = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
/// What an allocator says of memory that it does not use, or uses in large pages.
const ADVICE: &[i32] = &[libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_HUGEPAGE];
/// The kernel's SIGRTMIN is 32, and the C library keeps two: kicks use one above.
const FIRST_KICK_SIGNAL: u64 = 34;

/// Filters the calling thread.
pub(super) fn restrict(role: Role) -> Result<(), ConfineError> {
    Ok(seccompiler::apply_filter(&program(role)?)?)
}

fn program(role: Role) -> Result<BpfProgram, ConfineError> {
    let lists: &[&[c_long]] = match role {
        Role::Vcpu => &[EVERYWHERE, CONSOLE, CACHE_MODE],
        Role::Io => &[EVERYWHERE, EVENTS, LINKS, DISKS, LOG],
        Role::IoAllAddresses => &[EVERYWHERE, EVENTS, LINKS, ALL_ADDRESSES, DISKS, LOG],
        Role::Main => &[EVERYWHERE, EVENTS, CONTROL],
        Role::Frontend => &[EVERYWHERE, EVENTS, DISKS, FRONTEND],
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in lists.iter().copied().flatten() {
        rules.insert(*call, Vec::new());
    }
    rules.insert(libc::SYS_ioctl, ioctls(role)?);
    rules.insert(libc::SYS_futex, futexes()?);
    rules.insert(libc::SYS_madvise, any_of(2, &numbers(ADVICE))?);
    if role == Role::Main {
        rules.insert(libc::SYS_tgkill, vec![kicks()?]);
    }
    if matches!(role, Role::Io | Role::IoAllAddresses) {
        rules.insert(libc::SYS_setsockopt, vec![resets()?]);
    }
    // Debug builds of std look whether a descriptor that they close is open.
    let mut asks = vec![libc::F_GETFD];
    if role == Role::Frontend {
        // A descriptor of the front-end's must not make the thread wait; the
        // connection has one for each of the two that end it.
        asks.extend([libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC]);
    }
    rules.insert(libc::SYS_fcntl, any_of(1, &numbers(&asks))?);
    if role == Role::Frontend {
        // The eventfd that a ring signals, which the front-end changes. The disk's ring
        // was restricted when it was made: it takes neither.
        rules.insert(libc::SYS_io_uring_register, any_of(1, &CHANGE_EVENTFD)?);
    }
    allow_only(rules)
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
    let own: &[u64] = match role {
        Role::Vcpu => VCPU_IOCTLS,
        Role::Io | Role::IoAllAddresses => &[TUNSETOFFLOAD],
        Role::Main => &[FIONBIO, BLKGETSIZE64],
        Role::Frontend => &[FIONBIO, FIONREAD],
    };
    for number in own {
        rules.push(argument(1, SeccompCmpOp::Eq, *number)?);
    }
    Ok(rules)
}

fn futexes() -> Result<Vec<SeccompRule>, ConfineError> {
    let command = u64::from(FUTEX_COMMAND.cast_unsigned());
    let operations = FUTEX_OPERATIONS.iter();
    operations
        .map(|operation| {
            let operation = u64::from(operation.unsigned_abs());
            argument(1, SeccompCmpOp::MaskedEq(command), operation)
        })
        .collect()
}

fn not_executable() -> Result<SeccompRule, ConfineError> {
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    argument(2, SeccompCmpOp::MaskedEq(executable), 0)
}

/// The signal that interrupts KVM_RUN, to a thread of this process.
fn kicks() -> Result<SeccompRule, ConfineError> {
    let condition = |index, operator, value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
    };
    Ok(SeccompRule::new(vec![
        condition(0, SeccompCmpOp::Eq, std::process::id().into())?,
        condition(2, SeccompCmpOp::Ge, FIRST_KICK_SIGNAL)?,
    ])?)
}

/// The one option of a client's socket: that closing it resets it.
fn resets() -> Result<SeccompRule, ConfineError> {
    let condition = |index, value: i32| {
        let value = value.unsigned_abs().into();
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    Ok(SeccompRule::new(vec![
        condition(1, libc::SOL_SOCKET)?,
        condition(2, libc::SO_LINGER)?,
    ])?)
}

fn any_of(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, ConfineError> {
    let rules = values.iter();
    rules
        .map(|value| argument(index, SeccompCmpOp::Eq, *value))
        .collect()
}

fn numbers(values: &[i32]) -> Vec<u64> {
    values.iter().map(|it| it.unsigned_abs().into()).collect()
}

/// The filter of what `rules` allow. Another call ends the process, and memory never becomes
/// executable.
fn allow_only(mut rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, ConfineError> {
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![not_executable()?]);
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Trap,
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    Ok(filter.try_into()?)
}

/// Any signal to the process's own threads: `abort(3)`.
fn own_threads() -> Result<SeccompRule, ConfineError> {
    argument(0, SeccompCmpOp::Eq, std::process::id().into())
}

fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, ConfineError> {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

#[cfg(test)]
mod tests;
