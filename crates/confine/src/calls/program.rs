//! The filter of a program that reads untrusted input
//! ([`crate::spawn_confined`]), and of what it starts.
//!
//! Which calls a program makes is its C library's choice, in each version another: one that is not
//! allowed fails as if the kernel lacked it, and does not end the process.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpOp, SeccompFilter, SeccompRule, TargetArch,
};

use super::set_up::{DESCRIPTORS, NO_THREAD, PROCESS, WRITES, own_limits};
use super::{any_of, argument, numbers};
use crate::ConfineError;

/// With any arguments: files that are open, memory, its own processes, their end.
pub(super) const PROGRAM: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_chdir,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fork,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpgrp,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    // They only take rights away: xz confines itself.
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lseek,
    libc::SYS_lstat,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pselect6,
    libc::SYS_read,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_select,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_vfork,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Whether a stream is a terminal, and its size (`asm-generic/ioctls.h`).
pub(super) const IS_TERMINAL: &[u64] = &[0x5401, 0x802c_542a, 0x5413];

/// Filters the calling thread, and what it starts.
pub(crate) fn restrict_program() -> Result<(), ConfineError> {
    Ok(seccompiler::apply_filter(&program()?)?)
}

pub(super) fn program() -> Result<BpfProgram, ConfineError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        PROGRAM.iter().map(|call| (*call, Vec::new())).collect();
    let read = |index| argument(index, SeccompCmpOp::MaskedEq(WRITES), 0);
    rules.insert(libc::SYS_open, vec![read(1)?]);
    rules.insert(libc::SYS_openat, vec![read(2)?]);
    rules.insert(libc::SYS_clone, vec![no_namespaces()?]);
    let descriptors = [DESCRIPTORS, &[libc::F_DUPFD]].concat();
    rules.insert(libc::SYS_fcntl, any_of(1, &numbers(&descriptors))?);
    rules.insert(libc::SYS_ioctl, any_of(1, IS_TERMINAL)?);
    rules.insert(libc::SYS_prctl, any_of(0, PROCESS)?);
    rules.insert(libc::SYS_prlimit64, vec![own_limits()?]);
    lacking_others(rules)
}

/// Processes and threads, in the namespaces that there are. The flags of clone3(2) are in memory,
/// where no filter sees them: it fails, and the C library uses clone(2).
pub(super) fn no_namespaces() -> Result<SeccompRule, ConfineError> {
    argument(0, SeccompCmpOp::MaskedEq(NO_THREAD), 0)
}

/// The filter of what `rules` allow. Another call fails as if the kernel lacked it.
pub(super) fn lacking_others(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
) -> Result<BpfProgram, ConfineError> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    Ok(filter.try_into()?)
}
