//! What user space says to the programs by the map `gate` (`struct gate` in `bpf/kvm.bpf.c`).

use aya::maps::{Array, MapData};

use crate::bpf::Object;

const MAP: &str = "gate";
/// `open_ticks` of a gate that counts in all ticks of a period.
pub(super) const ALL: u64 = 0;
/// `open_ticks` of one that counts nothing.
pub(super) const CLOSED: u64 = u64::MAX;

/// The words of the map's one entry. The programs write the number of the last slice too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) open_ticks: u64,
    /// The slice that is counted while all time is.
    pub(super) burst: u64,
    /// When the last slice began.
    pub(super) slice_ns: u64,
    /// When the last burst ended.
    pub(super) closed_ns: u64,
    /// Its number.
    pub(super) closed_burst: u64,
}

impl Words {
    /// Those of a gate that counts nothing.
    pub(super) fn closed() -> Self {
        Self {
            open_ticks: CLOSED,
            ..Self::default()
        }
    }

    /// A gate that cannot be read says nothing.
    pub(super) fn read(object: &Object) -> Self {
        let gate = object.map(MAP);
        let gate = gate.and_then(|map| Array::<&MapData, [u64; 6]>::try_from(map).ok());
        let words = gate.and_then(|gate| gate.get(&0, 0).ok());
        words.map_or_else(Self::default, |words| {
            let [open_ticks, burst, _, slice_ns, closed_ns, closed_burst] = words;
            Self {
                open_ticks,
                burst,
                slice_ns,
                closed_ns,
                closed_burst,
            }
        })
    }

    /// Whether the programs go by it from now on.
    pub(super) fn write(self, object: &mut Object) -> bool {
        let words = [
            self.open_ticks,
            self.burst,
            0,
            self.slice_ns,
            self.closed_ns,
            self.closed_burst,
        ];
        let gate = object.ebpf().map_mut(MAP);
        let gate = gate.and_then(|map| Array::<&mut MapData, [u64; 6]>::try_from(map).ok());
        gate.is_some_and(|mut gate| gate.set(0, words, 0).is_ok())
    }

    /// Until when a thread that was on a CPU in this slice, and has not been seen to leave
    /// it, has been there for all that the programs know.
    pub(super) fn until_ns(&self, slice: u64, now_ns: u64) -> Option<u64> {
        if self.open_ticks == ALL && self.burst == slice {
            return Some(now_ns);
        }
        (self.closed_burst == slice).then_some(self.closed_ns)
    }
}
