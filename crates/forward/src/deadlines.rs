//! [`Deadlines`]: when each connection has something to do without an arrival.

use std::collections::BTreeSet;

use tare_tcp::time::Instant;

/// A sorted set with one deadline at most for each number.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(Instant, u32)>);

impl Deadlines {
    /// Moves the deadline of `number` from `old` to `new`.
    pub(crate) fn change(&mut self, number: u32, old: Option<Instant>, new: Option<Instant>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.0.remove(&(old, number));
        }
        if let Some(new) = new {
            self.0.insert((new, number));
        }
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// A number whose deadline has passed; it stays in the set.
    pub(crate) fn due(&self, now: Instant) -> impl Iterator<Item = u32> {
        self.0
            .iter()
            .take_while(move |(at, _)| *at <= now)
            .map(|(_, number)| *number)
    }
}
