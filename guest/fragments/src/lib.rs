//! [`Fragments`]: datagrams of IPv4 that come in several packets (RFC 791, 3.2; RFC 815).
//!
//! Whoever sends them is hostile: what is kept is bounded in all and for each sender, and a datagram of
//! which two fragments overlap is dropped, as RFC 5722 has it for IPv6 and Linux for both. No timer
//! ends one that stays incomplete: time is looked at when the next fragment comes.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

use alloc::vec::Vec;
use core::time::Duration;

/// How long a datagram may be incomplete (Linux: `ipfrag_time`).
const TIME: Duration = Duration::from_secs(30);
/// Bytes that all take, and those of one sender: two of the longest.
const BYTES_MAX: usize = 512 << 10;
const BYTES_OF_SENDER: usize = BYTES_MAX / 2;
/// Fragments of one datagram: the longest has 119 by links of 576 bytes.
const PARTS_MAX: usize = 256;
/// Datagrams of all and of one sender, and what one takes beside its bytes.
const DATAGRAMS_MAX: usize = 64;
const DATAGRAMS_OF_SENDER: usize = 16;
const OVERHEAD: usize = 256;
/// Bytes of a header without options, which is before the datagram.
pub const HEADER: usize = 20;
const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// In IPv4's flags (RFC 791, 3.1).
const MORE_FRAGMENTS: u16 = 0x2000;
const LONGEST: usize = u16::MAX as usize;

/// What the fragments of a datagram have in common (RFC 791, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Sender.
    pub source: [u8; 4],
    /// Receiver.
    pub destination: [u8; 4],
    /// The sender's number for the datagram.
    pub identification: [u8; 2],
    /// What it is a datagram of.
    pub protocol: u8,
}

/// A fragment of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Which packet it is of.
    pub key: Key,
    /// Where its bytes belong behind that packet's header.
    pub offset: u16,
    /// Whether it is not the last one.
    pub has_more: bool,
    /// Where its bytes begin in the frame.
    pub start: u16,
    /// Where its bytes end in the frame.
    pub end: u16,
}

impl Fragment {
    /// The fragment in an Ethernet frame whose IPv4 header is valid; `None` for other protocols.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_HEADER>()?;
        let header = packet.first_chunk::<20>()?;
        if ethernet[12..] != ETHERTYPE_IPV4 {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let start = ETHERNET_HEADER as u16 + u16::from(header[0] & 0x0f) * 4;
        Some(Self {
            key: Key {
                source: [header[12], header[13], header[14], header[15]],
                destination: [header[16], header[17], header[18], header[19]],
                identification: [header[4], header[5]],
                protocol: header[9],
            },
            offset: (word(6) & 0x1fff) << 3,
            has_more: word(6) & MORE_FRAGMENTS != 0,
            start,
            end: (ETHERNET_HEADER as u16).checked_add(word(2))?,
        })
    }
}

#[derive(Debug)]
struct Datagram {
    key: Key,
    since: Duration,
    /// A header, and what came so far.
    packet: Vec<u8>,
    /// Ends of fragments that came, in order and apart: from and to, behind the header.
    parts: Vec<(u16, u16)>,
    /// Where the last fragment ends, once it came.
    end: Option<u16>,
}

impl Datagram {
    fn bytes(&self) -> usize {
        OVERHEAD + self.packet.capacity() + self.parts.capacity() * 4
    }
}

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Others are missing.
    Kept,
    /// The whole packet. Its header has no options, and 0 for its checksum.
    Complete(Vec<u8>),
    /// It does not fit to those that came, which are dropped too.
    Refused,
}

/// Datagrams that are not complete.
#[derive(Debug, Default)]
pub struct Fragments {
    /// The oldest first.
    datagrams: Vec<Datagram>,
    /// Fragments that were dropped since they were asked for.
    dropped: u64,
}

impl Fragments {
    /// Takes a fragment with its bytes, at `now` since any one moment. Asks before memory is taken for it.
    pub fn take(
        &mut self,
        fragment: &Fragment,
        bytes: &[u8],
        has_room: impl Fn(usize) -> bool,
        now: Duration,
    ) -> Taken {
        self.drop_where(|it| it.since + TIME <= now);
        let start = usize::from(fragment.offset);
        let end = start + bytes.len();
        // All but the last end at a multiple of 8.
        let is_whole = fragment.has_more && !bytes.len().is_multiple_of(8);
        let at = self.datagrams.iter().position(|it| it.key == fragment.key);
        if bytes.is_empty() || is_whole || HEADER + end > LONGEST {
            self.drop_where(|it| it.key == fragment.key);
            self.dropped += 1;
            return Taken::Refused;
        }
        let at = match at {
            Some(at) => at,
            None => {
                let new = Datagram {
                    key: fragment.key,
                    since: now,
                    packet: Vec::new(),
                    parts: Vec::new(),
                    end: None,
                };
                if self.datagrams.len() >= DATAGRAMS_MAX {
                    self.drop_at(0);
                }
                if self.datagrams.try_reserve(1).is_err() {
                    self.dropped += 1;
                    return Taken::Refused;
                }
                self.datagrams.push(new);
                self.datagrams.len() - 1
            }
        };
        let datagram = &mut self.datagrams[at];
        match datagram.add(start as u16, end as u16, fragment.has_more, bytes, has_room) {
            Added::Refused => {
                self.dropped += 1;
                self.drop_at(at);
                Taken::Refused
            }
            Added::Complete => {
                let datagram = self.datagrams.remove(at);
                Taken::Complete(datagram.packet)
            }
            Added::Kept => {
                self.keep_bounds(fragment.key.source);
                Taken::Kept
            }
        }
    }

    /// How many fragments were dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        core::mem::take(&mut self.dropped)
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.datagrams.iter().map(Datagram::bytes).sum()
    }

    /// The oldest go first: of a sender that has too much its own.
    fn keep_bounds(&mut self, source: [u8; 4]) {
        loop {
            let of_sender = || self.datagrams.iter().filter(|it| it.key.source == source);
            let is_beyond = of_sender().map(Datagram::bytes).sum::<usize>() > BYTES_OF_SENDER
                || of_sender().count() > DATAGRAMS_OF_SENDER;
            if !is_beyond && self.bytes() <= BYTES_MAX {
                return;
            }
            let is_its = |it: &Datagram| !is_beyond || it.key.source == source;
            let oldest = self.datagrams.iter().position(is_its);
            self.drop_at(oldest.unwrap_or(0));
        }
    }

    fn drop_where(&mut self, is_over: impl Fn(&Datagram) -> bool) {
        while let Some(at) = self.datagrams.iter().position(&is_over) {
            self.drop_at(at);
        }
    }

    fn drop_at(&mut self, at: usize) {
        let datagram = self.datagrams.remove(at);
        self.dropped += datagram.parts.len() as u64;
    }
}

enum Added {
    Kept,
    Complete,
    Refused,
}

impl Datagram {
    fn add(
        &mut self,
        start: u16,
        end: u16,
        has_more: bool,
        bytes: &[u8],
        has_room: impl Fn(usize) -> bool,
    ) -> Added {
        let next = self.parts.partition_point(|part| part.0 < start);
        let at = self.parts.get(next);
        // The network may copy a packet.
        if at == Some(&(start, end)) && (has_more || self.end == Some(end)) {
            return Added::Kept;
        }
        let before = next.checked_sub(1).map(|at| self.parts[at]);
        let overlaps = before.is_some_and(|(_, to)| to > start) || at.is_some_and(|at| at.0 < end);
        let last = self.parts.last().map_or(0, |part| part.1);
        let is_behind_end = match self.end {
            Some(of_all) => !has_more || end > of_all,
            None => !has_more && last > end,
        };
        if overlaps || is_behind_end || self.parts.len() >= PARTS_MAX {
            return Added::Refused;
        }
        let needed = HEADER + usize::from(end.max(last));
        let more = needed.saturating_sub(self.packet.len());
        let has_room = has_room(more)
            && self.packet.try_reserve(more).is_ok()
            && self.parts.try_reserve(1).is_ok();
        if !has_room {
            return Added::Refused;
        }
        self.packet.resize(needed.max(self.packet.len()), 0);
        let place = HEADER + usize::from(start);
        self.packet[place..place + bytes.len()].copy_from_slice(bytes);
        self.parts.insert(next, (start, end));
        if !has_more {
            self.end = Some(end);
        }
        if self.is_complete() {
            self.write_header();
            return Added::Complete;
        }
        Added::Kept
    }

    fn is_complete(&self) -> bool {
        let mut place = 0;
        let mut parts = self.parts.iter();
        parts.all(|&(from, to)| core::mem::replace(&mut place, to) == from)
            && self.end == Some(place)
    }

    fn write_header(&mut self) {
        let total = (self.packet.len() as u16).to_be_bytes();
        let key = self.key;
        let header = &mut self.packet[..HEADER];
        header[..2].copy_from_slice(&[0x45, 0]);
        header[2..4].copy_from_slice(&total);
        header[4..6].copy_from_slice(&key.identification);
        header[8..10].copy_from_slice(&[64, key.protocol]);
        header[12..16].copy_from_slice(&key.source);
        header[16..].copy_from_slice(&key.destination);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn fragment(source: u8, identification: u8, offset: u16, has_more: bool) -> Fragment {
        Fragment {
            key: Key {
                source: [10, 0, 0, source],
                destination: [10, 0, 0, 100],
                identification: [0, identification],
                protocol: 17,
            },
            offset,
            has_more,
            start: 0,
            end: 0,
        }
    }

    fn take(to: &mut Fragments, fragment: &Fragment, bytes: &[u8], seconds: u64) -> Taken {
        let now = Duration::from_secs(seconds);
        to.take(fragment, bytes, |_| true, now)
    }

    #[test]
    fn the_longest_datagram_comes_together_in_any_order() {
        let payload: Vec<u8> = (0..LONGEST - HEADER).map(|at| (at / 7) as u8).collect();
        for step in [1, 7, 44] {
            let mut all = Fragments::default();
            let parts: Vec<_> = payload.chunks(1480).enumerate().collect();
            let mut found = None;
            for turn in 0..parts.len() {
                let (number, bytes) = parts[turn * step % parts.len()];
                let has_more = number + 1 < parts.len();
                let part = fragment(1, 1, (number * 1480) as u16, has_more);
                match take(&mut all, &part, bytes, 1) {
                    Taken::Kept => {}
                    Taken::Complete(packet) => found = Some(packet),
                    Taken::Refused => panic!("fragment {number}"),
                }
            }
            let packet = found.expect("complete");
            assert_eq!(packet[HEADER..], payload);
            assert_eq!(packet[2..4], (packet.len() as u16).to_be_bytes());
            assert_eq!((all.bytes(), all.take_dropped()), (0, 0));
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_with_what_came_before() {
        // Overlaps, two ends, something behind the end, an odd length, a length beyond IP's.
        for (first, second) in [
            ((0, 16, true), (8, 16, true)),
            ((8, 16, true), (0, 16, true)),
            ((8, 8, false), (24, 8, false)),
            ((8, 8, false), (16, 8, true)),
            ((16, 8, true), (8, 4, false)),
            ((0, 8, true), (8, 7, true)),
            ((0, 8, true), (65_528, 8, false)),
            ((0, 8, true), (8, 0, false)),
        ] {
            let mut all = Fragments::default();
            let bytes = [1; 16];
            let (offset, len, has_more) = first;
            let part = fragment(1, 1, offset, has_more);
            assert_eq!(take(&mut all, &part, &bytes[..len], 1), Taken::Kept);
            let (offset, len, has_more) = second;
            let part = fragment(1, 1, offset, has_more);
            assert_eq!(take(&mut all, &part, &bytes[..len], 1), Taken::Refused);
            assert_eq!(
                (all.bytes(), all.take_dropped()),
                (0, 2),
                "{first:?}, {second:?}"
            );
        }
    }

    #[test]
    fn a_copy_of_a_fragment_changes_nothing() {
        let mut all = Fragments::default();
        for _ in 0..3 {
            assert_eq!(
                take(&mut all, &fragment(1, 1, 8, false), &[2; 8], 1),
                Taken::Kept
            );
        }
        let whole = take(&mut all, &fragment(1, 1, 0, true), &[1; 8], 1);
        assert!(matches!(whole, Taken::Complete(packet) if packet.len() == 36));
    }

    #[test]
    fn what_is_incomplete_is_dropped_after_its_time() {
        let mut all = Fragments::default();
        take(&mut all, &fragment(1, 1, 0, true), &[1; 8], 1);
        take(&mut all, &fragment(2, 2, 0, true), &[1; 8], 31);
        assert_eq!(all.take_dropped(), 1);
        assert_eq!(
            take(&mut all, &fragment(1, 1, 8, false), &[1; 8], 31),
            Taken::Kept
        );
    }

    #[test]
    fn a_sender_that_completes_none_takes_the_place_of_its_own() {
        let mut all = Fragments::default();
        take(&mut all, &fragment(2, 1, 0, true), &[1; 8], 1);
        for number in 0..200 {
            take(&mut all, &fragment(1, number, 65_000, true), &[1; 8], 1);
            assert!(all.bytes() <= BYTES_MAX && all.datagrams.len() <= DATAGRAMS_MAX);
        }
        let whole = take(&mut all, &fragment(2, 1, 8, false), &[1; 8], 1);
        assert!(matches!(whole, Taken::Complete(_)));
    }

    proptest! {
        /// A model keeps each fragment for itself.
        #[test]
        fn a_complete_datagram_has_the_bytes_of_its_fragments(
            steps in prop::collection::vec((0u8..3, 0u16..5, 1usize..3, any::<bool>()), 0..80),
        ) {
            let mut all = Fragments::default();
            let mut model: HashMap<u8, Vec<(u16, Vec<u8>)>> = HashMap::new();
            for (turn, (number, offset, len, has_more)) in steps.into_iter().enumerate() {
                let (start, bytes) = (offset * 8, std::vec![turn as u8; len * 8]);
                let taken = take(&mut all, &fragment(1, number, start, has_more), &bytes, 1);
                let parts = model.entry(number).or_default();
                let is_copy = parts.iter().any(|(at, old)| *at == start && old.len() == bytes.len());
                if taken == Taken::Refused {
                    parts.clear();
                } else if !is_copy {
                    parts.push((start, bytes));
                }
                if let Taken::Complete(packet) = taken {
                    parts.sort();
                    let whole: Vec<u8> = parts.drain(..).flat_map(|part| part.1).collect();
                    prop_assert_eq!(&packet[HEADER..], whole);
                }
                let kept: usize = model.values().map(Vec::len).sum();
                prop_assert_eq!(all.datagrams.iter().map(|it| it.parts.len()).sum::<usize>(), kept);
            }
        }
    }
}
