//! The system calls, by number (kernel `arch/x86/entry/syscalls/syscall_64.tbl`).

mod arguments;
#[cfg(target_os = "none")]
mod descriptors;
#[cfg(target_os = "none")]
mod events;
#[cfg(target_os = "none")]
mod files;
#[cfg(target_os = "none")]
mod io;
mod memory;
#[cfg(target_os = "none")]
mod message;
#[cfg(target_os = "none")]
mod net;
#[cfg(target_os = "none")]
mod options;
#[cfg(target_os = "none")]
mod parts;
#[cfg(target_os = "none")]
mod status;
#[cfg(target_os = "none")]
pub(crate) mod system;
#[cfg(target_os = "none")]
mod threads;
#[cfg(target_os = "none")]
mod time;

#[cfg(target_os = "none")]
pub(crate) use table::{restarts, serve};

#[cfg(target_os = "none")]
mod table {
    use linux_raw_sys::general as nr;

    use super::arguments::{self, Arguments};
    use super::{descriptors, events, files, io, memory, net, options, status};
    use super::{system, threads, time};
    use crate::context::Context;
    use crate::errno::{Errno, Result};

    const AT_FDCWD: u64 = -100_i64 as u64;

    /// Serves the call in the registers; gives what RAX gets.
    pub(crate) fn serve(context: &mut Context<'_>) -> Result {
        let number = context.registers.rax;
        let arguments = arguments::of(context.registers);
        let result = call(context, number as u32, arguments);
        log::debug!("call {number} {arguments:x?}: {result:x?}");
        result
    }

    /// Whether a call that a signal interrupted is made again where its handler asks for
    /// that (`signal(7)`).
    pub(crate) fn restarts(number: u64) -> bool {
        let again = [
            nr::__NR_read,
            nr::__NR_readv,
            nr::__NR_write,
            nr::__NR_writev,
            nr::__NR_recvfrom,
            nr::__NR_recvmsg,
            nr::__NR_sendto,
            nr::__NR_sendmsg,
            nr::__NR_accept,
            nr::__NR_accept4,
            nr::__NR_connect,
            nr::__NR_futex,
        ];
        again.contains(&(number as u32))
    }

    #[allow(clippy::too_many_lines)] // a table
    fn call(c: &mut Context<'_>, number: u32, a: Arguments) -> Result {
        match number {
            nr::__NR_read => io::read(c, a[0], a[1], a[2]),
            nr::__NR_write => io::write(c, a[0], a[1], a[2]),
            nr::__NR_pread64 => io::pread(c, a),
            nr::__NR_pwrite64 => io::pwrite(c, a),
            nr::__NR_readv => io::readv(c, a[0], a[1], a[2]),
            nr::__NR_writev => io::writev(c, a[0], a[1], a[2]),
            nr::__NR_lseek => io::lseek(c, a[0], a[1], a[2]),
            nr::__NR_preadv => io::preadv(c, a),
            nr::__NR_pwritev => io::pwritev(c, a),
            nr::__NR_copy_file_range => io::copy_file_range(c, a),
            nr::__NR_sendfile => io::sendfile(c, a),

            nr::__NR_open => files::openat(c, AT_FDCWD, a[0], a[1], a[2]),
            nr::__NR_openat => files::openat(c, a[0], a[1], a[2], a[3]),
            nr::__NR_close => descriptors::close(c, a[0]),
            nr::__NR_close_range => descriptors::close_range(c, a[0], a[1], a[2]),
            nr::__NR_dup => descriptors::dup(c, a[0], None, 0),
            nr::__NR_dup2 if a[0] == a[1] => descriptors::open(c, a[0]).map(|_| a[0]),
            nr::__NR_dup2 => descriptors::dup(c, a[0], Some(a[1]), 0),
            nr::__NR_dup3 => descriptors::dup3(c, a[0], a[1], a[2]),
            nr::__NR_fcntl => descriptors::fcntl(c, a[0], a[1], a[2]),
            nr::__NR_ioctl => descriptors::ioctl(c, a[0], a[1], a[2]),
            nr::__NR_stat => status::newfstatat(c, [AT_FDCWD, a[0], a[1], 0, 0, 0]),
            nr::__NR_lstat => status::newfstatat(c, [AT_FDCWD, a[0], a[1], 0x100, 0, 0]),
            nr::__NR_fstat => status::fstat(c, a[0], a[1]),
            nr::__NR_newfstatat => status::newfstatat(c, a),
            nr::__NR_statx => status::statx(c, a),
            nr::__NR_getdents64 => descriptors::getdents(c, a[0], a[1], a[2]),
            nr::__NR_readlink => files::readlinkat(c, AT_FDCWD, a[0], a[1], a[2]),
            nr::__NR_readlinkat => files::readlinkat(c, a[0], a[1], a[2], a[3]),
            nr::__NR_access => files::access(c, AT_FDCWD, a[0], a[1]),
            nr::__NR_faccessat | nr::__NR_faccessat2 => files::access(c, a[0], a[1], a[2]),
            nr::__NR_mkdir => files::mkdirat(c, AT_FDCWD, a[0], a[1]),
            nr::__NR_mkdirat => files::mkdirat(c, a[0], a[1], a[2]),
            nr::__NR_unlink => files::unlinkat(c, AT_FDCWD, a[0], 0),
            nr::__NR_rmdir => files::unlinkat(c, AT_FDCWD, a[0], 0x200),
            nr::__NR_unlinkat => files::unlinkat(c, a[0], a[1], a[2]),
            nr::__NR_rename => files::renameat(c, [AT_FDCWD, a[0], AT_FDCWD, a[1], 0, 0]),
            nr::__NR_renameat => files::renameat(c, [a[0], a[1], a[2], a[3], 0, 0]),
            nr::__NR_renameat2 => files::renameat(c, a),
            nr::__NR_ftruncate => descriptors::truncate(c, a[0], a[1]),
            nr::__NR_fallocate => descriptors::fallocate(c, a[0], a[1], a[2], a[3]),
            nr::__NR_chmod => files::chmod(c, AT_FDCWD, a[0], a[1]),
            nr::__NR_fchmodat => files::chmod(c, a[0], a[1], a[2]),
            nr::__NR_getcwd => files::getcwd(c, a[0], a[1]),
            nr::__NR_chdir => files::chdir(c, a[0]),
            nr::__NR_fchdir => files::fchdir(c, a[0]),
            nr::__NR_truncate => files::truncate(c, a[0], a[1]),
            nr::__NR_symlink => files::symlinkat(c, a[0], AT_FDCWD, a[1]),
            nr::__NR_symlinkat => files::symlinkat(c, a[0], a[1], a[2]),
            nr::__NR_link => files::linkat(c, [AT_FDCWD, a[0], AT_FDCWD, a[1], 0, 0]),
            nr::__NR_linkat => files::linkat(c, a),
            nr::__NR_umask => files::umask(c, a[0]),
            nr::__NR_chown | nr::__NR_lchown => files::chown(c, AT_FDCWD, a[0]),
            nr::__NR_fchownat => files::chown(c, a[0], a[1]),
            nr::__NR_utimensat => files::utimensat(c, a),
            nr::__NR_fchmod => descriptors::fchmod(c, a[0], a[1]),
            nr::__NR_flock => descriptors::flock(c, a[0], a[1]),
            nr::__NR_statfs => status::statfs(c, a[0], a[1]),
            nr::__NR_fstatfs => status::fstatfs(c, a[0], a[1]),
            nr::__NR_fsync | nr::__NR_fdatasync => descriptors::fsync(c, a[0]),
            nr::__NR_syncfs
            | nr::__NR_sync_file_range
            | nr::__NR_readahead
            | nr::__NR_fadvise64
            | nr::__NR_fchown => descriptors::open(c, a[0]).map(|_| 0),
            nr::__NR_sync => Ok(0),

            nr::__NR_mmap => memory::mmap(c, a),
            nr::__NR_munmap => memory::munmap(c, a[0], a[1]),
            nr::__NR_mprotect => memory::mprotect(c, a[0], a[1], a[2]),
            nr::__NR_mremap => memory::mremap(c, a),
            nr::__NR_madvise => memory::madvise(c, a[0], a[1], a[2]),
            nr::__NR_brk => memory::brk(c, a[0]),
            nr::__NR_msync
            | nr::__NR_mlock
            | nr::__NR_munlock
            | nr::__NR_mlockall
            | nr::__NR_munlockall => Ok(0),
            nr::__NR_mincore => Err(Errno::ENOMEM),

            nr::__NR_epoll_create => {
                events::epoll_create(c, if a[0] as i32 > 0 { 0 } else { u64::MAX })
            }
            nr::__NR_epoll_create1 => events::epoll_create(c, a[0]),
            nr::__NR_epoll_ctl => events::epoll_ctl(c, a[0], a[1], a[2], a[3]),
            nr::__NR_epoll_wait => events::epoll_wait(c, a, events::deadline_ms(a[3]), None),
            nr::__NR_epoll_pwait => {
                let mask = events::mask(c, a[4], a[5])?;
                events::epoll_wait(c, a, events::deadline_ms(a[3]), mask)
            }
            nr::__NR_epoll_pwait2 => {
                let deadline = events::deadline(c, a[3])?;
                events::epoll_wait(c, a, deadline, events::mask(c, a[4], a[5])?)
            }
            nr::__NR_poll => events::poll_ms(c, a[0], a[1], a[2]),
            nr::__NR_ppoll => events::ppoll(c, a),
            nr::__NR_select => events::select(c, a, time::micros(c, a[4])?, None),
            nr::__NR_pselect6 => events::pselect(c, a),
            nr::__NR_eventfd => events::eventfd(c, a[0], 0),
            nr::__NR_eventfd2 => events::eventfd(c, a[0], a[1]),
            nr::__NR_timerfd_create => events::timerfd_create(c, a[0], a[1]),
            nr::__NR_timerfd_settime => events::timerfd_settime(c, a[0], a[1], a[2], a[3]),
            nr::__NR_timerfd_gettime => events::timerfd_gettime(c, a[0], a[1]),
            nr::__NR_pipe => events::pipe(c, a[0], 0),
            nr::__NR_pipe2 => events::pipe(c, a[0], a[1]),
            nr::__NR_socketpair => net::socketpair(c, a),

            nr::__NR_socket => net::socket(c, a[0], a[1]),
            nr::__NR_bind => net::bind(c, a[0], a[1], a[2]),
            nr::__NR_listen => net::listen(c, a[0], a[1]),
            nr::__NR_accept => net::accept(c, a[0], a[1], a[2], 0),
            nr::__NR_accept4 => net::accept(c, a[0], a[1], a[2], a[3]),
            nr::__NR_connect => net::connect(c, a[0], a[1], a[2]),
            nr::__NR_shutdown => net::shutdown(c, a[0], a[1]),
            nr::__NR_getsockname => net::name(c, a[0], a[1], a[2], net::Which::Local),
            nr::__NR_getpeername => net::name(c, a[0], a[1], a[2], net::Which::Peer),
            nr::__NR_sendto => net::sendto(c, a),
            nr::__NR_sendmsg => net::sendmsg(c, a[0], a[1], a[2]),
            nr::__NR_recvfrom => net::recvfrom(c, a),
            nr::__NR_recvmsg => net::recvmsg(c, a[0], a[1], a[2]),
            nr::__NR_sendmmsg => net::sendmmsg(c, a),
            nr::__NR_recvmmsg => net::recvmmsg(c, a),
            nr::__NR_setsockopt => options::setsockopt(c, a),
            nr::__NR_getsockopt => options::getsockopt(c, a),

            nr::__NR_clock_gettime => time::clock_gettime(c, a[0], a[1]),
            nr::__NR_clock_getres => time::clock_getres(c, a[0], a[1]),
            nr::__NR_gettimeofday => time::gettimeofday(c, a[0]),
            nr::__NR_time => time::time(c, a[0]),
            nr::__NR_nanosleep => time::sleep(c, 1, 0, a[0], a[1]),
            nr::__NR_clock_nanosleep => time::sleep(c, a[0], a[1], a[2], a[3]),

            nr::__NR_clone => threads::clone(
                c,
                threads::Clone {
                    flags: a[0],
                    stack: a[1],
                    parent_number: a[2],
                    child_number: a[3],
                    tls: a[4],
                },
            ),
            nr::__NR_clone3 => threads::clone3(c, a[0], a[1]),
            nr::__NR_fork => threads::refuse_fork(c, "fork"),
            nr::__NR_vfork => threads::refuse_fork(c, "vfork"),
            nr::__NR_execve | nr::__NR_execveat => threads::refuse_fork(c, "execve"),
            nr::__NR_futex => threads::futex(c, a),
            nr::__NR_sched_yield => {
                tare_libos::thread::yield_now();
                Ok(0)
            }
            nr::__NR_sched_getaffinity => threads::sched_getaffinity(c, a[1], a[2]),
            nr::__NR_sched_setaffinity | nr::__NR_setpriority => Ok(0),
            nr::__NR_sched_getscheduler | nr::__NR_sched_setscheduler => Ok(0),
            nr::__NR_set_robust_list => threads::set_robust_list(a[1]),
            nr::__NR_getpriority => Ok(20),
            nr::__NR_rt_sigaction => threads::rt_sigaction(c, a),
            nr::__NR_rt_sigprocmask => threads::rt_sigprocmask(c, a[0], a[1], a[2]),
            nr::__NR_rt_sigpending => threads::rt_sigpending(c, a[0]),
            nr::__NR_rt_sigtimedwait => threads::rt_sigtimedwait(c, a[0], a[1], a[2]),
            nr::__NR_setitimer => time::setitimer(c, a[0], a[1], a[2]),
            nr::__NR_getitimer => time::getitimer(c, a[0], a[1]),
            nr::__NR_alarm => time::alarm(c, a[0]),
            nr::__NR_times => system::times(c, a[0]),
            nr::__NR_rt_sigsuspend => threads::rt_sigsuspend(c, a[0]),
            nr::__NR_sigaltstack => threads::sigaltstack(c, a[0], a[1]),
            nr::__NR_kill => threads::kill(c, a[0], a[1]),
            nr::__NR_tkill => threads::tgkill(c, a[0], a[1]),
            nr::__NR_tgkill => threads::tgkill(c, a[1], a[2]),
            nr::__NR_pause => c.wait(&[], None, || Err(Errno::EAGAIN)),

            nr::__NR_arch_prctl => system::arch_prctl(c, a[0], a[1]),
            nr::__NR_prctl => system::prctl(c, a[0], a[1]),
            nr::__NR_uname => system::uname(c, a[0]),
            nr::__NR_getrandom => system::getrandom(c, a[0], a[1], a[2]),
            nr::__NR_prlimit64 => system::prlimit(c, a[1], a[3]),
            nr::__NR_getrlimit => system::prlimit(c, a[0], a[1]),
            nr::__NR_setrlimit => Ok(0),
            nr::__NR_sysinfo => system::sysinfo(c, a[0]),
            nr::__NR_getrusage => system::getrusage(c, a[0], a[1]),
            nr::__NR_exit_group => system::exit_group(a[0]),
            nr::__NR_set_tid_address => {
                let clear = &c.thread.clear_at_end;
                clear.store(a[0], core::sync::atomic::Ordering::Relaxed);
                Ok(c.thread.number.into())
            }
            nr::__NR_gettid => Ok(c.thread.number.into()),
            nr::__NR_getpid
            | nr::__NR_getpgrp
            | nr::__NR_getpgid
            | nr::__NR_getsid
            | nr::__NR_setsid => Ok(crate::process::PID.into()),
            nr::__NR_getppid
            | nr::__NR_getuid
            | nr::__NR_geteuid
            | nr::__NR_getgid
            | nr::__NR_getegid
            | nr::__NR_getgroups
            | nr::__NR_setuid
            | nr::__NR_setgid
            | nr::__NR_setgroups
            | nr::__NR_setresuid
            | nr::__NR_setresgid
            | nr::__NR_setpgid => Ok(0),
            // No child can end.
            nr::__NR_wait4 => Err(Errno::ECHILD),
            // glibc and musl go on without them.
            nr::__NR_rseq | nr::__NR_membarrier => Err(Errno::ENOSYS),
            _ => unknown(c, number),
        }
    }

    /// Logs an unknown call, once for each number.
    fn unknown(c: &Context<'_>, number: u32) -> Result {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        let mut logged = c.process.unknown.lock();
        if let Some(word) = logged.get_mut(word)
            && *word & bit == 0
        {
            *word |= bit;
            log::warn!("the program made system call {number}, which is missing here (ENOSYS)");
        }
        Err(Errno::ENOSYS)
    }
}
