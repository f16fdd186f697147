//! How halted vCPUs wait, and the samples from which a budget chooses (`tare_policy::halt`).
//!
//! Sampling costs an idle machine nothing: a sample is due after a certain CPU time of this
//! process, by a timer on the process's CPU clock, which stands still while the guest is halted.
//! While the machine halts often, samples by the wall clock are due as well. Everything here runs
//! on the main thread.

mod reading;
#[cfg(test)]
pub(crate) mod tests;
mod timer;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Instant;

use tare_control::halt::HaltPolicy;
use tare_control::stats::HaltStats;
use tare_hv::{StatsFd, Vm, VmError};
use tare_policy::halt::{Budget, Decision, Reading, Settings, Standing};
use vmm_sys_util::eventfd::EventFd;

use crate::observe::ThreadObserver;
use timer::{Time, Timer};

/// KVM's parameter, for a client that asks while the machine runs.
const KERNEL: &str = "/sys/module/kvm/parameters/halt_poll_ns";

/// When a sample is due: after CPU time of this process, and during bursts also after elapsed time.
struct Timers {
    cpu: Timer,
    clock: Timer,
}

impl Timers {
    fn new() -> io::Result<Self> {
        Ok(Self {
            cpu: Timer::new(Time::Cpu)?,
            clock: Timer::new(Time::Clock)?,
        })
    }

    fn arm(&self, decision: &Decision) {
        self.cpu.arm(decision.look_after_cpu_ns);
        match decision.look_after_ns {
            Some(after_ns) => self.clock.arm(after_ns),
            None => self.clock.disarm(),
        }
    }

    fn disarm(&self) {
        self.cpu.disarm();
        self.clock.disarm();
    }
}

/// Sets how long halted vCPUs of a machine poll.
pub trait PollLimit {
    /// Sets the longest poll in ns; 0 turns polling off.
    fn set_halt_poll_ns(&self, longest_ns: u32) -> Result<(), VmError>;
}

impl PollLimit for Vm {
    fn set_halt_poll_ns(&self, longest_ns: u32) -> Result<(), VmError> {
        Vm::set_halt_poll_ns(self, longest_ns)
    }
}

/// The rules for a machine's halts.
pub struct Governor {
    vm: Arc<dyn PollLimit>,
    policy: HaltPolicy,
    /// While a budget is in force.
    rule: Option<Budget>,
    timers: Option<Timers>,
    vcpus: Vec<Arc<StatsFd>>,
    threads: Vec<ThreadObserver>,
    kernel: Option<File>,
    /// What KVM was set to; `None` if it was not set.
    limit_ns: Option<u64>,
    /// How long halts are polled under that rule.
    window_ns: u64,
    started: Instant,
    looks: u64,
    changes: u64,
    unavailable: Option<&'static str>,
}

impl Governor {
    /// Lets halts of `vm` wait as `policy` says; `vcpus` are the statistics of
    /// all its vCPUs, or none.
    pub fn new(
        vm: Arc<dyn PollLimit>,
        policy: HaltPolicy,
        vcpus: Vec<Arc<StatsFd>>,
        can_poll: CanPoll,
    ) -> Result<Self, VmError> {
        let timers = Timers::new();
        let mut governor = Self {
            unavailable: match (can_poll, vcpus.is_empty(), timers.is_err()) {
                (CanPoll::No, ..) => Some("this KVM cannot set halt polling for one machine"),
                (_, true, _) => Some("this KVM has no statistics of halts"),
                (.., true) => Some("this kernel has no timers (CONFIG_POSIX_TIMERS)"),
                _ => None,
            },
            vm,
            policy: HaltPolicy::Kernel,
            rule: None,
            timers: timers.ok(),
            vcpus,
            threads: Vec::new(),
            kernel: File::open(KERNEL).ok(),
            limit_ns: None,
            window_ns: 0,
            started: Instant::now(),
            looks: 0,
            changes: 0,
        };
        match policy {
            HaltPolicy::Kernel | HaltPolicy::Dedicated => governor.policy = policy,
            _ => governor.set(policy)?,
        }
        Ok(governor)
    }

    /// Readable when a sample is due.
    pub fn event(&self) -> Option<&'static EventFd> {
        self.timers.as_ref().and(timer::event())
    }

    /// Sets the threads of the vCPUs.
    pub fn watch(&mut self, threads: Vec<ThreadObserver>) {
        self.threads = threads;
    }

    /// The policy in force.
    pub const fn policy(&self) -> HaltPolicy {
        self.policy
    }

    /// Puts another policy in force, or fails and leaves the one that is. Without the means for a
    /// budget the kernel decides, and the statistics say so.
    pub fn set(&mut self, policy: HaltPolicy) -> Result<(), VmError> {
        if policy == self.policy && self.limit_ns.is_some() {
            return Ok(());
        }
        let mut rule = None;
        match policy {
            HaltPolicy::Never => self.apply(0)?,
            HaltPolicy::Poll(longest_ns) => self.apply(longest_ns.into())?,
            HaltPolicy::Kernel => self.leave_to_kernel()?,
            HaltPolicy::Budget(_) if self.unavailable.is_some() => self.leave_to_kernel()?,
            HaltPolicy::Budget(share) => {
                self.apply(0)?;
                rule = Some(Budget::new(Settings {
                    per_myriad: share.per_myriad(),
                }));
            }
            // Possible only before the first vCPU; `Settings::changed` has refused it.
            HaltPolicy::Dedicated => return Ok(()),
        }
        self.timers.iter().for_each(Timers::disarm);
        self.rule = rule;
        self.policy = policy;
        self.look();
        Ok(())
    }

    /// Samples the counters, and changes the window if another is better.
    pub fn look(&mut self) {
        let reading = self.reading();
        let Some(rule) = &mut self.rule else { return };
        let decision = rule.look(&reading);
        self.looks += 1;
        // KVM has accepted a window before; if it refuses this one, the old one stays.
        if self.apply(decision.limit_ns).is_ok() {
            self.window_ns = decision.window_ns;
        }
        if let Some(timers) = &self.timers {
            timers.arm(&decision);
        }
    }

    /// The timer has fired.
    pub fn due(&mut self) {
        if let Some(event) = self.event() {
            let _ = event.read();
        }
        self.look();
    }

    /// For `/v1/stats`.
    pub fn stats(&self) -> HaltStats {
        let reading = self.reading();
        HaltStats {
            policy: self.policy,
            window_ns: self.limit_ns.map(|_| self.window_ns),
            standing: self
                .rule
                .as_ref()
                .map(|rule| name(rule.standing()).to_owned()),
            halts: reading.halts(),
            caught: reading.caught.iter().sum(),
            polled_ns: reading.polled_ns(),
            polled_ppm: polled_ppm(&reading),
            looks: self.looks,
            changes: self.changes,
            unavailable: self.unavailable.map(str::to_owned),
        }
    }

    fn apply(&mut self, limit_ns: u64) -> Result<(), VmError> {
        if self.limit_ns != Some(limit_ns) {
            let longest_ns = u32::try_from(limit_ns).unwrap_or(u32::MAX);
            self.vm.set_halt_poll_ns(longest_ns)?;
            self.changes += u64::from(self.limit_ns.is_some());
            self.limit_ns = Some(limit_ns);
        }
        self.window_ns = limit_ns;
        Ok(())
    }

    /// Lets the kernel's parameter decide, as it does until KVM is set to something.
    fn leave_to_kernel(&mut self) -> Result<(), VmError> {
        match self.limit_ns {
            Some(_) => self.apply(self.kernel_ns()),
            None => Ok(()),
        }
    }

    /// The kernel's parameter as it is now: a value for one machine cannot be unset.
    fn kernel_ns(&self) -> u64 {
        let read = |file: &File| {
            let mut text = [0; 24];
            let count = file.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(&text[..count])
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        self.kernel.as_ref().and_then(read).unwrap_or(0)
    }

    fn reading(&self) -> Reading {
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut reading = Reading {
            now_ns,
            ..Reading::default()
        };
        for vcpu in &self.vcpus {
            reading::add(&mut reading, vcpu);
        }
        for thread in &self.threads {
            let times = thread.stats();
            reading.run_ns += times.run_ns;
            reading.steal_ns += times.wait_ns;
        }
        reading
    }
}

/// Whether halt polling can be set for one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanPoll {
    /// `KVM_CAP_HALT_POLL` is there.
    Yes,
    /// It is not.
    No,
}

fn polled_ppm(reading: &Reading) -> u64 {
    let ppm = u128::from(reading.polled_ns()) * 1_000_000 / u128::from(reading.now_ns.max(1));
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

const fn name(standing: Standing) -> &'static str {
    match standing {
        Standing::Idle => "idle",
        Standing::Within => "within",
        Standing::Spending => "spending",
        Standing::Saving => "saving",
        Standing::Contended => "contended",
    }
}
