//! Whose the vCPUs' time is: polling as measured; time awake after a wake-up the
//! source's that caused it, up to a limit; exits by price; the rest the guest's.

use std::collections::BTreeMap;

use crate::exit::Exit;
use crate::load::{Load, Source, Vcpu};
use crate::price::Prices;

const NS_IN_S: f64 = 1e9;

/// The vCPUs' time of one machine, in shares of a core.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attribution {
    /// Interrupts, with the wake-ups and the exits that go with them.
    pub sources: BTreeMap<Source, f64>,
    /// Exits that no interrupt explains.
    pub exits: BTreeMap<Exit, f64>,
    /// The guest's own code, by vCPU.
    pub guest: Vec<(u32, f64)>,
}

impl Attribution {
    /// Divides the time of every vCPU.
    pub fn of(load: &Load, prices: &Prices<'_>) -> Self {
        let mut attribution = Self::default();
        for vcpu in &load.vcpus {
            attribution.add(vcpu, prices);
        }
        attribution
    }

    /// All of the guest's own time.
    pub fn guest(&self) -> f64 {
        self.guest.iter().map(|(_, share)| share).sum()
    }

    /// What a source costs.
    pub fn source(&self, source: Source) -> f64 {
        self.sources.get(&source).copied().unwrap_or(0.0)
    }

    fn add(&mut self, vcpu: &Vcpu, prices: &Prices<'_>) {
        let busy = (vcpu.cpu - vcpu.polling.share()).max(0.0);
        let mut left = busy;
        for (source, share) in awake(vcpu, busy, prices) {
            *self.sources.entry(source).or_default() += share;
            left -= share;
        }
        let part = if busy > 0.0 { left / busy } else { 0.0 };
        let costs = costs(vcpu, prices, part);
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
                Item::Exit(exit) => *self.exits.entry(exit).or_default() += share,
            }
        }
        self.guest.push((vcpu.index, (left - paid).max(0.0)));
    }
}

/// Time that followed wake-ups, by the source of the interrupts: a vCPU that
/// halts runs because of them. Each halt's share is limited: what a guest does
/// for longer is its own work.
fn awake(vcpu: &Vcpu, busy: f64, prices: &Prices<'_>) -> Vec<(Source, f64)> {
    let interrupts: f64 = vcpu.interrupts.values().sum();
    if interrupts <= 0.0 {
        return Vec::new();
    }
    let limit = vcpu.halts * prices.built_in.awake_ns / NS_IN_S;
    let woken = busy.min(limit);
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

/// Counts times prices, of the part of the events that no wake-up explains.
fn costs(vcpu: &Vcpu, prices: &Prices<'_>, part: f64) -> Vec<(Item, f64)> {
    let cost = |hz: f64, ns: f64| hz * part * ns / NS_IN_S;
    let mut costs = Vec::new();
    for (exit, &hz) in &vcpu.exits {
        let cost = cost(hz, prices.exit(exit).ns);
        match exit.owner() {
            Some(source) => costs.push((Item::Interrupt(source), cost)),
            // In the price of an interrupt.
            None if exit.is_end_of_interrupt() => {}
            None => costs.push((Item::Exit(*exit), cost)),
        }
    }
    for (&source, &hz) in &vcpu.interrupts {
        let cost = cost(hz, prices.built_in.interrupt_ns);
        costs.push((Item::Interrupt(source), cost));
    }
    costs
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
