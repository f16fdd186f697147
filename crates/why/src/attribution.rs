//! Whose the vCPUs' time is: polling as measured; time awake the source's whose
//! interrupt ended the halt, up to a limit; exits by their estimated cost; the rest the
//! guest's.

use std::collections::BTreeMap;

use crate::exit::Exit;
use crate::load::{Awake, Events, Load, Source, Vcpu};
use crate::price::Prices;

const NS_IN_S: f64 = 1e9;
/// Exits that one interrupt explains: to acknowledge it, and to set the next.
const EXITS_AN_INTERRUPT: f64 = 8.0;
/// Writes to the end-of-interrupt register that one interrupt explains.
const ENDS_AN_INTERRUPT: f64 = 4.0;

/// The vCPUs' time of one machine, in shares of a core.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attribution {
    /// Interrupts, with the wake-ups and the exits that go with them.
    pub sources: BTreeMap<Source, f64>,
    /// Exits that no interrupt explains.
    pub exits: BTreeMap<Exit, f64>,
    /// The same by their prices alone, whatever time there was.
    pub priced: BTreeMap<Exit, f64>,
    /// The guest's own code, by vCPU.
    pub guest: Vec<(u32, f64)>,
    /// Not divided, since events were not counted.
    pub unknown: f64,
}

impl Attribution {
    /// Divides the time of every vCPU.
    pub(crate) fn of(load: &Load, prices: &Prices<'_>) -> Self {
        let mut attribution = Self::default();
        for vcpu in &load.vcpus {
            match load.events {
                Events::Counted => attribution.add(load, vcpu, prices),
                Events::Unknown => attribution.add_undivided(vcpu),
            }
        }
        attribution
    }

    /// All of the guest's own time.
    pub(crate) fn guest(&self) -> f64 {
        self.guest.iter().map(|(_, share)| share).sum()
    }

    /// What a source costs.
    pub(crate) fn source(&self, source: Source) -> f64 {
        self.sources.get(&source).copied().unwrap_or(0.0)
    }

    /// Only the kernel's own clocks are known.
    fn add_undivided(&mut self, vcpu: &Vcpu) {
        let busy = (vcpu.cpu - vcpu.polling.share()).max(0.0);
        let guest = vcpu.guest.unwrap_or(0.0).min(busy);
        self.guest.push((vcpu.index, guest));
        self.unknown += busy - guest;
    }

    fn add(&mut self, load: &Load, vcpu: &Vcpu, prices: &Prices<'_>) {
        let busy = (vcpu.cpu - vcpu.polling.share()).max(0.0);
        let mut left = busy;
        for (source, share) in awake(vcpu, busy, prices) {
            *self.sources.entry(source).or_default() += share;
            left -= share;
        }
        let left = left.max(0.0);
        let part = if busy > 0.0 { left / busy } else { 0.0 };
        let costs = costs(load, vcpu, prices, part);
        let priced: f64 = costs.iter().map(|(_, cost)| cost).sum();
        let paid = served(vcpu, left, priced, prices);
        for (item, cost) in costs {
            let share = if priced > 0.0 {
                paid * cost / priced
            } else {
                0.0
            };
            match item {
                Item::Interrupt(source) => *self.sources.entry(source).or_default() += share,
                Item::Exit(exit) => {
                    *self.exits.entry(exit).or_default() += share;
                    *self.priced.entry(exit).or_default() += cost;
                }
            }
        }
        self.guest.push((vcpu.index, (left - paid).max(0.0)));
    }
}

/// Time that followed wake-ups, by the source of the interrupts: a vCPU that halts runs
/// because of them. Each halt's share is limited: what a guest does for longer is its
/// own work.
fn awake(vcpu: &Vcpu, busy: f64, prices: &Prices<'_>) -> Vec<(Source, f64)> {
    let limit = |hz: f64| hz * prices.built_in.awake_ns / NS_IN_S;
    if vcpu.awake.is_empty() {
        return by_rate(vcpu, busy.min(limit(vcpu.halts)));
    }
    let within = |awake: &Awake| awake.share.min(limit(awake.hz));
    let all: f64 = vcpu.awake.values().map(within).sum();
    // Stretches end with a halt; the clocks of threads and of stretches may differ a bit.
    let fits = if all > busy { busy / all } else { 1.0 };
    let by_source = vcpu.awake.iter();
    by_source
        .map(|(source, awake)| (*source, within(awake) * fits))
        .collect()
}

/// Without an observation of each wake-up, as many of them as interrupts.
fn by_rate(vcpu: &Vcpu, woken: f64) -> Vec<(Source, f64)> {
    let interrupts: f64 = vcpu.interrupts.values().sum();
    if interrupts <= 0.0 {
        return Vec::new();
    }
    let by_source = vcpu.interrupts.iter();
    by_source
        .map(|(source, hz)| (*source, woken * hz / interrupts))
        .collect()
}

/// What is paid for.
enum Item {
    Interrupt(Source),
    Exit(Exit),
}

/// Counts times costs, of the part of the events that no wake-up explains.
fn costs(load: &Load, vcpu: &Vcpu, prices: &Prices<'_>, part: f64) -> Vec<(Item, f64)> {
    let cost = |hz: f64, ns: f64| hz * part * ns / NS_IN_S;
    let mut costs = Vec::new();
    for (exit, &hz) in &vcpu.exits {
        let cost = cost(hz, prices.exit(exit).ns);
        match owner(load, exit) {
            Owner::Source(source) => costs.push((Item::Interrupt(source), cost)),
            Owner::AnyInterrupt => {}
            Owner::None => costs.push((Item::Exit(*exit), cost)),
        }
    }
    for (&source, &hz) in &vcpu.interrupts {
        let cost = cost(hz, prices.built_in.interrupt_ns);
        costs.push((Item::Interrupt(source), cost));
    }
    costs
}

/// What an exit is part of.
enum Owner {
    /// Serving this source's interrupts.
    Source(Source),
    /// Ending an interrupt, which is in the interrupt's cost.
    AnyInterrupt,
    /// Nothing: the guest does it for itself.
    None,
}

/// A guest that reads a clock or sets a timer far more often than that interrupts does so
/// for itself.
fn owner(load: &Load, exit: &Exit) -> Owner {
    if exit.is_end_of_interrupt() {
        let taken = load.sum(|vcpu| vcpu.interrupts.values().sum());
        let ends = load.exits(Exit::is_end_of_interrupt);
        return if ends <= taken * ENDS_AN_INTERRUPT {
            Owner::AnyInterrupt
        } else {
            Owner::None
        };
    }
    let Some(source) = exit.owner() else {
        return Owner::None;
    };
    let taken = match source {
        Source::Ipi => load.taken(Source::Ipi) + load.taken(Source::SelfIpi),
        source => load.taken(source),
    };
    let exits = load.exits(|other| other.owner() == Some(source));
    if exits > taken * EXITS_AN_INTERRUPT {
        return Owner::None;
    }
    // Commands to other vCPUs and to itself are writes of one register.
    match source {
        Source::Ipi if load.taken(Source::SelfIpi) > load.taken(Source::Ipi) => {
            Owner::Source(Source::SelfIpi)
        }
        source => Owner::Source(source),
    }
}

/// How much of the time that is left went to exits and interrupts.
fn served(vcpu: &Vcpu, left: f64, priced: f64, prices: &Prices<'_>) -> f64 {
    match vcpu.guest {
        // The kernel knows when the guest ran; without events, it is its own.
        Some(guest) if priced > 0.0 => (left - guest).max(0.0),
        _ if priced >= prices.built_in.whole_from * left => left,
        _ => priced,
    }
}
