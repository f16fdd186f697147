//! Between which shares an attribution of time may be, where events were counted for a part of
//! the window.
//!
//! Rates have margins ([`crate::load::Margins`]), and time is divided by rates. So it is divided again with rates at
//! the ends of their intervals: those that a share grows with at one end, and the others at the
//! other one, or all at the same. The lowest and the highest share that come out are its interval. All rates at
//! their ends at once is rarer than one of them, so intervals are rather too wide.

use std::collections::BTreeMap;

use crate::attribution::Attribution;
use crate::exit::Exit;
use crate::load::{Awake, Events, Load, Source, Vcpu};
use crate::price::Prices;

/// What a share grows with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Own {
    /// Interrupts of one source.
    Source(Source),
    /// Exits of one kind.
    Exit(Exit),
    /// All interrupts.
    Interrupts,
    /// All exits.
    Exits,
    /// Neither: what is left.
    Rest,
}

/// A rate that has a margin.
#[derive(Clone, Copy)]
enum Figure {
    Taken(Source),
    Exit(Exit),
    Halts,
}

/// How a rate goes with a share.
#[derive(Clone, Copy)]
enum Part {
    Own,
    /// Exits to serve interrupts, which are either's.
    Serving,
    Other,
}

#[derive(Clone, Copy)]
enum End {
    Low,
    High,
}

/// At which ends rates are: a share's own, those of exits that serve interrupts, and others.
const CORNERS: [[End; 3]; 6] = [
    [End::High, End::High, End::High],
    [End::Low, End::Low, End::Low],
    [End::High, End::High, End::Low],
    [End::High, End::Low, End::Low],
    [End::Low, End::Low, End::High],
    [End::Low, End::High, End::High],
];

/// The intervals of one machine's shares.
pub(crate) struct Spread<'a> {
    load: &'a Load,
    prices: &'a Prices<'a>,
    point: &'a Attribution,
    factors: Known,
}

enum Known {
    Exactly,
    Within(Factors),
    /// A rate may be off by any number.
    NotAtAll,
}

/// What each rate is multiplied by at the ends of its interval.
#[derive(Default)]
struct Factors {
    taken: BTreeMap<Source, [f64; 2]>,
    exits: BTreeMap<Exit, [f64; 2]>,
    halts: [f64; 2],
}

impl<'a> Spread<'a> {
    /// Around the attribution of a load.
    pub(crate) fn of(load: &'a Load, prices: &'a Prices<'a>, point: &'a Attribution) -> Self {
        Self {
            load,
            prices,
            point,
            factors: Known::of(load),
        }
    }

    /// The interval of a share, which grows with its own rates; `None` if it is not known.
    pub(crate) fn interval(
        &self,
        own: Own,
        share: impl Fn(&Attribution) -> f64,
    ) -> Option<[f64; 2]> {
        let point = share(self.point);
        let factors = match &self.factors {
            Known::Exactly => return Some([point; 2]),
            Known::NotAtAll => return None,
            Known::Within(factors) => factors,
        };
        let mut interval = [point; 2];
        for ends in CORNERS {
            let load = self.moved(factors, |figure| ends[own.part(figure) as usize]);
            let share = share(&Attribution::of(&load, self.prices));
            interval = [interval[0].min(share), interval[1].max(share)];
        }
        Some(interval)
    }

    /// The machine with its rates at these ends.
    fn moved(&self, factors: &Factors, end: impl Fn(Figure) -> End) -> Load {
        let factor = |figure| factors.of(figure)[end(figure) as usize];
        let vcpus = self.load.vcpus.iter().map(|vcpu| Vcpu {
            index: vcpu.index,
            cpu: vcpu.cpu,
            guest: vcpu.guest,
            polling: vcpu.polling,
            halts: vcpu.halts * factor(Figure::Halts),
            interrupts: vcpu
                .interrupts
                .iter()
                .map(|(source, hz)| (*source, hz * factor(Figure::Taken(*source))))
                .collect(),
            // The time awake after interrupts goes with their number.
            awake: vcpu
                .awake
                .iter()
                .map(|(source, awake)| (*source, awake.times(factor(Figure::Taken(*source)))))
                .collect(),
            exits: vcpu
                .exits
                .iter()
                .map(|(exit, hz)| (*exit, hz * factor(Figure::Exit(*exit))))
                .collect(),
            ..Vcpu::default()
        });
        self.load.of_vcpus(vcpus.collect())
    }
}

impl Known {
    fn of(load: &Load) -> Self {
        let margins = &load.margins;
        if load.events == Events::Unknown || load.is_counted_whole() {
            return Self::Exactly;
        }
        let mut all = margins.exits.values().chain(margins.taken.values());
        if !margins.halts.is_finite() || all.any(|margin| !margin.is_finite()) {
            return Self::NotAtAll;
        }
        let ends = |hz: f64, margin: f64| {
            let part = if hz > 0.0 { margin / hz } else { 0.0 };
            [(1.0 - part).max(0.0), 1.0 + part]
        };
        let taken = margins.taken.iter();
        let mut rates: BTreeMap<Exit, f64> = BTreeMap::new();
        for (exit, hz) in load.vcpus.iter().flat_map(|vcpu| &vcpu.exits) {
            *rates.entry(*exit).or_default() += hz;
        }
        let exits = rates.into_iter().map(|(exit, hz)| {
            let margin = margins.exits.get(&exit).copied().unwrap_or(0.0);
            (exit, ends(hz, margin))
        });
        Self::Within(Factors {
            taken: taken
                .map(|(source, margin)| (*source, ends(load.taken(*source), *margin)))
                .collect(),
            exits: exits.collect(),
            halts: ends(load.sum(|vcpu| vcpu.halts), margins.halts),
        })
    }
}

impl Factors {
    fn of(&self, figure: Figure) -> [f64; 2] {
        let known = match figure {
            Figure::Taken(source) => self.taken.get(&source),
            Figure::Exit(exit) => self.exits.get(&exit),
            Figure::Halts => Some(&self.halts),
        };
        known.copied().unwrap_or([1.0; 2])
    }
}

impl Own {
    fn part(self, figure: Figure) -> Part {
        match (self, figure) {
            (Self::Source(own), Figure::Taken(source)) if own == source => Part::Own,
            (Self::Interrupts, Figure::Taken(_)) => Part::Own,
            (Self::Source(_) | Self::Interrupts, Figure::Halts) => Part::Own,
            (Self::Exit(own), Figure::Exit(exit)) if own == exit => Part::Own,
            (Self::Exits, Figure::Exit(_)) => Part::Own,
            (Self::Source(own), Figure::Exit(exit)) if exit.may_serve(own) => Part::Serving,
            (Self::Interrupts, Figure::Exit(exit)) if exit.owner().is_some() => Part::Serving,
            _ => Part::Other,
        }
    }
}

impl Awake {
    fn times(self, factor: f64) -> Self {
        Self {
            hz: self.hz * factor,
            share: self.share * factor,
        }
    }
}
