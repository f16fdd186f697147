//! Why a thread is off its CPU, by what it waits in.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Codes of `bpf/sched.bpf.c` beside system calls' numbers.
const KVM_RUN: u32 = 0x1_0000;
const FAULT: u32 = 0x1_0001;
const KERNEL: u32 = 0x1_0002;
const DISK: u32 = 0x2_0000;

/// A cause of time off a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Ready, and no CPU to run on: others ran, or a quota was used up.
    RunQueue,
    /// A disk: the kernel marks the wait, or the call makes data durable.
    Disk,
    /// A socket's call.
    Network,
    /// Readiness of descriptors, completions or signals (poll, epoll, io_uring).
    Events,
    /// Reading or writing what is not on a disk: pipes, sockets, terminals.
    Stream,
    /// A lock or condition of the program (futex).
    Lock,
    /// Time that the program asked to pass.
    Sleep,
    /// Another process's end.
    Child,
    /// A halted vCPU (`KVM_RUN`).
    Halt,
    /// A page fault, or a change of the address space.
    Memory,
    /// A kernel thread without work.
    Kernel,
    /// Another system call.
    Other,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 12] = [
        Self::RunQueue,
        Self::Disk,
        Self::Network,
        Self::Events,
        Self::Stream,
        Self::Lock,
        Self::Sleep,
        Self::Child,
        Self::Halt,
        Self::Memory,
        Self::Kernel,
        Self::Other,
    ];

    /// The cause of a wait in the system call of this number (x86-64), or in what
    /// a code stands for.
    pub(super) fn of(what: u32) -> Self {
        if what & DISK != 0 {
            return Self::Disk;
        }
        match what {
            KVM_RUN => Self::Halt,
            FAULT | 9 | 10 | 11 | 12 | 25 | 28 => Self::Memory,
            KERNEL => Self::Kernel,
            26 | 74 | 75 | 162 | 277 | 306 => Self::Disk,
            42..=47 | 288 | 299 | 307 => Self::Network,
            7 | 23 | 34 | 128 | 130 | 208 | 232 | 270 | 271 | 281 | 333 | 426 | 441 => Self::Events,
            0 | 1 | 17..=20 | 275 | 276 | 295 | 296 | 327 | 328 => Self::Stream,
            202 | 449 | 455 => Self::Lock,
            35 | 230 => Self::Sleep,
            61 | 247 => Self::Child,
            _ => Self::Other,
        }
    }

    /// Whether waits of this kind are input or output: what CPU-Pinning 2020 calls
    /// I/O-bound spends its time in them.
    pub(crate) fn is_io(self) -> bool {
        matches!(
            self,
            Self::Disk | Self::Network | Self::Events | Self::Stream
        )
    }

    /// A phrase that follows "waits for".
    pub fn phrase(self) -> &'static str {
        match self {
            Self::RunQueue => "a CPU",
            Self::Disk => "a disk",
            Self::Network => "the network",
            Self::Events => "events",
            Self::Stream => "a pipe or socket",
            Self::Lock => "a lock",
            Self::Sleep => "time to pass",
            Self::Child => "another process",
            Self::Halt => "an interrupt of the guest",
            Self::Memory => "memory",
            Self::Kernel => "work",
            Self::Other => "other things",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_classified_by_their_system_call() {
        let cases = [
            (0, Cause::Stream),
            (7, Cause::Events),
            (9, Cause::Memory),
            (16, Cause::Other),
            (35, Cause::Sleep),
            (45, Cause::Network),
            (61, Cause::Child),
            (74, Cause::Disk),
            (202, Cause::Lock),
            (232, Cause::Events),
            (KVM_RUN, Cause::Halt),
            (FAULT, Cause::Memory),
            (KERNEL, Cause::Kernel),
        ];
        for (what, cause) in cases {
            assert_eq!(Cause::of(what), cause, "{what:#x}");
        }
    }

    #[test]
    fn a_wait_that_the_kernel_marks_is_the_disk_s_in_any_call() {
        for what in [0, 1, 202, FAULT, KERNEL] {
            assert_eq!(Cause::of(what | DISK), Cause::Disk);
        }
        assert!(Cause::Disk.is_io() && !Cause::Lock.is_io());
    }
}
