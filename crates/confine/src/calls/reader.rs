//! The filter of a thread that reads untrusted input, in a process that is not
//! confined ([`crate::read_confined`]).

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{BpfProgram, SeccompRule};

use super::set_up::failing;
use super::{ADVICE, allow_only, any_of, futexes, numbers, own_threads};
use crate::ConfineError;

/// Whether a reader opens files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// What it reads is open.
    Nothing,
    /// Below a directory. The flags of openat2(2) are in memory, where no filter sees them:
    /// Landlock keeps it to reading.
    Below,
}

/// With any arguments: descriptors that are open, memory, the thread's own end.
const READER: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Copies of descriptors, and their flags.
const DESCRIPTORS: &[i32] = &[
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_DUPFD_CLOEXEC,
];

/// Filters the calling thread.
pub(crate) fn restrict_reader(opens: Opens) -> Result<(), ConfineError> {
    seccompiler::apply_filter(&without_opening()?)?;
    Ok(seccompiler::apply_filter(&program(opens)?)?)
}

/// The C library looks into `/proc/sys/vm/overcommit_memory` when a thread gives memory back,
/// and goes on without it.
pub(super) fn without_opening() -> Result<BpfProgram, ConfineError> {
    failing(libc::SYS_openat, libc::EACCES)
}

pub(super) fn program(opens: Opens) -> Result<BpfProgram, ConfineError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        READER.iter().map(|call| (*call, Vec::new())).collect();
    if opens == Opens::Below {
        rules.insert(libc::SYS_openat2, Vec::new());
    }
    // Fails by the other filter.
    rules.insert(libc::SYS_openat, Vec::new());
    rules.insert(libc::SYS_futex, futexes()?);
    rules.insert(libc::SYS_madvise, any_of(2, &numbers(ADVICE))?);
    rules.insert(libc::SYS_fcntl, any_of(1, &numbers(DESCRIPTORS))?);
    rules.insert(libc::SYS_tgkill, vec![own_threads()?]);
    allow_only(rules)
}
