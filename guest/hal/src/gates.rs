//! Gates of the interrupt descriptor table (Intel SDM vol. 3A, figure 6-8). Images lie below 4 GiB, so the
//! upper word of each, which has the upper half of an address, is zero.

use core::cell::Cell;

use crate::unrolled;

/// A gate's words.
pub(crate) type Gate = [u64; 2];

/// Selector of the 64-bit code segment in every GDT.
pub(crate) const CODE_SELECTOR: u16 = 8;
/// An interrupt gate into ring 0 that only hardware uses, and one that ring 3 may
/// call.
const INTERRUPT: u64 = 0x8e;
const CALLABLE: u64 = 0xee;

/// The lower word of a gate to `offset`, on the stack of this number.
fn lower(offset: u64, stack: u8, kind: u64) -> u64 {
    offset & 0xffff
        | u64::from(CODE_SELECTOR) << 16
        | u64::from(stack) << 32
        | kind << 40
        | (offset & 0xffff_0000) << 32
}

/// A gate to `offset`, on the stack of this number, that ring 3 may call.
pub(crate) fn callable(offset: u64, stack: u8) -> Gate {
    [lower(offset, stack, CALLABLE), 0]
}

/// Makes gates to pieces of entry code that begin at `first` and lie `distance` bytes
/// apart, for three instructions a gate: each takes a microsecond where ring 0 is emulated.
pub(crate) fn fill(gates: &mut [Gate], first: u64, distance: u64, stack: u8) {
    let mut offset = first;
    let mut rest = gates;
    while !rest.is_empty() {
        // Up to the next 64 KiB only the lowest bits of the address differ.
        let count = ((offset | 0xffff) - offset) / distance + 1;
        let (run, others) = rest.split_at_mut(rest.len().min(count as usize));
        let mut gate = lower(offset, stack, INTERRUPT);
        unrolled::for_each(Cell::from_mut(run).as_slice_of_cells(), |entry| {
            entry.set([gate, 0]);
            gate += distance;
        });
        offset += run.len() as u64 * distance;
        rest = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address, stack and type of a gate, from the bytes of the manual's figure.
    fn parts(gate: Gate) -> (u64, u8, u8) {
        let low = gate[0].to_le_bytes();
        let word = |at: usize| u64::from(u16::from_le_bytes([low[at], low[at + 1]]));
        assert_eq!((word(2), gate[1]), (u64::from(CODE_SELECTOR), 0));
        (word(0) | word(6) << 16, low[4], low[5])
    }

    #[test]
    fn gates_lead_to_pieces_at_equal_distances_across_64_kib() {
        for first in [0x20_1000, 0x20_fff0, 0x2f_fe30, 0xfffe_0000] {
            for count in [0, 1, 8, 31, 64] {
                let mut gates = [[0; 2]; 64];
                fill(&mut gates[..count], first, 48, 2);
                for (number, gate) in gates.into_iter().enumerate() {
                    if number < count {
                        let at = first + 48 * number as u64;
                        assert_eq!(parts(gate), (at, 2, 0x8e));
                    } else {
                        assert_eq!(gate, [0; 2]);
                    }
                }
            }
        }
        assert_eq!(parts(callable(0x1234_5678, 1)), (0x1234_5678, 1, 0xee));
    }
}
