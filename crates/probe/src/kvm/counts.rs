//! Counts within a window: differences of the map between two readings, then as many as
//! there were in all of it.

use std::collections::HashMap;

use super::classes::Key;
use super::events::VALUE_WORDS;
use super::scale::Scale;
use super::slices::Slices;
use super::tally::{Tally, Value};
#[cfg(test)]
use super::weighted::Weighted;
use crate::bpf::Object;
use tare_account::Histogram;

/// All counts of one reading, or what was added between two.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    entries: HashMap<Key, Tally>,
}

/// Counts of a whole window.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    entries: HashMap<Key, Value>,
}

impl Tallies {
    pub(super) fn read(object: &Object, slices: &Slices<'_>) -> Self {
        let entries = object.entries::<3, VALUE_WORDS>("counts").into_iter();
        Self {
            entries: entries
                .map(|(key, words)| (Key::from(key), Tally::of(words, slices)))
                .collect(),
        }
    }

    /// What was added since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let none = Tally::default();
        let added = self.entries.iter().map(|(key, now)| {
            let then = before.entries.get(key).unwrap_or(&none);
            (*key, now.since(then))
        });
        Self {
            entries: added.filter(|(_, tally)| tally.count > 0).collect(),
        }
    }

    /// By process; 0 stands for threads of no machine.
    pub(super) fn by_process(self) -> HashMap<u32, Self> {
        let mut parts: HashMap<u32, Self> = HashMap::new();
        for (key, tally) in self.entries {
            let part = parts.entry(key.tgid).or_default();
            part.entries.insert(key, tally);
        }
        parts
    }

    /// Drops those of one process.
    pub(super) fn forget(&mut self, tgid: u32) {
        self.entries.retain(|key, _| key.tgid != tgid);
    }

    /// As many as there were in the whole window.
    pub(super) fn scaled(self, scale: &Scale) -> Counts {
        let entries = self.entries.into_iter();
        Counts {
            entries: entries
                .map(|(key, tally)| (key, scale.scaled(&key, &tally)))
                .collect(),
        }
    }

    /// Counted of a class.
    #[cfg(test)]
    pub(super) fn counted(&self, class: u32) -> u64 {
        let entries = self.entries.iter();
        let class = entries.filter(|(key, _)| key.class == class);
        class.map(|(_, tally)| tally.count).sum()
    }

    /// The weighted counts of the only kind of a class.
    #[cfg(test)]
    pub(super) fn weighted(&self, class: u32) -> Weighted {
        let mut entries = self.entries.iter();
        let found = entries.find(|(key, _)| key.class == class);
        found.map_or_else(Weighted::default, |(_, tally)| tally.weighted)
    }
}

impl Counts {
    /// By thread.
    pub(super) fn by_thread(&self) -> HashMap<u32, Self> {
        let mut parts: HashMap<u32, Self> = HashMap::new();
        for (key, value) in &self.entries {
            let part = parts.entry(key.tid).or_default();
            part.entries.insert(*key, *value);
        }
        parts
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.entries.iter()
    }

    /// Entries of one class.
    pub(super) fn class(&self, class: u32) -> impl Iterator<Item = (&Key, &Value)> {
        self.iter().filter(move |(key, _)| key.class == class)
    }

    /// Sum over a class.
    pub(super) fn sum(&self, class: u32) -> Value {
        let none = Value {
            margin: Some(0),
            ..Value::default()
        };
        self.class(class).fold(none, |sum, (_, value)| Value {
            count: sum.count + value.count,
            ns: sum.ns + value.ns,
            margin: sum.margin.zip(value.margin).map(|(a, b)| a + b),
        })
    }

    /// The histogram that a class is, of those keys that are `wanted`.
    pub(super) fn histogram(&self, class: u32, wanted: impl Fn(&Key) -> bool) -> Histogram {
        let mut histogram = Histogram::default();
        for (key, value) in self.class(class).filter(|(key, _)| wanted(key)) {
            histogram.add(key.bucket(), value.count, value.ns);
        }
        histogram
    }
}
