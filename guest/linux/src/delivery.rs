//! Signals on their way: what waits, what a thread takes, and the frame that a handler gets
//! (kernel `arch/x86/kernel/signal_64.c`, `include/uapi/asm-generic/siginfo.h`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SIGCHLD, SIGCONT, SIGURG, SIGWINCH,
};

use crate::errno::{Errno, Result};
use crate::pending::Info;
use crate::process::Process;
use crate::ring;
use crate::signals::{Action, DEFAULT, END, IGNORE, Mask};
use crate::thread::{Registers, Thread};

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// The frame: return address, `ucontext`, `siginfo`.
const CONTEXT_BYTES: usize = 304;
const FRAME_BYTES: usize = 8 + CONTEXT_BYTES + 128;
/// Offsets in `ucontext`.
const STACK_AT: usize = 16;
const REGISTERS_AT: usize = 40;
const VECTORS_AT: usize = 224;
const MASK_AT: usize = 296;
const SELECTORS: u64 = 0x33 | 0x2b << 48;

/// A signal that a thread takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) signal: u32,
    pub(crate) does: Does,
    pub(crate) info: Info,
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// It ends the process.
    End,
    /// It calls a handler.
    Handler(Action),
}

impl Taken {
    /// What the handler gets.
    pub(crate) fn cause(&self) -> Cause {
        Cause {
            info: self.info,
            ..Cause::default()
        }
    }
}

/// What is behind a signal, with the numbers of a fault if it is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) info: Info,
    pub(crate) address: u64,
    pub(crate) error: u64,
    pub(crate) vector: u64,
}

impl Process {
    /// Leaves a signal for a thread, or for any; EAGAIN if too many wait.
    pub(crate) fn send(&self, thread: Option<&Thread>, signal: u32, info: Info) -> Result<()> {
        self.leave(thread, signal, info)?;
        if let Some(thread) = thread {
            thread.interrupt();
            return Ok(());
        }
        let bit = Mask::of(signal).0;
        let threads = self.threads.lock();
        let takes = |thread: &&Arc<Thread>| thread.mask().0 & bit == 0;
        if let Some(thread) = threads.values().find(takes) {
            thread.interrupt();
        }
        Ok(())
    }

    /// The same, without an interrupt of who takes it.
    pub(crate) fn leave(&self, thread: Option<&Thread>, signal: u32, info: Info) -> Result<()> {
        let pending = thread.map_or(&self.pending, |thread| &thread.pending);
        pending.add(signal, info)?;
        self.arrivals.note();
        Ok(())
    }

    /// Signals that wait and that the thread takes.
    fn due(&self, thread: &Thread) -> u64 {
        self.waiting(thread).0 & !thread.mask().0
    }

    /// Whether a signal ends a wait of the thread: one with a handler, or one that
    /// ends the process.
    pub(crate) fn has_signal(&self, thread: &Thread) -> bool {
        self.ends_wait(thread).is_some()
    }

    /// The same, and no other thread takes the signal afterwards: a call ends with EINTR only in the
    /// thread that calls the handler.
    pub(crate) fn claim_signal(&self, thread: &Thread) -> bool {
        while let Some(signal) = self.ends_wait(thread) {
            if thread.pending.bits() & Mask::of(signal).0 != 0 {
                return true;
            }
            // Otherwise another thread took it.
            if let Some(info) = self.pending.take(signal) {
                thread.pending.adopt(signal, info);
                return true;
            }
        }
        false
    }

    fn ends_wait(&self, thread: &Thread) -> Option<u32> {
        let due = self.due(thread);
        if due == 0 {
            return None;
        }
        let actions = self.actions.lock();
        (1..END).find(|&signal| {
            due & Mask::of(signal).0 != 0 && does(actions.get(signal), signal).is_some()
        })
    }

    /// Takes the next signal that does something.
    pub(crate) fn take_signal(&self, thread: &Thread) -> Option<Taken> {
        loop {
            let due = self.due(thread);
            if due == 0 {
                return None;
            }
            let signal = first_of(thread, due);
            // Otherwise another thread took it.
            let Some(info) = self.remove(thread, signal) else {
                continue;
            };
            let action = self.actions.lock().get(signal);
            if let Some(does) = does(action, signal) {
                return Some(Taken { signal, does, info });
            }
        }
    }

    /// Takes a signal that waits.
    fn remove(&self, thread: &Thread, signal: u32) -> Option<Info> {
        let own = thread.pending.take(signal);
        let mut info = own.or_else(|| self.pending.take(signal))?;
        if let Some(timer) = info.timer {
            info.origin = ring::taken(self, thread, timer);
        }
        Some(info)
    }

    /// Takes the first signal of a set that waits, blocked or not (`sigtimedwait(2)`).
    pub(crate) fn take_of(&self, thread: &Thread, set: Mask) -> Option<(u32, Info)> {
        let due = self.waiting(thread).0 & set.0;
        let signal = (due != 0).then(|| first_of(thread, due))?;
        Some((signal, self.remove(thread, signal)?))
    }

    /// Signals that wait, blocked or not.
    pub(crate) fn waiting(&self, thread: &Thread) -> Mask {
        Mask(thread.pending.bits() | self.pending.bits())
    }

    /// Lets signals that wait go, as they do where the program ignores them. Timers whose signals
    /// these are go on.
    pub(crate) fn discard(&self, by: &Thread, signal: u32) {
        let threads: Vec<_> = self.threads.lock().values().cloned().collect();
        let own = threads.iter().map(|thread| &thread.pending);
        for pending in own.chain([&self.pending]) {
            while let Some(info) = pending.take(signal) {
                if let Some(timer) = info.timer {
                    ring::taken(self, by, timer);
                }
            }
        }
    }

    /// Makes the thread continue in a handler; EFAULT if its stack is not there.
    pub(crate) fn call_handler(
        &self,
        thread: &Thread,
        registers: &mut Registers,
        vectors: &[u8],
        (signal, action): (u32, Action),
        cause: Cause,
    ) -> Result<()> {
        let own = *thread.signal_stack.lock();
        let is_on_own = own.holds(registers.rsp);
        let switches = action.flags & u64::from(SA_ONSTACK) != 0 && own.bytes != 0 && !is_on_own;
        let top = if switches {
            own.base + own.bytes
        } else {
            registers.rsp.wrapping_sub(RED_ZONE)
        };
        let vectors_at = top.wrapping_sub(vectors.len() as u64) & !63;
        let frame = (vectors_at.wrapping_sub(FRAME_BYTES as u64) & !15).wrapping_sub(8);
        // What does not fit ends the program, as Linux has it (`get_sigframe` in
        // arch/x86/kernel/signal.c).
        if (switches || is_on_own) && !own.holds(frame) {
            return Err(Errno::EFAULT);
        }
        let mut bytes = [0; FRAME_BYTES];
        let mut put = |at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(0, action.restorer);
        let context = 8;
        put(context + STACK_AT, own.base);
        put(context + STACK_AT + 8, own.flags(registers.rsp).into());
        put(context + STACK_AT + 16, own.bytes);
        let saved = thread.saved_mask.lock().take();
        let blocked = thread.blocked.load(Ordering::Relaxed);
        let old = saved.unwrap_or(blocked);
        let words = saved_registers(registers);
        let rest = [SELECTORS, cause.error, cause.vector, old, cause.address];
        for (number, value) in words.into_iter().chain(rest).enumerate() {
            put(context + REGISTERS_AT + number * 8, value);
        }
        put(context + VECTORS_AT, vectors_at);
        put(context + MASK_AT, old);
        let info = context + CONTEXT_BYTES;
        let content = cause.info.bytes(signal);
        bytes[info..info + content.len()].copy_from_slice(&content);
        self.write(vectors_at, vectors)?;
        self.write(frame, &bytes)?;

        let defer = match action.flags & u64::from(SA_NODEFER) {
            0 => Mask::of(signal).0,
            _ => 0,
        };
        let mask = Mask(blocked | action.mask | defer).blockable();
        thread.blocked.store(mask.0, Ordering::Relaxed);
        if action.flags & u64::from(SA_RESETHAND) != 0 {
            self.actions.lock().set(signal, Action::default())?;
        }
        registers.rdi = signal.into();
        registers.rsi = frame + info as u64;
        registers.rdx = frame + context as u64;
        registers.rax = 0;
        registers.rsp = frame;
        registers.rip = action.handler;
        registers.rflags = 0x202;
        Ok(())
    }

    /// Continues where a handler interrupted the thread; gives the vector registers.
    pub(crate) fn return_from_handler(
        &self,
        thread: &Thread,
        registers: &mut Registers,
        vectors: usize,
    ) -> Result<Option<Vec<u8>>> {
        // The handler's return took the restorer's address.
        let context: [u8; CONTEXT_BYTES] = self.array(registers.rsp)?;
        let word = |at: usize| {
            context[at..at + 8]
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word))
        };
        let fs_base = registers.fs_base;
        let r = |number: usize| word(REGISTERS_AT + number * 8);
        *registers = Registers {
            r8: r(0),
            r9: r(1),
            r10: r(2),
            r11: r(3),
            r12: r(4),
            r13: r(5),
            r14: r(6),
            r15: r(7),
            rdi: r(8),
            rsi: r(9),
            rbp: r(10),
            rbx: r(11),
            rdx: r(12),
            rax: r(13),
            rcx: r(14),
            rsp: r(15),
            rip: r(16),
            rflags: r(17),
            fs_base,
        };
        let mask = Mask(word(MASK_AT)).blockable();
        thread.blocked.store(mask.0, Ordering::Relaxed);
        match word(VECTORS_AT) {
            0 => Ok(None),
            at => self.bytes(at, vectors).map(Some),
        }
    }
}

/// The first of the signals in a set: the thread's own come before the process's.
fn first_of(thread: &Thread, due: u64) -> u32 {
    let own = thread.pending.bits() & due;
    let first = if own != 0 { own } else { due };
    first.trailing_zeros() + 1
}

/// What an action does; `None` if nothing.
pub(crate) fn does(action: Action, signal: u32) -> Option<Does> {
    match action.handler {
        IGNORE => None,
        DEFAULT if [SIGCHLD, SIGCONT, SIGURG, SIGWINCH].contains(&signal) => None,
        DEFAULT => Some(Does::End),
        _ => Some(Does::Handler(action)),
    }
}

/// As `struct sigcontext` has them.
fn saved_registers(r: &Registers) -> [u64; 18] {
    [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,
        r.rax, r.rcx, r.rsp, r.rip, r.rflags,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general::{SIGUSR1, SIGUSR2};

    /// A process with a handler for SIGUSR1, and two threads.
    fn process() -> (Arc<Process>, [Arc<Thread>; 2]) {
        let (process, thread) = Process::of_test();
        let other = thread.start(2);
        process.threads.lock().insert(2, other.clone());
        let action = Action {
            handler: 0x1000,
            ..Action::default()
        };
        process.actions.lock().set(SIGUSR1, action).unwrap();
        (process, [thread, other])
    }

    #[test]
    fn a_signal_that_ends_a_wait_is_taken_by_the_thread_that_waited() {
        let (process, [thread, other]) = process();
        assert!(!process.claim_signal(&thread), "none has come");
        let info = Info::sent(0, 7);
        process.leave(None, SIGUSR1, info).unwrap();
        assert!(process.has_signal(&other));
        assert!(process.claim_signal(&thread) && process.claim_signal(&thread));
        assert!(!process.has_signal(&other));
        assert_eq!(process.take_signal(&other), None);
        let taken = process.take_signal(&thread).unwrap();
        assert_eq!((taken.signal, taken.info), (SIGUSR1, info));
        assert_eq!(process.take_signal(&thread), None);
    }

    #[test]
    fn a_signal_that_is_blocked_or_ignored_ends_no_wait() {
        let (process, [thread, other]) = process();
        let ignore = Action {
            handler: IGNORE,
            ..Action::default()
        };
        process.actions.lock().set(SIGUSR2, ignore).unwrap();
        process.leave(None, SIGUSR2, Info::default()).unwrap();
        thread.blocked.store(Mask::of(SIGUSR1).0, Ordering::Relaxed);
        process.leave(None, SIGUSR1, Info::default()).unwrap();
        assert!(!process.claim_signal(&thread));
        assert!(process.claim_signal(&other));
    }
}
