//! The system calls, by number (kernel `arch/x86/entry/syscalls/syscall_64.tbl`).

#[cfg(target_os = "none")]
mod events;
#[cfg(target_os = "none")]
mod files;
#[cfg(target_os = "none")]
mod io;
mod memory;
#[cfg(target_os = "none")]
mod net;
#[cfg(target_os = "none")]
pub(crate) mod system;
#[cfg(target_os = "none")]
mod threads;
#[cfg(target_os = "none")]
mod time;

use crate::errno::Result;

/// A call's arguments, in order: RDI, RSI, RDX, R10, R8, R9.
type Arguments = [u64; 6];

#[cfg(target_os = "none")]
pub(crate) use table::{restarts, serve};

#[cfg(target_os = "none")]
mod table {
    use linux_raw_sys::general as nr;
    use tare_libos::time::Duration;

    use super::{Arguments, Result, events, files, io, memory, net, system, threads, time};
    use crate::errno::Errno;
    use crate::thread::Context;

    const AT_FDCWD: u64 = -100_i64 as u64;

    /// Serves the call in the registers; gives what RAX gets.
    pub(crate) fn serve(context: &mut Context<'_>) -> Result {
        let registers = &context.registers;
        let number = registers.rax;
        let arguments = [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ];
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
            nr::__NR_sendfile => io::sendfile(c, a),

            nr::__NR_open => files::openat(c, AT_FDCWD, a[0], a[1], a[2]),
            nr::__NR_openat => files::openat(c, a[0], a[1], a[2], a[3]),
            nr::__NR_close => files::close(c, a[0]),
            nr::__NR_close_range => files::close_range(c, a[0], a[1]),
            nr::__NR_dup => files::dup(c, a[0], None, 0),
            nr::__NR_dup2 if a[0] == a[1] => io::open(c, a[0]).map(|_| a[0]),
            nr::__NR_dup2 => files::dup(c, a[0], Some(a[1]), 0),
            nr::__NR_dup3 => files::dup(c, a[0], Some(a[1]), a[2]),
            nr::__NR_fcntl => files::fcntl(c, a[0], a[1], a[2]),
            nr::__NR_ioctl => files::ioctl(c, a[0], a[1], a[2]),
            nr::__NR_stat => files::newfstatat(c, [AT_FDCWD, a[0], a[1], 0, 0, 0]),
            nr::__NR_lstat => files::newfstatat(c, [AT_FDCWD, a[0], a[1], 0x100, 0, 0]),
            nr::__NR_fstat => files::fstat(c, a[0], a[1]),
            nr::__NR_newfstatat => files::newfstatat(c, a),
            nr::__NR_statx => files::statx(c, a),
            nr::__NR_getdents64 => files::getdents(c, a[0], a[1], a[2]),
            nr::__NR_readlink => files::readlinkat(c, AT_FDCWD, a[0], a[1], a[2]),
            nr::__NR_readlinkat => files::readlinkat(c, a[0], a[1], a[2], a[3]),
            nr::__NR_access => files::access(c, AT_FDCWD, a[0]),
            nr::__NR_faccessat | nr::__NR_faccessat2 => files::access(c, a[0], a[1]),
            nr::__NR_mkdir => files::mkdirat(c, AT_FDCWD, a[0], a[1]),
            nr::__NR_mkdirat => files::mkdirat(c, a[0], a[1], a[2]),
            nr::__NR_unlink => files::unlinkat(c, AT_FDCWD, a[0], 0),
            nr::__NR_rmdir => files::unlinkat(c, AT_FDCWD, a[0], 0x200),
            nr::__NR_unlinkat => files::unlinkat(c, a[0], a[1], a[2]),
            nr::__NR_rename => files::renameat(c, [AT_FDCWD, a[0], AT_FDCWD, a[1], 0, 0]),
            nr::__NR_renameat => files::renameat(c, a),
            nr::__NR_renameat2 if a[4] == 0 => files::renameat(c, a),
            nr::__NR_ftruncate => files::truncate(c, a[0], a[1]),
            nr::__NR_fallocate => files::fallocate(c, a[0], a[1], a[2], a[3]),
            nr::__NR_chmod => files::chmod(c, AT_FDCWD, a[0], a[1]),
            nr::__NR_fchmodat => files::chmod(c, a[0], a[1], a[2]),
            nr::__NR_getcwd => files::getcwd(c, a[0], a[1]),
            nr::__NR_chdir => files::chdir(c, a[0]),
            nr::__NR_statfs | nr::__NR_fstatfs => files::statfs(c, a[1]),
            nr::__NR_fsync
            | nr::__NR_fdatasync
            | nr::__NR_flock
            | nr::__NR_fadvise64
            | nr::__NR_fchmod
            | nr::__NR_fchown => io::open(c, a[0]).map(|_| 0),
            nr::__NR_sync
            | nr::__NR_umask
            | nr::__NR_chown
            | nr::__NR_fchownat
            | nr::__NR_utimensat => Ok(0),

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

            nr::__NR_epoll_create => events::epoll_create(c, 0),
            nr::__NR_epoll_create1 => events::epoll_create(c, a[0]),
            nr::__NR_epoll_ctl => events::epoll_ctl(c, a[0], a[1], a[2], a[3]),
            nr::__NR_epoll_wait | nr::__NR_epoll_pwait => {
                events::epoll_wait(c, a[0], a[1], a[2], a[3])
            }
            nr::__NR_poll => events::poll_ms(c, a[0], a[1], a[2]),
            nr::__NR_ppoll => events::ppoll(c, a[0], a[1], a[2]),
            nr::__NR_select | nr::__NR_pselect6 => {
                let timeout = match a[4] {
                    0 => None,
                    at if number == nr::__NR_pselect6 => Some(time::duration(c, at)?),
                    at => {
                        let micros = c.process.u64(at.wrapping_add(8))?;
                        let seconds = c.process.u64(at)?.min(u32::MAX.into());
                        Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
                    }
                };
                events::select(c, a, timeout)
            }
            nr::__NR_eventfd => events::eventfd(c, a[0], 0),
            nr::__NR_eventfd2 => events::eventfd(c, a[0], a[1]),
            nr::__NR_timerfd_create => events::timerfd_create(c, a[1]),
            nr::__NR_timerfd_settime => events::timerfd_settime(c, a[0], a[1], a[2], a[3]),
            nr::__NR_timerfd_gettime => events::timerfd_gettime(c, a[0], a[1]),
            nr::__NR_pipe => events::pipe(c, a[0], 0),
            nr::__NR_pipe2 => events::pipe(c, a[0], a[1]),
            nr::__NR_socketpair => events::socketpair(c, a[1], a[3]),

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
            nr::__NR_setsockopt => net::setsockopt(c, a),
            nr::__NR_getsockopt => net::getsockopt(c, a),

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
            nr::__NR_sched_setaffinity | nr::__NR_setpriority | nr::__NR_set_robust_list => Ok(0),
            nr::__NR_getpriority => Ok(20),
            nr::__NR_rt_sigaction => threads::rt_sigaction(c, a[0], a[1], a[2]),
            nr::__NR_rt_sigprocmask => threads::rt_sigprocmask(c, a[0], a[1], a[2]),
            nr::__NR_rt_sigsuspend => threads::rt_sigsuspend(c, a[0]),
            nr::__NR_sigaltstack => threads::sigaltstack(c, a[0], a[1]),
            nr::__NR_kill => threads::kill(c, a[0], a[1]),
            nr::__NR_tkill => threads::tgkill(c, a[0], a[1]),
            nr::__NR_tgkill => threads::tgkill(c, a[1], a[2]),
            nr::__NR_pause => c.wait(&[], None, || Err(Errno::EAGAIN)),

            nr::__NR_arch_prctl => system::arch_prctl(c, a[0], a[1]),
            nr::__NR_prctl => system::prctl(c, a[0], a[1]),
            nr::__NR_uname => system::uname(c, a[0]),
            nr::__NR_getrandom => system::getrandom(c, a[0], a[1]),
            nr::__NR_prlimit64 => system::prlimit(c, a[1], a[3]),
            nr::__NR_getrlimit => system::prlimit(c, a[0], a[1]),
            nr::__NR_setrlimit => Ok(0),
            nr::__NR_sysinfo => system::sysinfo(c, a[0]),
            nr::__NR_getrusage => system::getrusage(c, a[1]),
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
