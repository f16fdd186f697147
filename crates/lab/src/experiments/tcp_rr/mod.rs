//! TCP_RR over the loopback (`SYSTEMS.md`, part 3): one byte each way between
//! two threads, inside the library OS and on the host, on one CPU and on two;
//! with what a transaction costs in halts, interrupts and timer writes.
//!
//! Arms in rotated order, each turn a machine of its own.

mod host;
mod story;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;

use super::inside::{self, Data, Exchange, Place};
use super::{Experiment, Story};
use crate::bench::{Bench, RunError};
use crate::figure::{Figure, quantile};
use crate::goal::Goal;
use crate::request::Depth;

/// What a turn is planned to take beside its transactions, and one of those.
const TURN: Duration = Duration::from_millis(900);
const TRANSACTION: Duration = Duration::from_millis(16);
/// Distribution of transactions, in us.
const RR: &str = "rr_us";
/// What the image says of the transactions.
const TRANSACTIONS: Exchange = Exchange {
    times: "rr",
    series: RR,
    number: "transactions",
    counters: &[
        ("halts", "exits_per_rr.halt"),
        ("ipis", "exits_per_rr.ipi"),
        ("timers", "exits_per_rr.timer"),
    ],
};

/// At most one halt and one interrupt a message (two a transaction) between two
/// vCPUs, no timer writes, none of all on one.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("exits_per_rr.halt.2vcpu", 2.0),
    Goal::on_any_kvm("exits_per_rr.ipi.2vcpu", 2.0),
    Goal::on_any_kvm("exits_per_rr.timer.2vcpu", 0.0),
    Goal::on_any_kvm("exits_per_rr.halt.1vcpu", 0.0),
    Goal::on_any_kvm("exits_per_rr.ipi.1vcpu", 0.0),
    Goal::on_any_kvm("exits_per_rr.timer.1vcpu", 0.0),
];

/// Where the two threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Libos(u8),
    Host(u8),
}

impl Arm {
    const ALL: [Self; 4] = [Self::Libos(1), Self::Libos(2), Self::Host(1), Self::Host(2)];

    const fn name(self) -> &'static str {
        match self {
            Self::Libos(1) => "1vcpu.libos",
            Self::Libos(_) => "2vcpu.libos",
            Self::Host(1) => "1vcpu.host",
            Self::Host(_) => "2vcpu.host",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Libos(1) => "library OS, one vCPU",
            Self::Libos(_) => "library OS, two vCPUs",
            Self::Host(1) => "host, both threads pinned to one CPU",
            Self::Host(_) => "host, threads pinned to two CPUs",
        }
    }
}

/// The experiment and what it has measured.
pub(crate) struct TcpRr {
    depth: Depth,
    image: String,
    turns: usize,
    transactions: usize,
    data: Data,
}

impl TcpRr {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (turns, transactions) = match depth {
            Depth::Quick => (1, 60),
            Depth::Standard => (3, 100),
            Depth::Full => (10, 1000),
        };
        Self {
            depth,
            image: image.unwrap_or_else(|| "tcp-rr".to_owned()),
            turns,
            transactions,
            data: Data::default(),
        }
    }

    fn turn(&mut self, bench: &mut Bench<'_>, arm: Arm, round: usize) -> Result<(), RunError> {
        let place = Place {
            arm: arm.name(),
            round,
        };
        match arm {
            Arm::Libos(cpus) => self.libos(bench, place, cpus),
            Arm::Host(cpus) => self.host(bench, place, cpus),
        }
    }

    fn libos(&mut self, bench: &mut Bench<'_>, place: Place, cpus: u8) -> Result<(), RunError> {
        let cmdline = format!("transactions={} hold", self.transactions);
        let spec = place.machine(&self.image, cpus, cmdline);
        let suffix = format!("{cpus}vcpu");
        TRANSACTIONS.run(&mut self.data, bench, place, &spec, &suffix)
    }

    fn host(&mut self, bench: &mut Bench<'_>, place: Place, cpus: u8) -> Result<(), RunError> {
        bench.interrupt.check()?;
        match host::transactions(self.transactions, cpus.into()) {
            Ok(times) => {
                inside::keep(bench, place, "host", &json!({"rr_ns": times}))?;
                let us = times.into_iter().map(|ns| ns / 1e3);
                self.data.extend(RR, place.arm, us);
            }
            Err(error) => {
                let why = format!("{}: {error}", place.arm);
                if !self.data.missing.contains(&why) {
                    self.data.missing.push(why);
                }
            }
        }
        Ok(())
    }

    fn planned_turn(&self) -> Duration {
        TURN + TRANSACTION * u32::try_from(self.transactions).unwrap_or(u32::MAX)
    }
}

impl Experiment for TcpRr {
    fn planned(&self) -> Duration {
        // The host's turns take next to nothing.
        self.planned_turn() * u32::try_from(self.turns * 2).unwrap_or(u32::MAX)
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "turns": self.turns,
            "transactions": self.transactions, "arms": Arm::ALL.map(Arm::about),
        })
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for turn in 0..self.turns {
            for arm in inside::rotated(&Arm::ALL, turn) {
                inside::announce(bench, turn, self.turns, arm.about());
                self.turn(bench, arm, turn)?;
                if let Arm::Libos(_) = arm {
                    bench.progress.done(self.planned_turn());
                }
            }
        }
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (base, q) in [(RR, 0.5), ("rr_p99_us", 0.99)] {
            for arm in Arm::ALL {
                let name = format!("{base}.{}", arm.name());
                figures.extend(quantile(&name, "us", self.data.of(RR, arm.name()), q));
            }
        }
        figures.extend(self.data.samples.figures());
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        GOALS
    }

    fn report(&self, figures: &[Figure]) -> Story {
        story::story(self, figures)
    }
}
