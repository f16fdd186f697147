//! Observes virtual machines for `tare why` and `tare top`: `tare_probe` with the program's exit
//! codes.

use std::time::{Duration, Instant};

use tare_account::Account;
use tare_control::exit::ExitCode;
use tare_probe::Unavailable;
use tare_probe::clock::{process_cpu_ns, thread_cpu_ns};
use tare_probe::kvm::Observer;
use tare_probe::vm::{self, FindError, Started, Translated, Vm};

use crate::failure::Explain;
use crate::signals::Requests;

/// Shortest time between two searches for machines that start within a window.
const LIST: Duration = Duration::from_millis(500);

/// Share of a core that accounts and listings may take in the long run: an interval is lengthened
/// until it has paid for those of the previous one. The observer itself limits its cost within an
/// interval.
const LIMIT: f64 = 0.02;
/// Longest interval.
const LONGEST: Duration = Duration::from_secs(30);

/// A failure after watching has begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    /// The thread that watches ended.
    #[error("the observing thread has stopped")]
    Stopped,
    /// The signal handlers cannot be installed.
    #[error("cannot wait for signals")]
    Signals(#[source] std::io::Error),
}

impl Explain for ObserveError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

impl Explain for FindError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoProcess(_) | Self::NoVm { .. } | Self::NoName(_) | Self::Ambiguous { .. } => {
                ExitCode::NoSuchMachine
            }
            Self::NotPermitted { .. } | Self::Proc { .. } => ExitCode::ObservePermission,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoVm { .. } | Self::NoName(_) | Self::NoProcess(_) => {
                Some("tare top --once lists those that run".to_owned())
            }
            _ => None,
        }
    }
}

/// A machine that cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// There is no such machine.
    #[error(transparent)]
    Find(#[from] FindError),
    /// It has no KVM.
    #[error(
        "{name} (process {pid}) runs in QEMU without KVM (TCG): it has no KVM exits or interrupts \
             to observe"
    )]
    Translated {
        /// Its name.
        name: String,
        /// QEMU's process.
        pid: u32,
    },
}

impl Explain for TargetError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Find(error) => error.code(),
            Self::Translated { .. } => ExitCode::NoSuchMachine,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Find(error) => error.hint(),
            Self::Translated { name, .. } => Some(format!(
                "tare advise {name} says what it spends its time with"
            )),
        }
    }
}

/// Watched machines.
pub(crate) struct Watch {
    observer: Observer,
    vms: Vec<Vm>,
    scope: Scope,
    unavailable: Vec<Unavailable>,
    /// What ends an interval at once.
    requests: Requests,
    /// CPU time of this process until watching began.
    start_cpu_ns: u64,
    /// CPU time of this thread for the last account, and for the listing after it.
    turn_cost: Duration,
}

/// The machines of a watch.
enum Scope {
    /// All machines that run when an interval begins.
    All(Started),
    /// The machines chosen at the start.
    Chosen,
}

impl Watch {
    /// All machines of this host, those that start later included.
    pub(crate) fn all() -> Self {
        let mut started = Started::before_listing();
        let began_ns = thread_cpu_ns();
        let listing = vm::list();
        let took = Duration::from_nanos(thread_cpu_ns().saturating_sub(began_ns));
        started.listed(took);
        Self {
            observer: Observer::start(&listing.vms),
            vms: listing.vms,
            scope: Scope::All(started),
            unavailable: listing.unavailable,
            requests: Requests::default(),
            start_cpu_ns: process_cpu_ns(),
            turn_cost: Duration::ZERO,
        }
    }

    /// The machine of that process or name.
    pub(crate) fn one(target: &str) -> Result<Self, TargetError> {
        let found = vm::find(target);
        let has_no_kvm = matches!(found, Err(FindError::NoVm { .. } | FindError::NoName(_)));
        if has_no_kvm && let Some(machine) = vm::translated(target) {
            let Translated { name, pid, .. } = machine;
            return Err(TargetError::Translated { name, pid });
        }
        let vms = vec![found?];
        Ok(Self {
            observer: Observer::start(&vms),
            vms,
            scope: Scope::Chosen,
            unavailable: Vec::new(),
            requests: Requests::default(),
            start_cpu_ns: process_cpu_ns(),
            turn_cost: Duration::ZERO,
        })
    }

    /// The machines that are watched.
    pub(crate) fn vms(&self) -> &[Vm] {
        &self.vms
    }

    /// Whether there is no machine to watch.
    pub(crate) fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

    /// CPU time of this process until watching began, ns: finding machines, loading the
    /// programs, the first reading.
    pub(crate) fn start_cpu_ns(&self) -> u64 {
        self.start_cpu_ns
    }

    /// What could not be read when machines were listed.
    pub(crate) fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Makes SIGINT, SIGTERM and SIGHUP end an interval instead of the program; returns which came.
    pub(crate) fn end_by_signal(&mut self) -> Result<Requests, ObserveError> {
        self.requests = Requests::watch().map_err(ObserveError::Signals)?;
        Ok(self.requests.clone())
    }

    /// Whether a signal has ended an interval.
    pub(crate) fn was_stopped(&self) -> bool {
        self.requests.check().is_err()
    }

    /// Drops what was observed so far: the next account begins now.
    pub(crate) fn begin_again(&mut self) {
        self.observer.turn();
    }

    /// As [`Self::interval`], once: machines that start within the window are observed from then
    /// on.
    pub(crate) fn window(&mut self, length: Duration) -> Vec<Account> {
        let end = Instant::now() + length;
        let mut next_list = Instant::now() + LIST;
        while !self.pause_until(end) {
            if let Scope::All(started) = &mut self.scope
                && Instant::now() >= next_list
            {
                self.observer.join(&started.look().vms);
                next_list = Instant::now() + LIST;
            }
        }
        self.observer.turn()
    }

    /// An account for each machine over the next `length`, or longer if the last interval cost more
    /// than its share. Ends early when all machines have ended.
    pub(crate) fn interval(&mut self, length: Duration) -> Vec<Account> {
        let end = Instant::now() + paid_for(length, self.turn_cost);
        while !self.pause_until(end) {}
        let began_ns = thread_cpu_ns();
        let accounts = self.observer.turn();
        self.look_around();
        self.turn_cost = Duration::from_nanos(thread_cpu_ns().saturating_sub(began_ns));
        accounts
    }

    /// Waits; returns whether the interval is over.
    fn pause_until(&mut self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let all_ended = !self.is_empty() && self.observer.all_ended();
        if left.is_zero() || all_ended || self.was_stopped() {
            return true;
        }
        std::thread::sleep(left.min(self.observer.next_refresh()));
        self.observer.refresh();
        false
    }

    /// Drops machines that ended, and adds those that have started.
    fn look_around(&mut self) {
        let Scope::All(started) = &mut self.scope else {
            return;
        };
        let looked = started.look();
        let runs = |vm: &Vm| vm::lives(vm) && !(looked.is_whole && vm::has_closed(vm));
        self.vms.retain(runs);
        for vm in looked.vms {
            let is_same =
                |known: &Vm| (known.pid, known.started_ticks) == (vm.pid, vm.started_ticks);
            if !self.vms.iter().any(is_same) {
                self.vms.push(vm);
            }
        }
        self.observer.follow(&self.vms);
    }
}

/// The length of an interval: as requested, or as long as the limit needs to pay for the last one,
/// up to [`LONGEST`].
fn paid_for(asked: Duration, spent: Duration) -> Duration {
    asked.max(spent.div_f64(LIMIT).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_pays_for_the_one_before() {
        let ms = Duration::from_millis;
        assert_eq!(paid_for(ms(1_000), ms(3)), ms(1_000));
        assert_eq!(paid_for(ms(1_000), ms(60)), ms(3_000));
        // The figures are printed whatever the cost; a user who requests more gets more.
        assert_eq!(paid_for(ms(1_000), ms(5_000)), LONGEST);
        assert_eq!(paid_for(ms(60_000), ms(5_000)), ms(60_000));
    }
}
