//! The system calls, by number (kernel `arch/x86/entry/syscalls/syscall_64.tbl`).

mod arguments;
#[cfg(target_os = "none")]
mod cores;
#[cfg(target_os = "none")]
mod descriptors;
#[cfg(target_os = "none")]
mod events;
#[cfg(target_os = "none")]
mod exec;
#[cfg(target_os = "none")]
mod files;
#[cfg(target_os = "none")]
mod hints;
#[cfg(target_os = "none")]
mod identity;
#[cfg(target_os = "none")]
mod inotify;
#[cfg(target_os = "none")]
mod interfaces;
#[cfg(target_os = "none")]
mod io;
#[cfg(target_os = "none")]
mod limits;
#[cfg(target_os = "none")]
mod memfd;
mod memory;
#[cfg(target_os = "none")]
mod message;
#[cfg(target_os = "none")]
mod net;
#[cfg(target_os = "none")]
mod openat2;
#[cfg(target_os = "none")]
mod options;
#[cfg(target_os = "none")]
mod parts;
#[cfg(target_os = "none")]
mod remap;
#[cfg(target_os = "none")]
mod rename;
#[cfg(target_os = "none")]
mod scheduling;
#[cfg(target_os = "none")]
mod signals;
#[cfg(target_os = "none")]
mod splice;
#[cfg(target_os = "none")]
mod status;
#[cfg(target_os = "none")]
pub(crate) mod system;
#[cfg(target_os = "none")]
mod threads;
#[cfg(target_os = "none")]
mod time;
#[cfg(target_os = "none")]
mod timers;
#[cfg(target_os = "none")]
mod unknown;

#[cfg(target_os = "none")]
pub(crate) use table::{continues_output, restarts, serve};

#[cfg(target_os = "none")]
mod table {
    use tare_program::Call;

    use super::arguments::{self, Arguments};
    use super::{
        cores, descriptors, events, exec, files, hints, identity, inotify, io, limits, memfd,
        memory, net, openat2, options,
    };
    use super::{
        remap, rename, scheduling, signals, splice, status, system, threads, time, timers, unknown,
    };
    use crate::context::Context;
    use crate::credentials::{Change, Whose};
    use crate::errno::{Errno, Result};
    use crate::files::tree::Last;
    use crate::process::PID;

    const AT_FDCWD: u64 = -100_i64 as u64;
    const CREATES: u64 = 0o1101; // O_CREAT, O_WRONLY and O_TRUNC
    const NOFOLLOW: u64 = linux_raw_sys::general::AT_SYMLINK_NOFOLLOW as u64;

    /// Serves the call in the registers; gives what RAX gets.
    pub(crate) fn serve(context: &mut Context<'_>) -> Result {
        let number = context.registers.rax;
        let arguments = arguments::of(context.registers);
        let result = match Call::of(number as u32) {
            Some(call) => answer(context, call, arguments),
            None => unknown::unknown(context, number as u32),
        };
        log::debug!("call {number} {arguments:x?}: {result:x?}");
        result
    }

    /// Whether a call that a signal interrupted is made again where its handler asks for
    /// that (`signal(7)`).
    pub(crate) fn restarts(number: u64) -> bool {
        matches!(
            Call::of(number as u32),
            Some(
                Call::read
                    | Call::readv
                    | Call::write
                    | Call::writev
                    | Call::recvfrom
                    | Call::recvmsg
                    | Call::recvmmsg
                    | Call::sendto
                    | Call::sendmsg
                    | Call::accept
                    | Call::accept4
                    | Call::connect
                    | Call::futex
                    | Call::flock
                    | Call::sendfile
                    | Call::splice
                    | Call::preadv2
                    | Call::pwritev2
                    | Call::sendmmsg
            )
        )
    }

    /// Whether what was written before a call and what is written after it go together: a program
    /// that answers several peers in turn reads, opens files and writes. A call that has to wait
    /// sends what was written by then, and so does one that finds nothing (`run`).
    pub(crate) fn continues_output(number: u64) -> bool {
        matches!(
            Call::of(number as u32),
            Some(
                Call::write
                    | Call::writev
                    | Call::sendto
                    | Call::sendmsg
                    | Call::sendmmsg
                    | Call::sendfile
                    | Call::read
                    | Call::readv
                    | Call::pread64
                    | Call::preadv
                    | Call::recvfrom
                    | Call::recvmsg
                    | Call::accept
                    | Call::accept4
                    | Call::open
                    | Call::openat
                    | Call::openat2
                    | Call::fstat
                    | Call::newfstatat
                    | Call::close
                    | Call::setsockopt
                    | Call::epoll_ctl
                    | Call::clock_gettime
                    | Call::gettimeofday
                    | Call::time
                    | Call::getpid
                    | Call::gettid
            )
        )
    }

    #[allow(clippy::too_many_lines)] // a table
    fn answer(c: &mut Context<'_>, call: Call, a: Arguments) -> Result {
        match call {
            Call::read => io::read(c, a[0], a[1], a[2]),
            Call::write => io::write(c, a[0], a[1], a[2]),
            Call::pread64 => io::pread(c, a),
            Call::pwrite64 => io::pwrite(c, a),
            Call::readv => io::readv(c, a[0], a[1], a[2]),
            Call::writev => io::writev(c, a[0], a[1], a[2]),
            Call::lseek => io::lseek(c, a[0], a[1], a[2]),
            Call::preadv => io::preadv(c, a),
            Call::pwritev => io::pwritev(c, a),
            Call::preadv2 => io::preadv2(c, a),
            Call::pwritev2 => io::pwritev2(c, a),
            Call::copy_file_range => io::copy_file_range(c, a),
            Call::sendfile => io::sendfile(c, a),
            Call::splice => splice::splice(c, a),

            Call::open => files::openat(c, AT_FDCWD, a[0], a[1], a[2]),
            Call::openat => files::openat(c, a[0], a[1], a[2], a[3]),
            Call::openat2 => openat2::openat2(c, a),
            Call::creat => files::openat(c, AT_FDCWD, a[0], CREATES, a[1]),
            Call::memfd_create => memfd::memfd_create(c, a[0], a[1]),
            Call::close => descriptors::close(c, a[0]),
            Call::close_range => descriptors::close_range(c, a[0], a[1], a[2]),
            Call::dup => descriptors::dup(c, a[0], None, 0),
            Call::dup2 if a[0] == a[1] => descriptors::open(c, a[0]).map(|_| a[0]),
            Call::dup2 => descriptors::dup(c, a[0], Some(a[1]), 0),
            Call::dup3 => descriptors::dup3(c, a[0], a[1], a[2]),
            Call::fcntl => descriptors::fcntl(c, a[0], a[1], a[2]),
            Call::ioctl => descriptors::ioctl(c, a[0], a[1], a[2]),
            Call::stat => status::newfstatat(c, [AT_FDCWD, a[0], a[1], 0, 0, 0]),
            Call::lstat => status::newfstatat(c, [AT_FDCWD, a[0], a[1], 0x100, 0, 0]),
            Call::fstat => status::fstat(c, a[0], a[1]),
            Call::newfstatat => status::newfstatat(c, a),
            Call::statx => status::statx(c, a),
            Call::getdents64 => descriptors::getdents(c, a[0], a[1], a[2]),
            Call::readlink => files::readlinkat(c, AT_FDCWD, a[0], a[1], a[2]),
            Call::readlinkat => files::readlinkat(c, a[0], a[1], a[2], a[3]),
            Call::access => files::access(c, AT_FDCWD, a[0], a[1], 0),
            Call::faccessat => files::access(c, a[0], a[1], a[2], 0),
            Call::faccessat2 => files::access(c, a[0], a[1], a[2], a[3]),
            Call::mkdir => files::mkdirat(c, AT_FDCWD, a[0], a[1]),
            Call::mkdirat => files::mkdirat(c, a[0], a[1], a[2]),
            Call::unlink => rename::unlinkat(c, AT_FDCWD, a[0], 0),
            Call::rmdir => rename::unlinkat(c, AT_FDCWD, a[0], 0x200),
            Call::unlinkat => rename::unlinkat(c, a[0], a[1], a[2]),
            Call::rename => rename::renameat(c, [AT_FDCWD, a[0], AT_FDCWD, a[1], 0, 0]),
            Call::renameat => rename::renameat(c, [a[0], a[1], a[2], a[3], 0, 0]),
            Call::renameat2 => rename::renameat(c, a),
            Call::ftruncate => descriptors::truncate(c, a[0], a[1]),
            Call::fallocate => descriptors::fallocate(c, a[0], a[1], a[2], a[3]),
            Call::chmod => files::chmod(c, AT_FDCWD, a[0], a[1], 0),
            Call::fchmodat => files::chmod(c, a[0], a[1], a[2], 0),
            Call::fchmodat2 => files::chmod(c, a[0], a[1], a[2], a[3]),
            Call::getcwd => files::getcwd(c, a[0], a[1]),
            Call::chdir => files::chdir(c, a[0]),
            Call::fchdir => files::fchdir(c, a[0]),
            Call::truncate => files::truncate(c, a[0], a[1]),
            Call::symlink => files::symlinkat(c, a[0], AT_FDCWD, a[1]),
            Call::symlinkat => files::symlinkat(c, a[0], a[1], a[2]),
            Call::link => files::linkat(c, [AT_FDCWD, a[0], AT_FDCWD, a[1], 0, 0]),
            Call::linkat => files::linkat(c, a),
            Call::umask => files::umask(c, a[0]),
            Call::chown => files::chown(c, [AT_FDCWD, a[0], a[1], a[2], 0, 0]),
            Call::lchown => files::chown(c, [AT_FDCWD, a[0], a[1], a[2], NOFOLLOW, 0]),
            Call::fchownat => files::chown(c, a),
            Call::utimensat => files::utimensat(c, a),
            Call::fchmod => descriptors::fchmod(c, a[0], a[1]),
            Call::flock => descriptors::flock(c, a[0], a[1]),
            Call::listxattr => files::no_attributes(c, a[0], Last::Follow).map(|()| 0),
            Call::llistxattr => files::no_attributes(c, a[0], Last::Keep).map(|()| 0),
            Call::flistxattr => descriptors::open(c, a[0]).map(|_| 0),
            Call::getxattr | Call::removexattr => {
                files::no_attributes(c, a[0], Last::Follow)?;
                files::attribute(c, a[1], 0, 0)
            }
            Call::lgetxattr | Call::lremovexattr => {
                files::no_attributes(c, a[0], Last::Keep)?;
                files::attribute(c, a[1], 0, 0)
            }
            Call::fgetxattr | Call::fremovexattr => {
                descriptors::open(c, a[0])?;
                files::attribute(c, a[1], 0, 0)
            }
            Call::setxattr => {
                files::no_attributes(c, a[0], Last::Follow)?;
                files::attribute(c, a[1], a[2], a[3])
            }
            Call::lsetxattr => {
                files::no_attributes(c, a[0], Last::Keep)?;
                files::attribute(c, a[1], a[2], a[3])
            }
            Call::fsetxattr => {
                descriptors::open(c, a[0])?;
                files::attribute(c, a[1], a[2], a[3])
            }
            Call::statfs => status::statfs(c, a[0], a[1]),
            Call::fstatfs => status::fstatfs(c, a[0], a[1]),
            Call::fsync | Call::fdatasync => descriptors::fsync(c, a[0]),
            Call::syncfs => descriptors::syncfs(c, a[0]),
            Call::fadvise64 => hints::fadvise(c, a[0], a[2], a[3]),
            Call::readahead => hints::readahead(c, a[0]),
            Call::sync_file_range => hints::sync_file_range(c, a[0], a[1], a[2], a[3]),
            Call::fchown => descriptors::fchown(c, a[0], a[1], a[2]),
            Call::sync => descriptors::sync(c),

            Call::mmap => memory::mmap(c, a),
            Call::munmap => memory::munmap(c, a[0], a[1]),
            Call::mprotect => memory::mprotect(c, a[0], a[1], a[2]),
            Call::mremap => remap::mremap(c, a),
            Call::madvise => memory::madvise(c, a[0], a[1], a[2]),
            Call::brk => memory::brk(c, a[0]),
            Call::msync => memory::msync(c, a[0], a[1], a[2]),
            Call::mlock | Call::munlock => memory::mlock(c, a[0], a[1]),
            Call::mlock2 if a[2] as u32 & !1 != 0 => Err(Errno::EINVAL),
            Call::mlock2 => memory::mlock(c, a[0], a[1]),
            Call::mlockall => memory::mlockall(a[0]),
            Call::munlockall => Ok(0),
            Call::mincore => memory::mincore(c, a[0], a[1], a[2]),

            Call::epoll_create => {
                events::epoll_create(c, if a[0] as i32 > 0 { 0 } else { u64::MAX })
            }
            Call::epoll_create1 => events::epoll_create(c, a[0]),
            Call::epoll_ctl => events::epoll_ctl(c, a[0], a[1], a[2], a[3]),
            Call::epoll_wait => events::epoll_wait(c, a, events::deadline_ms(a[3]), None),
            Call::epoll_pwait => {
                let mask = events::mask(c, a[4], a[5])?;
                events::epoll_wait(c, a, events::deadline_ms(a[3]), mask)
            }
            Call::epoll_pwait2 => {
                let deadline = events::deadline(c, a[3])?;
                events::epoll_wait(c, a, deadline, events::mask(c, a[4], a[5])?)
            }
            Call::poll => events::poll_ms(c, a[0], a[1], a[2]),
            Call::ppoll => events::ppoll(c, a),
            Call::select => events::select(c, a),
            Call::pselect6 => events::pselect(c, a),
            Call::eventfd => events::eventfd(c, a[0], 0),
            Call::eventfd2 => events::eventfd(c, a[0], a[1]),
            Call::signalfd => events::signalfd(c, a, 0),
            Call::signalfd4 => events::signalfd(c, a, a[3]),
            Call::timerfd_create => events::timerfd_create(c, a[0], a[1]),
            Call::timerfd_settime => events::timerfd_settime(c, a[0], a[1], a[2], a[3]),
            Call::timerfd_gettime => events::timerfd_gettime(c, a[0], a[1]),
            Call::inotify_init => inotify::init(c, 0),
            Call::inotify_init1 => inotify::init(c, a[0]),
            Call::inotify_add_watch => inotify::add_watch(c, a[0], a[1], a[2]),
            Call::inotify_rm_watch => inotify::remove_watch(c, a[0], a[1]),
            Call::pipe => events::pipe(c, a[0], 0),
            Call::pipe2 => events::pipe(c, a[0], a[1]),
            Call::socketpair => net::socketpair(c, a),

            Call::socket => net::socket(c, a[0], a[1], a[2]),
            Call::bind => net::bind(c, a[0], a[1], a[2]),
            Call::listen => net::listen(c, a[0], a[1]),
            Call::accept => net::accept(c, a[0], a[1], a[2], 0),
            Call::accept4 => net::accept(c, a[0], a[1], a[2], a[3]),
            Call::connect => net::connect(c, a[0], a[1], a[2]),
            Call::shutdown => net::shutdown(c, a[0], a[1]),
            Call::getsockname => net::name(c, a[0], a[1], a[2], net::Which::Local),
            Call::getpeername => net::name(c, a[0], a[1], a[2], net::Which::Peer),
            Call::sendto => net::sendto(c, a),
            Call::sendmsg => net::sendmsg(c, a[0], a[1], a[2]),
            Call::recvfrom => net::recvfrom(c, a),
            Call::recvmsg => net::recvmsg(c, a[0], a[1], a[2]),
            Call::sendmmsg => net::sendmmsg(c, a),
            Call::recvmmsg => net::recvmmsg(c, a),
            Call::setsockopt => options::setsockopt(c, a),
            Call::getsockopt => options::getsockopt(c, a),

            Call::clock_gettime => time::clock_gettime(c, a[0], a[1]),
            Call::clock_getres => time::clock_getres(c, a[0], a[1]),
            Call::clock_settime => time::clock_settime(c, a[0], a[1]),
            Call::gettimeofday => time::gettimeofday(c, a[0], a[1]),
            Call::time => time::time(c, a[0]),
            Call::nanosleep => time::sleep(c, 1, 0, a[0], a[1]),
            Call::clock_nanosleep => time::sleep(c, a[0], a[1], a[2], a[3]),

            Call::clone => threads::clone(
                c,
                threads::Clone {
                    flags: a[0],
                    stack: a[1],
                    parent_number: a[2],
                    child_number: a[3],
                    tls: a[4],
                },
            ),
            Call::clone3 => threads::clone3(c, a[0], a[1]),
            Call::fork => threads::refuse_fork(c, "fork"),
            Call::vfork => threads::refuse_fork(c, "vfork"),
            Call::execve => exec::execve(c, a[0], a[1], a[2]),
            Call::execveat => exec::execveat(c, a),
            Call::futex => threads::futex(c, a),
            Call::sched_yield => {
                // What others run meanwhile is not CPU time of this thread.
                c.thread.wait(tare_libos::thread::yield_now);
                Ok(0)
            }
            Call::getcpu => cores::getcpu(c, a[0], a[1]),
            Call::sched_getaffinity => cores::getaffinity(c, a[0], a[1], a[2]),
            Call::sched_setaffinity => cores::setaffinity(c, a[0], a[1], a[2]),
            Call::getpriority => cores::getpriority(c, a[0], a[1]),
            Call::setpriority => cores::setpriority(c, a[0], a[1], a[2]),
            Call::membarrier => cores::membarrier(c, a[0], a[1]),
            Call::sched_setscheduler => scheduling::sched_setscheduler(c, a[0], a[1], a[2]),
            Call::sched_getscheduler => scheduling::sched_getscheduler(c, a[0]),
            Call::sched_setparam => scheduling::sched_setparam(c, a[0], a[1]),
            Call::sched_setattr => scheduling::sched_setattr(c, a[0], a[1], a[2]),
            Call::sched_getattr => scheduling::sched_getattr(c, a[0], a[1], a[2], a[3]),
            Call::sched_getparam => scheduling::sched_getparam(c, a[0], a[1]),
            Call::sched_get_priority_max => scheduling::sched_get_priority_max(a[0]),
            Call::sched_get_priority_min => scheduling::sched_get_priority_min(a[0]),
            Call::sched_rr_get_interval => scheduling::sched_rr_get_interval(c, a[0], a[1]),
            Call::get_robust_list => threads::get_robust_list(c, a[0], a[1], a[2]),
            Call::set_robust_list => threads::set_robust_list(c, a[0], a[1]),
            Call::rt_sigaction => signals::rt_sigaction(c, a),
            Call::rt_sigprocmask => signals::rt_sigprocmask(c, a[0], a[1], a[2]),
            Call::rt_sigpending => signals::rt_sigpending(c, a[0]),
            Call::rt_sigtimedwait => signals::rt_sigtimedwait(c, a[0], a[1], a[2]),
            Call::rt_sigqueueinfo => signals::rt_sigqueueinfo(c, a[0], a[1], a[2]),
            Call::rt_tgsigqueueinfo => signals::rt_tgsigqueueinfo(c, a),
            Call::setitimer => timers::setitimer(c, a[0], a[1], a[2]),
            Call::getitimer => timers::getitimer(c, a[0], a[1]),
            Call::alarm => timers::alarm(c, a[0]),
            Call::timer_create => timers::timer_create(c, a[0], a[1], a[2]),
            Call::timer_settime => timers::timer_settime(c, a[0], a[1], a[2], a[3]),
            Call::timer_gettime => timers::timer_gettime(c, a[0], a[1]),
            Call::timer_getoverrun => timers::timer_getoverrun(c, a[0]),
            Call::timer_delete => timers::timer_delete(c, a[0]),
            Call::times => system::times(c, a[0]),
            Call::rt_sigsuspend => signals::rt_sigsuspend(c, a[0]),
            Call::sigaltstack => signals::sigaltstack(c, a[0], a[1]),
            Call::kill => signals::kill(c, a[0], a[1]),
            Call::tkill => signals::tgkill(c, PID.into(), a[0], a[1]),
            Call::tgkill => signals::tgkill(c, a[0], a[1], a[2]),
            Call::pause => c.wait(&[], None, || Err(Errno::EAGAIN)),

            Call::arch_prctl => system::arch_prctl(c, a[0], a[1]),
            Call::prctl => system::prctl(c, a),
            Call::uname => system::uname(c, a[0]),
            Call::getrandom => system::getrandom(c, a[0], a[1], a[2]),
            Call::prlimit64 => limits::prlimit(c, a[0], a[1], a[2], a[3]),
            Call::getrlimit => limits::getrlimit(c, a[0], a[1]),
            Call::setrlimit => limits::setrlimit(c, a[0], a[1]),
            Call::sysinfo => system::sysinfo(c, a[0]),
            Call::getrusage => system::getrusage(c, a[0], a[1]),
            Call::exit_group => system::exit_group(c, a[0]),
            Call::set_tid_address => {
                let clear = &c.thread.clear_at_end;
                clear.store(a[0], core::sync::atomic::Ordering::Relaxed);
                Ok(c.thread.number.into())
            }
            Call::gettid => Ok(c.thread.number.into()),
            Call::getpid | Call::getpgrp | Call::setsid => Ok(PID.into()),
            // ESRCH for another process.
            Call::getpgid | Call::getsid => threads::thread_of(c, a[0]).map(|_| PID.into()),
            Call::getppid | Call::setpgid => Ok(0),
            Call::getuid => identity::real(c, Whose::User),
            Call::getgid => identity::real(c, Whose::Group),
            Call::geteuid | Call::setfsuid => identity::effective(c, Whose::User),
            Call::getegid | Call::setfsgid => identity::effective(c, Whose::Group),
            Call::getresuid => identity::all(c, Whose::User, a),
            Call::getresgid => identity::all(c, Whose::Group, a),
            Call::setuid => identity::change(c, Whose::User, Change::One(a[0] as u32)),
            Call::setgid => identity::change(c, Whose::Group, Change::One(a[0] as u32)),
            Call::setreuid => identity::change(c, Whose::User, both(a)),
            Call::setregid => identity::change(c, Whose::Group, both(a)),
            Call::setresuid => identity::change(c, Whose::User, all(a)),
            Call::setresgid => identity::change(c, Whose::Group, all(a)),
            Call::getgroups => identity::getgroups(c, a[0], a[1]),
            Call::setgroups => identity::setgroups(c, a[0], a[1]),
            Call::capget => identity::capget(c, a[0], a[1]),
            Call::capset => identity::capset(c, a[0], a[1]),
            // No child can end.
            Call::wait4 => Err(Errno::ECHILD),
            Call::waitid => system::waitid(c, a),
            // C libraries go on without the first; a thread's loop serves the others.
            Call::rseq | Call::exit | Call::rt_sigreturn => Err(Errno::ENOSYS),
        }
    }

    const fn both(a: Arguments) -> Change {
        Change::Both(a[0] as u32, a[1] as u32)
    }

    const fn all(a: Arguments) -> Change {
        Change::All([a[0] as u32, a[1] as u32, a[2] as u32])
    }
}
