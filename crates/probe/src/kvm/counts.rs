//! Counts within a window: differences of the map between two readings.

use std::collections::HashMap;

use super::classes::Key;
use super::scale::{Factor, Scale};
use crate::bpf::Object;
use tare_account::Histogram;

/// How often and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) count: u64,
    pub(super) ns: u64,
}

/// All counts of one reading, or what was added between two.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    entries: HashMap<Key, Value>,
}

impl Counts {
    pub(super) fn read(object: &Object) -> Self {
        let entries = object.entries::<3, 4>("counts").into_iter();
        Self {
            entries: entries
                .map(|(key, [count, ns, ..])| (Key::from(key), Value { count, ns }))
                .collect(),
        }
    }

    /// What was added since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let added = |key: &Key, now: &Value| {
            let then = before.entries.get(key).copied().unwrap_or_default();
            Value {
                count: now.count.saturating_sub(then.count),
                ns: now.ns.saturating_sub(then.ns),
            }
        };
        let entries = self
            .entries
            .iter()
            .map(|(key, now)| (*key, added(key, now)));
        Self {
            entries: entries.filter(|(_, value)| value.count > 0).collect(),
        }
    }

    /// As many as there were in the whole window.
    pub(super) fn scaled(mut self, scale: &Scale) -> Self {
        let whole = |part: u64, by: f64| (part as f64 * by).round() as u64;
        for (key, value) in &mut self.entries {
            let Factor { counts, times } = scale.of(key, value.count);
            (value.count, value.ns) = (whole(value.count, counts), whole(value.ns, times));
        }
        self
    }

    /// By process; 0 stands for threads of no machine.
    pub(super) fn by_process(self) -> HashMap<u32, Self> {
        self.divided(|key| key.tgid)
    }

    /// By thread.
    pub(super) fn by_thread(&self) -> HashMap<u32, Self> {
        self.clone().divided(|key| key.tid)
    }

    /// Drops those of one process.
    pub(super) fn forget(&mut self, tgid: u32) {
        self.entries.retain(|key, _| key.tgid != tgid);
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
        self.class(class)
            .fold(Value::default(), |sum, (_, value)| Value {
                count: sum.count + value.count,
                ns: sum.ns + value.ns,
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

    fn divided(self, by: impl Fn(&Key) -> u32) -> HashMap<u32, Self> {
        let mut parts: HashMap<u32, Self> = HashMap::new();
        for (key, value) in self.entries {
            let part = parts.entry(by(&key)).or_default();
            part.entries.insert(key, value);
        }
        parts
    }
}
