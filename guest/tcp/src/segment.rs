//! [`Segment`]: a received segment, parsed; [`Outgoing`]: one to be sent
//! (RFC 9293, 3.1). Checksums and addresses are the caller's.

use crate::options::Options;
use crate::seq::Seq;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;

/// Bits of the header's flags.
pub mod flags {
    /// The sender has finished.
    pub const FIN: u8 = 1;
    /// A connection begins.
    pub const SYN: u8 = 1 << 1;
    /// The connection is gone.
    pub const RST: u8 = 1 << 2;
    /// The receiver should not wait for more.
    pub const PSH: u8 = 1 << 3;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 1 << 4;
}

/// Why bytes are not a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Shorter than its header.
    #[error("TCP segment ends within its header")]
    Truncated,
    /// The data offset is below 5.
    #[error("TCP data offset is below 5 words")]
    DataOffset,
}

/// A received segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Number of its first byte, or of its SYN.
    pub seq: Seq,
    /// The next number that the sender expects; counts with [`flags::ACK`].
    pub ack: Seq,
    /// [`flags`].
    pub flags: u8,
    /// As in the header, not scaled.
    pub window: u16,
    /// Its options.
    pub options: Options,
    /// Its data.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses header and payload; `bytes` ends where the segment ends.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = bytes
            .first_chunk::<HEADER_LEN>()
            .ok_or(ParseError::Truncated)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(ParseError::DataOffset);
        }
        let options = bytes
            .get(HEADER_LEN..header_len)
            .ok_or(ParseError::Truncated)?;
        Ok(Self {
            seq: Seq(u32::from_be_bytes([
                header[4], header[5], header[6], header[7],
            ])),
            ack: Seq(u32::from_be_bytes([
                header[8], header[9], header[10], header[11],
            ])),
            flags: header[13],
            window: u16::from_be_bytes([header[14], header[15]]),
            options: Options::parse(options),
            payload: &bytes[header_len..],
        })
    }

    /// Whether all of `bits` are set.
    #[inline]
    pub fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    /// How much of the sequence space it takes: data, SYN and FIN.
    #[inline]
    pub fn len(&self) -> u32 {
        let control = self.flags & flags::FIN | (self.flags & flags::SYN) >> 1;
        self.payload.len() as u32
            + u32::from(control & 1)
            + u32::from(self.has(flags::SYN | flags::FIN))
    }

    /// Whether it takes nothing of the sequence space.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The reset that answers a segment for which there is no connection
    /// (RFC 9293, 3.10.7.1); none for a reset.
    pub fn reset(&self) -> Option<Outgoing<'static>> {
        if self.has(flags::RST) {
            return None;
        }
        let mut reset = Outgoing::control(flags::RST, self.ack);
        if !self.has(flags::ACK) {
            reset.seq = Seq(0);
            reset.ack = self.seq + self.len();
            reset.flags |= flags::ACK;
        }
        Some(reset)
    }
}

/// A segment to be sent. Its payload is in two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Number of its first byte, or of its SYN.
    pub seq: Seq,
    /// The next number expected.
    pub ack: Seq,
    /// [`flags`].
    pub flags: u8,
    /// As in the header, already scaled.
    pub window: u16,
    /// Its options.
    pub options: Options,
    /// Its data, the second part after the first.
    pub payload: (&'a [u8], &'a [u8]),
    /// Payload bytes of the segments that the link cuts it into; 0 if it is one.
    pub cut: u16,
}

impl Outgoing<'_> {
    pub(crate) fn control(flags: u8, seq: Seq) -> Self {
        Self {
            seq,
            ack: Seq(0),
            flags,
            window: 0,
            options: Options::default(),
            payload: (&[], &[]),
            cut: 0,
        }
    }

    /// Bytes of payload.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.payload.0.len() + self.payload.1.len()
    }

    /// Bytes of header, options and payload.
    #[inline]
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + self.options.len() + self.payload_len()
    }

    /// Writes the segment to `out` of exactly [`Outgoing::wire_len`] bytes. The
    /// checksum field is zero.
    #[inline]
    pub fn write(&self, local_port: u16, remote_port: u16, out: &mut [u8]) {
        let options_len = self.options.len();
        let Some((header, rest)) = out.split_first_chunk_mut::<HEADER_LEN>() else {
            return;
        };
        header[..2].copy_from_slice(&local_port.to_be_bytes());
        header[2..4].copy_from_slice(&remote_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        header[12] = ((HEADER_LEN + options_len) as u8 / 4) << 4;
        header[13] = self.flags;
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..].fill(0);
        let (options, payload) = rest.split_at_mut(options_len.min(rest.len()));
        self.options.write(options);
        let (first, second) = self.payload;
        if payload.len() == first.len() + second.len() {
            let (begin, end) = payload.split_at_mut(first.len());
            begin.copy_from_slice(first);
            end.copy_from_slice(second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn what_is_written_is_read() {
        let mut sent = Outgoing::control(flags::ACK | flags::PSH, Seq(77));
        sent.ack = Seq(99);
        sent.window = 1000;
        sent.options.mss = Some(1400);
        sent.payload = (b"hello ", b"world");
        let mut bytes = vec![0xff; sent.wire_len()];
        sent.write(80, 1234, &mut bytes);
        assert_eq!(bytes[..4], [0, 80, 4, 210]);
        let got = Segment::parse(&bytes).unwrap();
        assert_eq!((got.seq, got.ack, got.window), (sent.seq, sent.ack, 1000));
        assert_eq!(
            (got.payload, got.options),
            (&b"hello world"[..], sent.options)
        );
        for len in 0..24 {
            assert_eq!(Segment::parse(&bytes[..len]), Err(ParseError::Truncated));
        }
        bytes[12] = 0x40;
        assert_eq!(Segment::parse(&bytes), Err(ParseError::DataOffset));
    }

    #[test]
    fn control_bits_take_sequence_space() {
        let mut bytes = [0; 23];
        bytes[12] = 0x50;
        for (bits, len) in [(0, 3), (flags::SYN, 4), (flags::FIN, 4), (3, 5)] {
            bytes[13] = bits;
            assert_eq!(Segment::parse(&bytes).unwrap().len(), len);
        }
    }

    #[test]
    fn strays_are_reset_and_resets_are_not() {
        let mut bytes = [0; 20];
        bytes[7] = 9;
        bytes[11] = 5;
        (bytes[12], bytes[13]) = (0x50, flags::SYN);
        let reset = Segment::parse(&bytes).unwrap().reset().unwrap();
        assert_eq!((reset.seq, reset.ack), (Seq(0), Seq(10)));
        assert_eq!(reset.flags, flags::RST | flags::ACK);
        bytes[13] = flags::ACK;
        let reset = Segment::parse(&bytes).unwrap().reset().unwrap();
        assert_eq!((reset.seq, reset.flags), (Seq(5), flags::RST));
        bytes[13] = flags::RST;
        assert_eq!(Segment::parse(&bytes).unwrap().reset(), None);
    }
}
