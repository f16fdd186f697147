//! Two threads that signal each other (`SYSTEMS.md`, part 3: event objects): the
//! time of a round trip, and how many halts, interrupts and timer writes a
//! message costs, as the library OS's scheduler counts them.
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
use crate::figure::Figure;
use crate::goal::Goal;
use crate::request::Depth;

/// What a turn is planned to take beside its round trips, and one of those.
const TURN: Duration = Duration::from_millis(700);
const ROUND: Duration = Duration::from_millis(2);
/// Distribution of round trips, in us.
const ROUND_TRIP: &str = "round_trip_us";
/// The guest's counters that are given for each message, with their figures.
const PER_MESSAGE: [(&str, &str); 4] = [
    ("halts", "halts_per_message"),
    ("ipis", "ipis_per_message"),
    ("timers", "timers_per_message"),
    ("spins_caught", "caught_per_message"),
];

/// What the image says of the messages.
const MESSAGES: Exchange = Exchange {
    times: "round",
    series: ROUND_TRIP,
    number: "messages",
    counters: &PER_MESSAGE,
};

/// At most one halt and one interrupt a message between two CPUs, no timer
/// writes, none of all on one.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("halts_per_message.event", 1.0),
    Goal::on_any_kvm("halts_per_message.condvar", 1.0),
    Goal::on_any_kvm("halts_per_message.nospin", 1.0),
    Goal::on_any_kvm("halts_per_message.one", 0.0),
    Goal::on_any_kvm("ipis_per_message.event", 1.0),
    Goal::on_any_kvm("ipis_per_message.condvar", 1.0),
    Goal::on_any_kvm("ipis_per_message.nospin", 1.0),
    Goal::on_any_kvm("ipis_per_message.one", 0.0),
    Goal::on_any_kvm("timers_per_message.event", 0.0),
    Goal::on_any_kvm("timers_per_message.condvar", 0.0),
    Goal::on_any_kvm("timers_per_message.nospin", 0.0),
    Goal::on_any_kvm("timers_per_message.one", 0.0),
];

/// By what the threads signal, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Event,
    Condvar,
    NoSpin,
    One,
    Host,
}

impl Arm {
    const ALL: [Self; 5] = [
        Self::Event,
        Self::Condvar,
        Self::NoSpin,
        Self::One,
        Self::Host,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Condvar => "condvar",
            Self::NoSpin => "nospin",
            Self::One => "one",
            Self::Host => "host",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Event => "event: events, two vCPUs",
            Self::Condvar => "condvar: condition variables, two vCPUs",
            Self::NoSpin => "nospin: events, two vCPUs, no spin before the halt",
            Self::One => "one: events, both threads on one vCPU",
            Self::Host => "host: condition variables, two CPUs of the host",
        }
    }

    /// vCPUs and words of the machine; `None` for the host.
    const fn machine(self) -> Option<(u8, &'static str)> {
        match self {
            Self::Event => Some((2, "by=event")),
            Self::Condvar => Some((2, "by=condvar")),
            Self::NoSpin => Some((2, "by=event halt_spin_ns=0")),
            Self::One => Some((1, "by=event")),
            Self::Host => None,
        }
    }
}

/// The experiment and what it has measured.
pub(crate) struct Events {
    depth: Depth,
    image: String,
    turns: usize,
    rounds: usize,
    data: Data,
}

impl Events {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (turns, rounds) = match depth {
            Depth::Quick => (1, 200),
            Depth::Standard => (3, 300),
            Depth::Full => (10, 1000),
        };
        Self {
            depth,
            image: image.unwrap_or_else(|| "events".to_owned()),
            turns,
            rounds,
            data: Data::default(),
        }
    }

    fn turn(&mut self, bench: &mut Bench<'_>, arm: Arm, round: usize) -> Result<(), RunError> {
        let place = Place {
            arm: arm.name(),
            round,
        };
        let Some((cpus, words)) = arm.machine() else {
            return self.host(bench, place);
        };
        let cmdline = format!("rounds={} hold {words}", self.rounds);
        let spec = place.machine(&self.image, cpus, cmdline);
        MESSAGES.run(&mut self.data, bench, place, &spec, place.arm)
    }

    fn host(&mut self, bench: &mut Bench<'_>, place: Place) -> Result<(), RunError> {
        bench.interrupt.check()?;
        let trips = host::round_trips(self.rounds);
        inside::keep(bench, place, "host", &json!({"round_trip_ns": trips}))?;
        let us = trips.into_iter().map(|ns| ns / 1e3);
        self.data.extend(ROUND_TRIP, place.arm, us);
        Ok(())
    }

    fn planned_turn(&self) -> Duration {
        TURN + ROUND * u32::try_from(self.rounds).unwrap_or(u32::MAX)
    }
}

impl Experiment for Events {
    fn planned(&self) -> Duration {
        self.planned_turn() * u32::try_from(self.turns * Arm::ALL.len()).unwrap_or(u32::MAX)
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "turns": self.turns,
            "rounds": self.rounds, "arms": Arm::ALL.map(Arm::about),
        })
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for turn in 0..self.turns {
            for arm in inside::rotated(&Arm::ALL, turn) {
                inside::announce(bench, turn, self.turns, arm.name());
                self.turn(bench, arm, turn)?;
                bench.progress.done(self.planned_turn());
            }
        }
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for which in [("p50", 0.5), ("p99", 0.99)] {
            for arm in Arm::ALL {
                let of = self
                    .data
                    .quantiles(ROUND_TRIP, arm.name(), "us", 1.0, &[which]);
                figures.extend(of);
            }
        }
        let mut counted = self.data.samples.figures();
        let base = |f: &Figure| {
            let base = f.name.split('.').next().unwrap_or("").to_owned();
            PER_MESSAGE.iter().position(|(_, name)| *name == base)
        };
        counted.sort_by_key(base);
        figures.extend(counted);
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        GOALS
    }

    fn report(&self, figures: &[Figure]) -> Story {
        story::story(self, figures)
    }
}
