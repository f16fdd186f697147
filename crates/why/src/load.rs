//! A machine over a window of time as the rules read it: shares of one core and
//! rates per second. `account` makes it from what was observed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_account::{CgroupVersion, Cpuset, Role};

use crate::command_line::CommandLine;
use crate::exit::Exit;
use crate::monitor::Monitor;
use crate::rate::Rate;

/// The chance to see none of the events that there may have been.
const NONE_SEEN: f64 = 0.05;

/// Whether the guest runs on the processor or in KVM's emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// VT-x, SVM or another mechanism of the processor.
    Hardware,
    /// KVM executes the guest's kernel instruction by instruction.
    Emulated,
}

/// Whether events (exits, interrupts, halts) were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// BPF counted them.
    Counted,
    /// Their rates are unknown, not zero.
    Unknown,
}

/// One machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// Process ID of its VMM.
    pub pid: u32,
    /// Length of the window, s.
    pub seconds: f64,
    /// Which VMM runs it.
    pub monitor: Monitor,
    /// The options of a QEMU.
    pub qemu: CommandLine,
    /// Whether events were counted.
    pub events: Events,
    /// In how much of the window they were, s.
    pub counted_seconds: f64,
    /// Which timer raises the PIT's line where KVM has no PIT.
    pub timer_line: TimerLine,
    /// What executes the guest.
    pub execution: Execution,
    /// CPUs of the host that are online.
    pub host_cpus: u32,
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// The monitor's other threads, and kernel threads that work for it.
    pub threads: Vec<Thread>,
    /// Lines and messages raised, by source.
    pub raised: BTreeMap<Source, Raised>,
    /// IPIs per second as vCPUs sent them, to others and to themselves.
    pub sent_ipis: f64,
    /// Quotas that stopped its threads.
    pub throttled: Vec<Throttled>,
    /// CPU sets of cgroups that keep its vCPUs from CPUs of the host, an outer one before those in it.
    pub cpusets: Vec<Cpuset>,
    /// By how much its rates may be off.
    pub margins: Margins,
    /// What ran out in the guest's program, most often first.
    pub expiries: Vec<Expired>,
}

/// A time limit or timer of the guest's program that ran out.
#[derive(Clone, Debug, PartialEq)]
pub struct Expired {
    /// The call and the thread, as a sentence names them.
    pub origin: String,
    /// The thread's name.
    pub thread_name: String,
    /// How often, per second.
    pub per_second: f64,
}

/// By how much rates may be off where events were counted for a part of the time, per second:
/// 19 of 20 are off by less. Infinite where that is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Margins {
    /// Exits of all vCPUs.
    pub exits: BTreeMap<Exit, f64>,
    /// Interrupts that vCPUs took.
    pub taken: BTreeMap<Source, f64>,
    /// Lines and messages raised.
    pub raised: BTreeMap<Source, f64>,
    /// IPIs as sent.
    pub sent_ipis: f64,
    /// Halts of all vCPUs.
    pub halts: f64,
    /// Polls, failed or not.
    pub polls: f64,
}

/// Who may raise the line of the PIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerLine {
    /// The source is certain.
    Certain,
    /// The VMM has the PIT and an HPET, and both raise this line.
    PitOrHpet,
}

/// A control group whose quota stopped threads of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttled {
    /// Its directory.
    pub directory: String,
    /// Its hierarchy.
    pub version: CgroupVersion,
    /// The quota, in CPUs.
    pub cpus: f64,
    /// The quota's period, us.
    pub period_us: u64,
    /// Time that its threads were stopped, share of a core; a stop counts when it ends.
    pub share: f64,
    /// Periods in which they were, those of a stop that goes on too.
    pub periods: u64,
    /// Threads in it.
    pub threads: Vec<u32>,
}

/// One vCPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vcpu {
    /// Index.
    pub index: u32,
    /// Its thread's ID.
    pub tid: u32,
    /// On a CPU, share of a core.
    pub cpu: f64,
    /// Of that, in the guest; `None` where the kernel cannot separate it from exits.
    pub guest: Option<f64>,
    /// Of that, polling while the guest was halted.
    pub polling: Polling,
    /// Runnable, and waiting for a CPU.
    pub waiting: f64,
    /// Of that, in a wait that had not ended when the window did.
    pub unfinished: f64,
    /// Who ran instead, longest first.
    pub taken_by: Vec<Taker>,
    /// Halts per second.
    pub halts: f64,
    /// Median time of a halt, µs.
    pub halt_median_us: Option<u64>,
    /// Interrupts per second that it took, by source.
    pub interrupts: BTreeMap<Source, f64>,
    /// Share (0 to 1) of the vCPU timer's interrupts that came evenly.
    pub timer_regularity: f64,
    /// Time awake between halts, by the source of the interrupt that ended the halt; empty
    /// if it was not observed.
    pub awake: BTreeMap<Source, Awake>,
    /// Exits per second.
    pub exits: BTreeMap<Exit, f64>,
    /// CPUs of the host that its thread may use; empty if not known.
    pub allowed: Vec<u32>,
}

/// Time awake after interrupts of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Awake {
    /// Halts per second that it ended.
    pub hz: f64,
    /// Share of a core.
    pub share: f64,
}

/// A process that had the CPU which a vCPU waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Taker {
    /// Its process, by name and ID, or its machine.
    pub name: String,
    /// Whether it is the VMM of the waiting machine itself.
    pub is_own: bool,
    /// Share of a core.
    pub share: f64,
}

/// Polling for the end of halts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Polling {
    /// Of polls that saw it, share of a core.
    pub won: f64,
    /// Of polls after which the vCPU was scheduled out all the same.
    pub lost: f64,
    /// Polls per second that saw it.
    pub won_hz: f64,
    /// Polls per second that did not.
    pub lost_hz: f64,
}

/// A thread that runs no vCPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// On a CPU, share of a core.
    pub cpu: f64,
    /// Wake-ups per second.
    pub wakeups: f64,
}

/// Interrupts as their sources raised them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Raised {
    /// Per second.
    pub hz: f64,
    /// By one of the monitor's own threads.
    pub by_monitor_hz: f64,
}

/// Who interrupts a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// HPET, emulated in the monitor.
    Hpet,
    /// PIT.
    Pit,
    /// The clock chip.
    Rtc,
    /// The vCPU's own APIC timer.
    Timer,
    /// Another vCPU.
    Ipi,
    /// The vCPU itself, by an IPI.
    SelfIpi,
    /// A device.
    Device,
}

impl Polling {
    /// All of it, share of a core.
    pub fn share(&self) -> f64 {
        self.won + self.lost
    }
}

impl Load {
    /// A sum over the vCPUs.
    pub fn sum(&self, of: impl Fn(&Vcpu) -> f64) -> f64 {
        self.vcpus.iter().map(of).sum()
    }

    /// Exits per second of all vCPUs that `is` accepts.
    pub fn exits(&self, is: impl Fn(&Exit) -> bool) -> f64 {
        self.sum(|vcpu| {
            let exits = vcpu.exits.iter().filter(|(exit, _)| is(exit));
            exits.map(|(_, hz)| hz).sum()
        })
    }

    /// Interrupts per second that vCPUs took from a source.
    pub fn taken(&self, source: Source) -> f64 {
        self.sum(|vcpu| vcpu.interrupts.get(&source).copied().unwrap_or(0.0))
    }

    /// Exits per second of one kind.
    pub fn exit_rate(&self, exit: &Exit) -> Rate {
        let margin = self.margins.exits.get(exit);
        self.rate(self.exits(|other| other == exit), margin.copied())
    }

    /// Exits and halts per second of all vCPUs.
    pub fn all_exits_rate(&self) -> Rate {
        let hz = self.exits(|_| true) + self.sum(|vcpu| vcpu.halts);
        let margin = self.margins.exits.values().sum::<f64>() + self.margins.halts;
        self.rate(hz, Some(margin))
    }

    /// Interrupts per second that vCPUs took.
    pub fn all_interrupts_rate(&self) -> Rate {
        let hz = self.sum(|vcpu| vcpu.interrupts.values().sum());
        self.rate(hz, Some(self.margins.taken.values().sum()))
    }

    /// The highest rate per second that events may have had of which none was counted, 19 times of
    /// 20: each one would have been missed as often as the time was not counted.
    pub(crate) fn unseen_hz(&self) -> f64 {
        match 1.0 - self.counted_part() {
            ..=0.0 => 0.0,
            1.0.. => f64::INFINITY,
            missed => NONE_SEEN.ln() / missed.ln() / self.seconds,
        }
    }

    /// Whether events were counted all the time.
    pub(crate) fn is_counted_whole(&self) -> bool {
        self.counted_part() >= 1.0
    }

    /// Interrupts per second that vCPUs took from a source: all, or those of one vCPU.
    pub(crate) fn taken_rate(&self, source: Source, hz: f64) -> Rate {
        let margin = self.margins.taken.get(&source);
        self.rate(hz, margin.copied())
    }

    /// Lines and messages per second: all that these sources raised, or a part.
    pub(crate) fn raised_rate(&self, sources: &[Source], hz: f64) -> Rate {
        let margins = sources.iter().filter_map(|it| self.margins.raised.get(it));
        self.rate(hz, Some(margins.sum()))
    }

    /// IPIs per second as they were sent.
    pub(crate) fn sent_rate(&self) -> Rate {
        self.rate(self.sent_ipis, Some(self.margins.sent_ipis))
    }

    /// Halts per second of all vCPUs.
    pub fn halt_rate(&self) -> Rate {
        let halts = self.sum(|vcpu| vcpu.halts);
        self.rate(halts, Some(self.margins.halts))
    }

    /// Polls per second, of one kind or of both.
    pub(crate) fn poll_rate(&self, hz: f64) -> Rate {
        self.rate(hz, Some(self.margins.polls))
    }

    /// All polls per second.
    pub(crate) fn all_polls_rate(&self) -> Rate {
        self.poll_rate(self.sum(|vcpu| vcpu.polling.won_hz + vcpu.polling.lost_hz))
    }

    fn rate(&self, hz: f64, margin: Option<f64>) -> Rate {
        Rate::new(hz, margin.unwrap_or(0.0), self.counted_part())
    }

    fn counted_part(&self) -> f64 {
        match self.seconds {
            seconds if seconds > 0.0 => self.counted_seconds / seconds,
            _ => 1.0,
        }
    }

    /// These vCPUs, without what says nothing of their time.
    pub(crate) fn of_vcpus(&self, vcpus: Vec<Vcpu>) -> Self {
        Self {
            name: String::new(),
            pid: self.pid,
            seconds: self.seconds,
            monitor: self.monitor,
            qemu: CommandLine::default(),
            events: self.events,
            counted_seconds: self.counted_seconds,
            timer_line: self.timer_line,
            execution: self.execution,
            host_cpus: self.host_cpus,
            vcpus,
            threads: Vec::new(),
            raised: BTreeMap::new(),
            sent_ipis: 0.0,
            throttled: Vec::new(),
            cpusets: Vec::new(),
            margins: Margins::default(),
            expiries: Vec::new(),
        }
    }

    /// CPU time of the threads in a role that `is` accepts, share of a core.
    pub(crate) fn threads_in(&self, is: impl Fn(Role) -> bool) -> f64 {
        let threads = self.threads.iter().filter(|thread| is(thread.role));
        threads.map(|thread| thread.cpu).sum()
    }

    /// All CPU time, share of a core.
    pub fn cpu(&self) -> f64 {
        self.sum(|vcpu| vcpu.cpu) + self.threads_in(|_| true)
    }
}
