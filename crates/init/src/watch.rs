//! Following commands by ptrace(2), to tell what the kernel refuses them. It slows
//! every system call down, so it is done where a proof has failed, to say why. Not by
//! the crate `nix`: it knows no real-time signals, which must be passed on too.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use libc::{c_int, c_long, c_void, pid_t};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use tare_init::refusal::{self, Refusal};

use crate::console::say;

/// Most kinds that are reported: a console is read to its end.
const MOST: usize = 1024;
/// Errors that say when, not what: a call that is to be made again, or waits.
const TIMING: &[i32] = &[
    libc::EINTR,
    libc::EAGAIN,
    libc::EINPROGRESS,
    libc::EALREADY,
    libc::ETIMEDOUT,
    libc::ECHILD,
    libc::ECONNREFUSED,
    libc::ENOTCONN,
];
/// From here on errors are the kernel's own (`include/linux/errno.h`).
const ERESTARTSYS: i32 = 512;
/// What a followed process reports; it ends with its follower.
const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

/// Has a command be followed from its start.
pub(crate) fn follow(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call and neither
    // allocates nor takes locks.
    unsafe {
        command.pre_exec(|| request(libc::PTRACE_TRACEME, 0, 0));
    }
}

/// What is followed, and what was reported of it.
#[derive(Default)]
pub(crate) struct Watch {
    reported: BTreeSet<Refusal>,
    /// Threads that have stopped once.
    known: BTreeSet<pid_t>,
}

impl Watch {
    /// Lets all that is followed run until `command` ends. Others that end meanwhile
    /// are reaped.
    pub(crate) fn until_it_ends(&mut self, command: Pid) -> Option<WaitStatus> {
        loop {
            // Without NOHANG it is `None` for no child at all.
            let (pid, status) = match wait(WaitOptions::empty()) {
                Err(Errno::INTR) => continue,
                ended => ended.ok()??,
            };
            let thread = pid.as_raw_nonzero().get();
            if let Some(signal) = status.stopping_signal() {
                self.stopped(thread, signal);
                continue;
            }
            self.known.remove(&thread);
            if pid == command {
                return Some(status);
            }
        }
    }

    /// A thread stopped: looks why, and lets it go on. One that was killed
    /// meanwhile is waited for in the next round.
    fn stopped(&mut self, pid: pid_t, signal: c_int) {
        /// `SIGTRAP` as system calls report it (`PTRACE_O_TRACESYSGOOD`).
        const SYSCALL: c_int = libc::SIGTRAP | 0x80;
        let is_new = self.known.insert(pid);
        if is_new {
            // New threads inherit them; for the first of a command they are set here.
            let _ = request(libc::PTRACE_SETOPTIONS, pid, c_long::from(OPTIONS));
        }
        let signal = match signal {
            SYSCALL => {
                if self.reported.len() < MOST
                    && let Some(refusal) = refused(pid)
                    && self.reported.insert(refusal.clone())
                {
                    say(&refusal.line());
                }
                0
            }
            // An exec, or an event of the options.
            libc::SIGTRAP => 0,
            // The stop that a new thread begins with.
            libc::SIGSTOP if is_new => 0,
            signal => signal,
        };
        let _ = request(libc::PTRACE_SYSCALL, pid, signal.into());
    }
}

/// The system call that a thread comes back from, if it was refused.
fn refused(pid: pid_t) -> Option<Refusal> {
    // SAFETY: both are plain data of the kernel's layout, of which zeros are a value.
    let (mut info, mut registers): (libc::ptrace_syscall_info, libc::user_regs_struct) =
        unsafe { mem::zeroed() };
    let size = mem::size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes of `info`.
    let known = unsafe {
        libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            pid,
            size as *mut c_void,
            (&raw mut info).cast::<c_void>(),
        )
    };
    if known < 0 || info.op != libc::PTRACE_SYSCALL_INFO_EXIT {
        return None;
    }
    // SAFETY: by `op` this is what the kernel wrote.
    let exit = unsafe { info.u.exit };
    let error = i32::try_from(exit.sval.checked_neg()?).ok()?;
    if exit.is_error == 0 || TIMING.contains(&error) || error >= ERESTARTSYS {
        return None;
    }
    // SAFETY: the kernel writes one such structure.
    let known = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGS,
            pid,
            ptr::null_mut::<c_void>(),
            (&raw mut registers).cast::<c_void>(),
        )
    };
    if known < 0 {
        return None;
    }
    let call = u32::try_from(registers.orig_rax).ok()?;
    let arguments = [
        registers.rdi,
        registers.rsi,
        registers.rdx,
        registers.r10,
        registers.r8,
        registers.r9,
    ];
    Some(Refusal {
        call,
        error: u16::try_from(error).ok()?,
        selectors: refusal::selectors(call)
            .iter()
            .map(|at| arguments[*at])
            .collect(),
        text: refusal::text(call).and_then(|at| string(pid, arguments[at])),
    })
}

/// A string of a stopped thread's memory, read word by word: the kernel may lack the
/// calls that read more at once.
fn string(pid: pid_t, address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < refusal::TEXT_BYTES {
        let at = address.checked_add(bytes.len() as u64)?;
        let mut word = 0_u64;
        // SAFETY: the kernel's own call, which gives the word by a pointer, where the
        // library's function gives it by value; it writes one word.
        let read = unsafe {
            libc::syscall(
                libc::SYS_ptrace,
                libc::c_long::from(libc::PTRACE_PEEKDATA),
                libc::c_long::from(pid),
                at,
                &raw mut word,
            )
        };
        if read < 0 {
            break;
        }
        let word = word.to_le_bytes();
        let text = word.split(|byte| *byte == 0).next().unwrap_or_default();
        bytes.extend_from_slice(text);
        if text.len() < word.len() {
            break;
        }
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    // Text that is not UTF-8 has grown.
    while text.len() > refusal::TEXT_BYTES {
        text.pop();
    }
    (!text.is_empty()).then_some(text)
}

/// A request without an address.
fn request(request: libc::c_uint, pid: pid_t, data: c_long) -> io::Result<()> {
    // SAFETY: of the requests here none has the kernel write to this process.
    let result = unsafe { libc::ptrace(request, pid, ptr::null_mut::<c_void>(), data) };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
