//! What user space says to the programs by the maps `gate` and `ends` (`bpf/kvm.bpf.c`).

use aya::Pod;
use aya::maps::{Array, MapData};

use super::slices::{ENDS, End};
use crate::bpf::Object;

const MAP: &str = "gate";
const ENDS_MAP: &str = "ends";
/// `open_ticks` of a gate that counts in all ticks of a period.
pub(super) const ALL: u64 = 0;
/// `open_ticks` of one that counts nothing.
pub(super) const CLOSED: u64 = u64::MAX;
const WORDS: usize = 8;

/// The words of the map's one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) open_ticks: u64,
    /// The slice that is counted while all time is; else what the number of a period is added
    /// to ([`super::slices::setting`]).
    pub(super) burst: u64,
    /// The last slice of a period that was counted; the programs write it.
    pub(super) slice: u64,
    /// When the last slice began; they write this too.
    pub(super) slice_ns: u64,
    /// Slices of periods before the gate last changed.
    pub(super) old: Periods,
    /// What a count stands for, in parts of [`super::weighted::WHOLE`], unless the end of its
    /// slice says otherwise.
    pub(super) weight: u64,
}

/// Slices of periods: how long, and the number and begin of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Periods {
    /// None: there were none.
    pub(super) open_ticks: u64,
    pub(super) slice: u64,
    pub(super) slice_ns: u64,
}

/// Where the gate is.
pub(super) trait GateMap {
    /// Whether the programs use these words from now on.
    fn write(&mut self, words: Words) -> bool;
    /// A gate that cannot be read says nothing.
    fn read(&self) -> Words;
    /// A slice was ended.
    fn write_end(&mut self, end: End);
}

impl Words {
    /// Those of a gate that counts nothing.
    pub(super) fn closed() -> Self {
        Self {
            open_ticks: CLOSED,
            ..Self::default()
        }
    }

    /// Those slices of periods that it counts now.
    pub(super) fn periods(&self) -> Option<Periods> {
        let is_sliced = !matches!(self.open_ticks, ALL | CLOSED) && self.slice > 0;
        is_sliced.then_some(Periods {
            open_ticks: self.open_ticks,
            slice: self.slice,
            slice_ns: self.slice_ns,
        })
    }
}

impl GateMap for Object {
    fn write(&mut self, words: Words) -> bool {
        let Words {
            open_ticks,
            burst,
            slice,
            slice_ns,
            old,
            weight,
        } = words;
        let now = [open_ticks, burst, slice, slice_ns];
        let old = [old.open_ticks, old.slice, old.slice_ns];
        let mut words = [weight; WORDS];
        words[..4].copy_from_slice(&now);
        words[4..7].copy_from_slice(&old);
        set(self, MAP, 0, words)
    }

    fn read(&self) -> Words {
        let gate = self
            .map(MAP)
            .and_then(|map| Array::<&MapData, [u64; WORDS]>::try_from(map).ok());
        let words = gate.and_then(|gate| gate.get(&0, 0).ok());
        words.map_or_else(Words::default, |words| {
            let [open_ticks, burst, slice, slice_ns, rest @ ..] = words;
            let [old_ticks, old_slice, old_ns, weight] = rest;
            Words {
                open_ticks,
                burst,
                slice,
                slice_ns,
                old: Periods {
                    open_ticks: old_ticks,
                    slice: old_slice,
                    slice_ns: old_ns,
                },
                weight,
            }
        })
    }

    fn write_end(&mut self, end: End) {
        let index = u32::try_from(end.slice % ENDS).unwrap_or(0);
        let words = [end.slice.wrapping_add(1), end.ns, end.weight];
        // A thread's time in an end that could not be written is not counted.
        set(self, ENDS_MAP, index, words);
    }
}

fn set<const N: usize>(object: &mut Object, map: &str, index: u32, words: [u64; N]) -> bool
where
    [u64; N]: Pod,
{
    let map = object
        .ebpf()
        .map_mut(map)
        .and_then(|map| Array::<&mut MapData, [u64; N]>::try_from(map).ok());
    map.is_some_and(|mut map| map.set(index, words, 0).is_ok())
}

/// A gate without programs.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct InMemory {
    pub(super) words: Words,
    pub(super) ends: Vec<End>,
}

#[cfg(test)]
impl GateMap for InMemory {
    fn write(&mut self, words: Words) -> bool {
        self.words = words;
        true
    }

    fn read(&self) -> Words {
        self.words
    }

    fn write_end(&mut self, end: End) {
        self.ends.push(end);
    }
}
