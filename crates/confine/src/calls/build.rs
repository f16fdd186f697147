//! The filter of a build ([`crate::enter_build`]): compilers, shells and scripts, which make
//! files and processes, and need neither sockets nor other processes' memory.
//!
//! As with [`super::program`], a call that is not allowed fails as if the kernel lacked it.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{BpfProgram, SeccompCmpOp, SeccompRule};

use super::program::{IS_TERMINAL, PROGRAM, lacking_others, no_namespaces};
use super::set_up::{DESCRIPTORS, PROCESS};
use super::{any_of, argument, numbers};
use crate::ConfineError;

/// With any arguments, beyond [`PROGRAM`]. Which files are changed is Landlock's to say, and the
/// root's of the build; signals go to its processes only, for the same reasons.
const BUILD: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_copy_file_range,
    libc::SYS_creat,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futimesat,
    libc::SYS_getcpu,
    libc::SYS_getitimer,
    libc::SYS_getpriority,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getxattr,
    libc::SYS_kill,
    libc::SYS_lchown,
    libc::SYS_lgetxattr,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_mincore,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_msync,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_pause,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_readahead,
    libc::SYS_recvfrom,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rmdir,
    libc::SYS_sched_setaffinity,
    libc::SYS_sendfile,
    libc::SYS_sendto,
    libc::SYS_setitimer,
    // To what the process is already: without capabilities it cannot become another user
    // (`POSIX_SPAWN_RESETIDS`).
    libc::SYS_setgid,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setrlimit,
    libc::SYS_setsid,
    libc::SYS_setuid,
    libc::SYS_splice,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_truncate,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_utime,
    libc::SYS_utimensat,
    libc::SYS_utimes,
];

/// Locks of files, for databases of compilers, and the size of a pipe.
const LOCKS: &[i32] = &[
    libc::F_DUPFD,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_GETPIPE_SZ,
    libc::F_SETPIPE_SZ,
];

/// FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FICLONE, FICLONERANGE (`asm-generic/ioctls.h`,
/// `linux/fs.h`).
const OF_FILES: &[u64] = &[0x541b, 0x5421, 0x5450, 0x5451, 0x4004_9409, 0x4020_940d];

/// Filters the calling thread, and what it starts.
pub(crate) fn restrict_build() -> Result<(), ConfineError> {
    Ok(seccompiler::apply_filter(&program()?)?)
}

pub(super) fn program() -> Result<BpfProgram, ConfineError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [PROGRAM, BUILD]
        .concat()
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect();
    rules.insert(libc::SYS_clone, vec![no_namespaces()?]);
    let descriptors = [DESCRIPTORS, LOCKS].concat();
    rules.insert(libc::SYS_fcntl, any_of(1, &numbers(&descriptors))?);
    let terminal_and_files = [IS_TERMINAL, OF_FILES].concat();
    rules.insert(libc::SYS_ioctl, any_of(1, &terminal_and_files)?);
    let process = [PROCESS, &[libc::PR_SET_PDEATHSIG as u64]].concat();
    rules.insert(libc::SYS_prctl, any_of(0, &process)?);
    // Its own limits, also to change them: `make` gives itself a larger stack.
    rules.insert(libc::SYS_prlimit64, own_process(0)?);
    // Socket pairs lead to no other process. Rust's library makes one to start a program.
    rules.insert(libc::SYS_socketpair, any_of(0, &[libc::AF_UNIX as u64])?);
    // The pipes of a job server (make 4.4), and no devices.
    rules.insert(libc::SYS_mknod, vec![fifo(1)?]);
    rules.insert(libc::SYS_mknodat, vec![fifo(2)?]);
    lacking_others(rules)
}

fn own_process(index: u8) -> Result<Vec<SeccompRule>, ConfineError> {
    any_of(index, &[0])
}

fn fifo(index: u8) -> Result<SeccompRule, ConfineError> {
    let kind = SeccompCmpOp::MaskedEq(libc::S_IFMT.into());
    argument(index, kind, libc::S_IFIFO.into())
}
