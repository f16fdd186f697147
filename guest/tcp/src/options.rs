//! [`Options`]: the options of a TCP header (RFC 9293, 3.1; RFC 7323; RFC 2018).
//!
//! An option with an impossible length ends the list; what came before it
//! counts, and the segment is not dropped for it, as on Linux.

use crate::seq::Seq;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Most SACK blocks that a header has room for.
pub(crate) const SACK_BLOCKS: usize = 4;
/// Most bytes of options.
pub const OPTIONS_MAX: usize = 40;
/// Bytes of the timestamps option with its padding.
pub(crate) const TIMESTAMPS_LEN: usize = 12;
/// Largest window scale (RFC 7323, 2.3).
pub(crate) const SCALE_MAX: u8 = 14;

/// Timestamps of a segment (RFC 7323, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The last value that the sender had from the other side.
    pub echo: u32,
}

/// SACK blocks: `[start, end)` each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// Appends a block; one too many is left out.
    pub fn push(&mut self, start: Seq, end: Seq) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            *slot = (start, end);
            self.len += 1;
        }
    }

    /// The blocks in the order of the option.
    #[inline]
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// The blocks in the order of their numbers from `base` on.
    pub(crate) fn sorted_from(mut self, base: Seq) -> Self {
        self.blocks[..usize::from(self.len)].sort_unstable_by_key(|(start, _)| start.since(base));
        self
    }

    /// Keeps the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len as u8);
    }
}

/// The options that this implementation understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size, on a SYN.
    pub mss: Option<u16>,
    /// Window scale, on a SYN; at most 14.
    pub window_scale: Option<u8>,
    /// SACK permitted, on a SYN.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// What the sender has received beyond its acknowledgement.
    pub sack: SackBlocks,
}

impl Options {
    /// Parses the bytes after the fixed header.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        if let Some(timestamps) = aligned_timestamps(bytes) {
            options.timestamps = Some(timestamps);
            return options;
        }
        let mut rest = bytes;
        while let [kind, tail @ ..] = rest {
            match *kind {
                END => break,
                NOP => rest = tail,
                kind => {
                    let Some(len) = tail.first().map(|len| usize::from(*len)) else {
                        break;
                    };
                    let Some(data) = rest.get(2..len) else {
                        break;
                    };
                    options.take(kind, data);
                    rest = &rest[len..];
                }
            }
        }
        options
    }

    fn take(&mut self, kind: u8, data: &[u8]) {
        match (kind, data) {
            (MSS, [high, low]) => self.mss = Some(u16::from_be_bytes([*high, *low])),
            (WINDOW_SCALE, [scale]) => self.window_scale = Some((*scale).min(SCALE_MAX)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, [value @ .., _, _, _, _]) if data.len() == 8 => {
                self.timestamps = Some(Timestamps {
                    value: number(value),
                    echo: number(&data[4..]),
                });
            }
            (SACK, blocks) if blocks.len() % 8 == 0 => {
                for block in blocks.as_chunks::<8>().0 {
                    self.sack
                        .push(Seq(number(&block[..4])), Seq(number(&block[4..])));
                }
            }
            _ => {}
        }
    }

    /// Bytes that [`Options::write`] takes, a multiple of 4.
    #[inline]
    pub fn len(&self) -> usize {
        let mut len = 0;
        if self.timestamps.is_some() {
            len += TIMESTAMPS_LEN;
        }
        let blocks = self.sack.as_slice().len();
        if blocks > 0 {
            len += 4 + blocks * 8;
        }
        if self.mss.is_some() {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        if self.sack_permitted {
            len += 4;
        }
        len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the options, each padded to 4 bytes, at the front of `out`, which
    /// has at least [`Options::len`] bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let mut out = Writer { out, at: 0 };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            out.put([MSS, 4, high, low]);
        }
        if self.sack_permitted {
            out.put([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(timestamps) = self.timestamps {
            out.put([NOP, NOP, TIMESTAMPS, 10]);
            out.put(timestamps.value.to_be_bytes());
            out.put(timestamps.echo.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, scale]);
        }
        let blocks = self.sack.as_slice();
        if !blocks.is_empty() {
            out.put([NOP, NOP, SACK, 2 + blocks.len() as u8 * 8]);
            for (start, end) in blocks {
                out.put(start.0.to_be_bytes());
                out.put(end.0.to_be_bytes());
            }
        }
    }
}

/// The usual case: NOP, NOP, timestamps and nothing else (RFC 7323, appendix A).
#[inline]
fn aligned_timestamps(bytes: &[u8]) -> Option<Timestamps> {
    match bytes {
        [NOP, NOP, TIMESTAMPS, 10, numbers @ ..] if numbers.len() == 8 => Some(Timestamps {
            value: number(&numbers[..4]),
            echo: number(&numbers[4..]),
        }),
        _ => None,
    }
}

#[inline]
fn number(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, word: [u8; 4]) {
        if let Some(slot) = self.out.get_mut(self.at..self.at + 4) {
            slot.copy_from_slice(&word);
        }
        self.at += 4;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec;

    use super::*;

    #[test]
    fn a_bad_length_ends_the_list_and_keeps_what_came_before() {
        for tail in [&[9, 0][..], &[9, 1], &[9, 30, 0], &[9]] {
            let mut bytes = vec![MSS, 4, 5, 180, NOP];
            bytes.extend(tail);
            assert_eq!(Options::parse(&bytes).mss, Some(1460));
        }
    }

    #[test]
    fn unknown_options_are_skipped() {
        let bytes = [254, 5, 1, 2, 3, WINDOW_SCALE, 3, 99, END, MSS, 4, 1, 1];
        let options = Options::parse(&bytes);
        assert_eq!((options.window_scale, options.mss), (Some(14), None));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            mss in any::<Option<u16>>(), scale in prop::option::of(0u8..15), sack_permitted: bool,
            stamps in any::<Option<(u32, u32)>>(),
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..3),
        ) {
            let mut options = Options { mss, window_scale: scale, sack_permitted, ..Options::default() };
            options.timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            if !sack_permitted {
                blocks.iter().for_each(|(a, b)| options.sack.push(Seq(*a), Seq(*b)));
            }
            let mut bytes = vec![0xaa; options.len()];
            options.write(&mut bytes);
            prop_assert_eq!(Options::parse(&bytes), options);
        }

        #[test]
        fn any_bytes_parse(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Options::parse(&bytes);
        }
    }
}
