//! The filter of a set-up, which reads what others wrote: what the roles may do later, and
//! making a machine, its threads and their filters. Everything else, a call that a later
//! kernel has too, ends the process.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{
    ADVICE, ALL_ADDRESSES, CACHE_MODE, CONSOLE, CONTROL, DISKS, EVENTS, EVERYWHERE, FIONBIO, LINKS,
    TCSETS, TCSETS2, TUNSETOFFLOAD, allow_only, any_of, argument, futexes, numbers, own_threads,
    resets,
};
use crate::ConfineError;

/// Beyond the lists of the roles, with any arguments.
pub(super) const SET_UP: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_fstat,
    // Without these no thread could be confined. They only take rights away.
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
    libc::SYS_newfstatat,
    libc::SYS_rt_sigaction,
    // The C library asks for it for the stack of each thread.
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_timer_create,
];

/// What a process sets and reads of itself (`linux/prctl.h`). Names of memory are the C
/// library's, the auxiliary vector is rustix's.
pub(super) const PROCESS: &[u64] = &[
    libc::PR_SET_NAME as u64,
    libc::PR_SET_NO_NEW_PRIVS as u64,
    libc::PR_SET_SECCOMP as u64,
    libc::PR_CAP_AMBIENT as u64,
    libc::PR_CAPBSET_READ as u64,
    libc::PR_GET_SECUREBITS as u64,
    PR_GET_AUXV,
    PR_SET_VMA,
];
const PR_GET_AUXV: u64 = 0x4155_5856;
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Of a terminal: its size and its modes (`asm-generic/ioctls.h`).
const TERMINAL: &[u64] = &[0x5401, TCSETS, 0x5413, 0x802c_542a, TCSETS2];
/// KVM's ioctls have this type (`linux/kvm.h`). Of the descriptors of a set-up only KVM's
/// own take them.
const KVM_TYPE: u64 = 0xae00;
const IOCTL_TYPE: u64 = 0xff00;

/// A role's filter narrows this down, and cannot add to it.
pub(super) const LISTS: [&[c_long]; 9] = [
    EVERYWHERE,
    CONSOLE,
    CACHE_MODE,
    EVENTS,
    LINKS,
    ALL_ADDRESSES,
    DISKS,
    CONTROL,
    SET_UP,
];

/// Copies of descriptors, and their flags. No locks, no signals (`F_SETOWN`), no leases.
pub(super) const DESCRIPTORS: &[i32] = &[
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_DUPFD_CLOEXEC,
];

/// Guards of stacks, by glibc from 2.42 on (`asm-generic/mman-common.h`).
const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;
/// What a set-up says of memory beyond [`ADVICE`]: guards, and guest memory in small pages.
const MEMORY_ADVICE: &[i32] = &[MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, libc::MADV_NOHUGEPAGE];

/// A thread shares memory, descriptors and signals with the process that it is in.
const THREAD: u64 =
    (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
/// New namespaces, tracing.
pub(super) const NO_THREAD: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PTRACE) as u64;
/// Files are opened for reading (`open(2)`).
pub(super) const WRITES: u64 =
    (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY))
        as u64;

/// Filters the calling thread, and those that it will start.
pub(crate) fn restrict_set_up() -> Result<(), ConfineError> {
    seccompiler::apply_filter(&without_clone3()?)?;
    Ok(seccompiler::apply_filter(&program()?)?)
}

/// The C library starts threads by clone3(2), whose flags are in memory, where no filter
/// sees them. Told that the kernel lacks it, the library uses clone(2).
pub(super) fn without_clone3() -> Result<BpfProgram, ConfineError> {
    failing(libc::SYS_clone3, libc::ENOSYS)
}

/// `setgroups(2)` does nothing and succeeds.
pub(in super::super) fn pretend_to_set_groups() -> Result<(), ConfineError> {
    Ok(seccompiler::apply_filter(&failing(
        libc::SYS_setgroups,
        0,
    )?)?)
}

/// A filter in which one call fails with an error, instead of ending the process.
pub(super) fn failing(call: c_long, errno: i32) -> Result<BpfProgram, ConfineError> {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        TargetArch::x86_64,
    )?;
    Ok(filter.try_into()?)
}

pub(super) fn program() -> Result<BpfProgram, ConfineError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in LISTS.concat() {
        rules.insert(call, Vec::new());
    }
    // Refused by the other filter, with an error.
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.insert(libc::SYS_clone, vec![threads()?]);
    let read = argument(2, SeccompCmpOp::MaskedEq(WRITES), 0)?;
    rules.insert(libc::SYS_openat, vec![read]);
    rules.insert(libc::SYS_prctl, any_of(0, PROCESS)?);
    rules.insert(libc::SYS_ioctl, ioctls()?);
    rules.insert(libc::SYS_futex, futexes()?);
    let advice = [ADVICE, MEMORY_ADVICE].concat();
    rules.insert(libc::SYS_madvise, any_of(2, &numbers(&advice))?);
    rules.insert(libc::SYS_fcntl, any_of(1, &numbers(DESCRIPTORS))?);
    // The calling thread's, and no other's: a vCPU is kept on its own CPU.
    let own = argument(0, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_sched_setaffinity, vec![own]);
    rules.insert(libc::SYS_prlimit64, vec![own_limits()?]);
    rules.insert(libc::SYS_setsockopt, vec![resets()?]);
    rules.insert(libc::SYS_tgkill, vec![own_threads()?]);
    allow_only(rules)
}

fn ioctls() -> Result<Vec<SeccompRule>, ConfineError> {
    let mut rules = any_of(1, TERMINAL)?;
    for number in [FIONBIO, TUNSETOFFLOAD] {
        rules.push(argument(1, SeccompCmpOp::Eq, number)?);
    }
    rules.push(argument(1, SeccompCmpOp::MaskedEq(IOCTL_TYPE), KVM_TYPE)?);
    Ok(rules)
}

fn threads() -> Result<SeccompRule, ConfineError> {
    let flags = SeccompCmpOp::MaskedEq(THREAD | NO_THREAD);
    let flags = SeccompCondition::new(0, SeccompCmpArgLen::Dword, flags, THREAD)?;
    Ok(SeccompRule::new(vec![flags])?)
}

/// Reads limits of this process: the C library asks how large a stack is.
pub(super) fn own_limits() -> Result<SeccompRule, ConfineError> {
    let zero = |index, length| SeccompCondition::new(index, length, SeccompCmpOp::Eq, 0);
    Ok(SeccompRule::new(vec![
        zero(0, SeccompCmpArgLen::Dword)?,
        zero(2, SeccompCmpArgLen::Qword)?,
    ])?)
}
