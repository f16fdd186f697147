//! The experiments. Each is a module with its own data; machines, load, records,
//! figures and the report page are shared.

use std::time::Duration;

use serde_json::Value;
use tare_control::stats::Kvm;

use crate::bench::{Bench, RunError};
use crate::error::WeighError;
use crate::figure::Figure;
use crate::goal::Goal;
use crate::host::HostFacts;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::record::Recorder;
use crate::replay::{Record, Replay};
use crate::report::Section;
use crate::request::{Depth, WeighRequest};

pub(crate) mod events;
mod guest_bench;
pub(crate) mod halt_budget;
pub(crate) mod http_bursts;
pub(crate) mod ipi_halt;
pub(crate) mod kv;
mod observer;
mod ping_pong;
pub(crate) mod tailor;
pub(crate) mod tcp;
pub(crate) mod tcp_rr;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod vic;
pub(crate) mod vmexit;

/// One experiment, planned for one depth.
pub trait Experiment {
    /// Takes the experiment's own options from the request; called first.
    fn configure(&mut self, request: &WeighRequest) -> Result<(), WeighError> {
        no_cuts(request)
    }

    /// Planned duration.
    fn planned(&self) -> Duration;

    /// The plan, for the record.
    fn plan(&self) -> Value;

    /// Takes over the plan of a record that is to be read back.
    fn replan(&mut self, _plan: &Value) {}

    /// Reads a record back. What ran on machines that print runs again on their lines.
    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        let mut replay = Replay::of(record);
        self.run(&mut Bench {
            executor: &mut replay,
            recorder: &mut Recorder::silent(&record.dir),
            progress: &Progress::silent(),
            interrupt: &Interrupt::default(),
        })
    }

    /// Runs it. Samples taken before an error are kept.
    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError>;

    /// The KVM that executed guests, as the machines reported it.
    fn kvm(&self) -> Kvm;

    /// Where the runs are from, if they were read from records instead of measured.
    fn merged(&self) -> Option<&Merged> {
        None
    }

    /// Figures so far.
    fn figures(&self) -> Vec<Figure>;

    /// Goals for the figures.
    fn goals(&self) -> &'static [Goal];

    /// The longest that its own threads were seen to wait for a CPU while a figure was taken,
    /// percent of that time, beside what is seen of the whole run.
    fn waited_pct(&self) -> Option<f64> {
        None
    }

    /// Why a figure does not meet its goal, if the run knows: a sentence.
    fn cause(&self, _figures: &[Figure], _figure: &Figure) -> Option<String> {
        None
    }

    /// Failed samples and checks, one sentence each.
    fn failures(&self) -> Vec<String> {
        Vec::new()
    }

    /// The experiment's part of the report.
    fn report(&self, figures: &[Figure]) -> ReportText;
}

/// Where merged runs are from.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The machines' facts; processors of several are listed.
    pub machine: HostFacts,
    /// Revisions of the programs that measured.
    pub revision: String,
    /// When the first began, RFC 3339, UTC.
    pub started: String,
}

/// Refuses the options of `tailor`.
pub fn no_cuts(request: &WeighRequest) -> Result<(), WeighError> {
    match request.cuts {
        None => Ok(()),
        Some(_) => Err(WeighError::Option("--cuts is for tailor".to_owned())),
    }
}

/// An experiment's part of the report, beside figures and machine.
#[derive(Clone, Debug, Default)]
pub struct ReportText {
    /// Title of the report.
    pub title: String,
    /// The question: a paragraph.
    pub question: String,
    /// The answer at a glance: a small table, as safe HTML.
    pub glance: String,
    /// The answer in a few sentences.
    pub answer: Vec<String>,
    /// Charts and further tables.
    pub sections: Vec<Section>,
    /// How it was measured: a sentence each.
    pub method: Vec<String>,
    /// Limitations: a sentence each.
    pub limitations: Vec<String>,
}

/// An experiment in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Which option names what it measures.
    pub subject: Subject,
    /// Makes it; its subject may be given.
    pub make: fn(Depth, Option<String>) -> Box<dyn Experiment>,
}

/// Which option names what an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An image of the library OS: `--image`.
    Image,
    /// An example application: `--app`.
    App,
    /// Options of its own.
    Own,
}

/// All experiments.
pub(crate) const ALL: &[Entry] = &[
    Entry {
        name: "http-bursts",
        about: "a web server under bursts and breaks: CPU, exits, latency of three ways to wait",
        subject: Subject::Image,
        make: |depth, image| Box::new(http_bursts::HttpBursts::new(depth, image)),
    },
    Entry {
        name: "ipi-halt",
        about: "an interrupt to a halted CPU: cycles with and without halt polling",
        subject: Subject::Image,
        make: |depth, image| Box::new(ipi_halt::IpiHalt::new(depth, image)),
    },
    Entry {
        name: "halt-budget",
        about: "ways for a halted CPU to wait: CPU against wake-up time, and the best possible",
        subject: Subject::Image,
        make: |depth, image| Box::new(halt_budget::HaltBudget::new(depth, image)),
    },
    Entry {
        name: "events",
        about: "two threads that signal each other: round trips, halts and interrupts a message",
        subject: Subject::Image,
        make: |depth, image| Box::new(events::planned(depth, image)),
    },
    Entry {
        name: "tcp-rr",
        about: "one byte each way over the loopback, on one and two CPUs, guest and host",
        subject: Subject::Image,
        make: |depth, image| Box::new(tcp_rr::planned(depth, image)),
    },
    Entry {
        name: "tcp",
        about: "our TCP beside Linux's on the same wire, under fifteen impairments",
        subject: Subject::Own,
        make: |depth, _| Box::new(tcp::Tcp::new(depth)),
    },
    Entry {
        name: "vic",
        about: "a disk's interrupts: off, coalesced by depth, QEMU's own device",
        subject: Subject::Image,
        make: |depth, image| Box::new(vic::Vic::new(depth, image)),
    },
    Entry {
        name: "vmexit",
        about: "the cost of each kind of exit: cpuid, ports, memory, timers, interrupts, CR3",
        subject: Subject::Image,
        make: |depth, image| Box::new(vmexit::Vmexit::new(depth, image)),
    },
    Entry {
        name: "observer",
        about: "tare why's own cost: one machine, many, and storms; what the guests lose",
        subject: Subject::Image,
        make: |depth, image| Box::new(observer::Observing::new(depth, image)),
    },
    Entry {
        name: "kv",
        about: "a cache: Tare's appliance and memcached in a container, rate and latency",
        subject: Subject::Image,
        make: |depth, image| Box::new(kv::Kv::new(depth, image)),
    },
    Entry {
        name: "counts",
        about: "instructions, exits and interrupts of a request, and sizes of images",
        subject: Subject::Image,
        make: |depth, image| Box::new(http_bursts::Counts::new(depth, image)),
    },
    Entry {
        name: "tailor",
        about: "a kernel cut to one application against Debian's: instructions, sizes, answers",
        subject: Subject::App,
        make: |depth, app| Box::new(tailor::Tailor::new(depth, app)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_decide_goals_repeat_often_enough_for_an_interval() {
        for entry in ALL {
            for depth in [Depth::Standard, Depth::Full] {
                let experiment = (entry.make)(depth, None);
                if experiment.goals().is_empty() {
                    continue;
                }
                let plan = experiment.plan();
                for name in ["rounds", "turns", "cycles", "starts", "batches", "boots"] {
                    let times = plan.get(name).and_then(Value::as_u64);
                    let about = format!("{} {}: {name}", entry.name, depth.name());
                    assert!(times.is_none_or(|times| times >= 6), "{about}: {times:?}");
                }
            }
        }
    }
}
