//! Cuts a TCP segment that a guest left whole for its device (virtio 1.2, 5.1.6.2, `VIRTIO_NET_F_HOST_TSO4` and 6)
//! into segments with checksums, for passt, which takes nothing else.

use tare_devices::net::{GSO_TCPV4, GSO_TCPV6, NetHeader, checksum};

use crate::frame::{ETHERNET_HEADER, ETHERTYPE_IPV4, Frame, IPV6_HEADER};
use crate::output::{Transport, leave_checksum};

const TCP_HEADER: usize = 20;
/// Of a TCP header: where its number and its flags are.
const SEQ: usize = 4;
const FLAGS: usize = 13;
/// The last segment alone has these, and the first one this (Linux, `tcp_gso_segment` in
/// net/ipv4/tcp_offload.c).
const FIN_AND_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;
/// No connection of Linux has smaller segments (`TCP_MIN_SND_MSS`, include/net/tcp.h).
const SMALLEST: u16 = 48;

/// Such a segment in its frame.
#[derive(Debug)]
pub struct Cut<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
    size: usize,
    tcp_at: usize,
    is_v4: bool,
}

impl<'a> Cut<'a> {
    /// The segment in `frame`; `None` if `header` is not right for it.
    pub fn of(frame: &'a [u8], header: &NetHeader) -> Option<Self> {
        let Ok(Frame::Tcp(_, segment)) = Frame::parse(frame) else {
            return None;
        };
        let is_v4 = frame[12..ETHERNET_HEADER] == ETHERTYPE_IPV4;
        let (ip_header, kind) = if is_v4 {
            let length = usize::from(frame[ETHERNET_HEADER] & 0x0f) * 4;
            (length, GSO_TCPV4)
        } else {
            (IPV6_HEADER, GSO_TCPV6)
        };
        let tcp_at = ETHERNET_HEADER + ip_header;
        let tcp_header = usize::from(segment.get(12)? >> 4) * 4;
        let is_right = header.gso_type == kind
            && usize::from(header.csum_start) == tcp_at
            && header.csum_offset == Transport::Tcp.checksum()
            && header.gso_size >= SMALLEST
            && tcp_header >= TCP_HEADER
            // Without padding.
            && tcp_at + segment.len() == frame.len();
        let (headers, payload) = frame.split_at_checked(tcp_at + tcp_header)?;
        (is_right && !payload.is_empty()).then_some(Self {
            headers,
            payload,
            size: header.gso_size.into(),
            tcp_at,
            is_v4,
        })
    }

    /// Segments that it is cut into.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.size)
    }

    fn part(&self, number: usize) -> &'a [u8] {
        let start = number * self.size;
        let end = self.payload.len().min(start + self.size);
        &self.payload[start..end]
    }

    /// Bytes of the frame of a segment, by its number.
    pub fn frame_len(&self, number: usize) -> usize {
        self.headers.len() + self.part(number).len()
    }

    /// Writes the frame of a segment to `frame`, of just its bytes.
    pub fn write(&self, number: usize, frame: &mut [u8]) {
        let (headers, payload) = frame.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        payload.copy_from_slice(self.part(number));
        if self.is_v4 {
            let at = ETHERNET_HEADER + 4;
            let first = u16::from_be_bytes([headers[at], headers[at + 1]]);
            let identification = first.wrapping_add(number as u16);
            headers[at..at + 2].copy_from_slice(&identification.to_be_bytes());
        }
        let tcp = &mut headers[self.tcp_at..];
        let seq = u32::from_be_bytes([tcp[SEQ], tcp[SEQ + 1], tcp[SEQ + 2], tcp[SEQ + 3]]);
        let seq = seq.wrapping_add((number * self.size) as u32);
        tcp[SEQ..SEQ + 4].copy_from_slice(&seq.to_be_bytes());
        if number + 1 < self.count() {
            tcp[FLAGS] &= !FIN_AND_PSH;
        }
        if number > 0 {
            tcp[FLAGS] &= !CWR;
        }
        let header = leave_checksum(frame, self.tcp_at, Transport::Tcp);
        // The field is there: a whole header was looked at.
        let _ = checksum::complete(&header, frame);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{ETHERTYPE_IPV6, IPV4_HEADER, PROTOCOL_TCP};

    /// A frame with `payload` in one segment to 192.0.2.1, and what the guest says of it.
    fn long(is_v4: bool, options: usize, payload: &[u8], size: u16) -> (Vec<u8>, NetHeader) {
        let mut frame = vec![2; 12];
        let tcp_len = TCP_HEADER + options * 4 + payload.len();
        if is_v4 {
            frame.extend(ETHERTYPE_IPV4);
            frame.extend([0x45, 0]);
            frame.extend((IPV4_HEADER as u16 + tcp_len as u16).to_be_bytes());
            frame.extend([0xff, 0xff, 0x40, 0, 64, PROTOCOL_TCP, 0, 0]);
            frame.extend([10, 0, 2, 15, 192, 0, 2, 1]);
        } else {
            frame.extend(ETHERTYPE_IPV6);
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((tcp_len as u16).to_be_bytes());
            frame.extend([PROTOCOL_TCP, 64]);
            frame.extend([0xfd; 32]);
        }
        let csum_start = frame.len() as u16;
        frame.extend([0x9c, 0x40, 0, 80, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9]);
        frame.extend([((5 + options) << 4) as u8, 0x99, 1, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + options * 4, 1);
        frame.extend(payload);
        let header = NetHeader {
            flags: tare_devices::net::FLAG_NEEDS_CSUM,
            gso_type: if is_v4 { GSO_TCPV4 } else { GSO_TCPV6 },
            gso_size: size,
            csum_start,
            csum_offset: Transport::Tcp.checksum(),
            ..NetHeader::default()
        };
        (frame, header)
    }

    fn frames(cut: &Cut<'_>) -> Vec<Vec<u8>> {
        (0..cut.count())
            .map(|number| {
                let mut frame = vec![0xee; cut.frame_len(number)];
                cut.write(number, &mut frame);
                frame
            })
            .collect()
    }

    /// The sum over a segment and its pseudo header: all ones if its checksum is right.
    fn sum_of(frame: &[u8], tcp_at: usize, addresses: std::ops::Range<usize>) -> u16 {
        let tcp = &frame[tcp_at..];
        let pseudo = checksum::sum(&frame[addresses]) + 6 + tcp.len() as u64;
        checksum::fold(pseudo + checksum::sum(tcp))
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(
            is_v4: bool,
            options in 0_usize..=10,
            payload in proptest::collection::vec(any::<u8>(), 1..5000),
            size in SMALLEST..2000,
        ) {
            let (frame, header) = long(is_v4, options, &payload, size);
            let cut = Cut::of(&frame, &header).unwrap();
            let tcp_at = usize::from(header.csum_start);
            let payload_at = tcp_at + TCP_HEADER + options * 4;
            let frames = frames(&cut);
            let mut seq = 0xffff_fff0_u32;
            for (number, frame) in frames.iter().enumerate() {
                let (is_first, is_last) = (number == 0, number + 1 == frames.len());
                prop_assert_eq!(&frame[tcp_at + 4..tcp_at + 8], seq.to_be_bytes());
                let part = frame.len() - payload_at;
                prop_assert!(is_last || part == usize::from(size));
                seq = seq.wrapping_add(part as u32);
                let flags = 0x10 | if is_first { 0x80 } else { 0 } | if is_last { 9 } else { 0 };
                prop_assert_eq!(frame[tcp_at + 13], flags);
                let ip = &frame[14..tcp_at];
                let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
                if is_v4 {
                    prop_assert_eq!(usize::from(word(2)), frame.len() - 14);
                    prop_assert_eq!(word(4), 0xffff_u16.wrapping_add(number as u16));
                    prop_assert_eq!(checksum::fold(checksum::sum(ip)), 0xffff);
                    prop_assert_eq!(sum_of(frame, tcp_at, 26..34), 0xffff);
                } else {
                    prop_assert_eq!(usize::from(word(4)), frame.len() - 54);
                    prop_assert_eq!(sum_of(frame, tcp_at, 22..54), 0xffff);
                }
            }
            let parts: Vec<u8> = frames.iter().flat_map(|it| it[payload_at..].to_vec()).collect();
            prop_assert_eq!(parts, payload);
        }

        #[test]
        fn no_frame_of_a_guest_is_beyond_it(
            mut frame in proptest::collection::vec(any::<u8>(), 0..200),
            is_v4: bool,
            csum_start in prop_oneof![Just(34_u16), Just(54), any::<u16>()],
            gso_size: u16,
        ) {
            if frame.len() > 60 {
                frame[12..14].copy_from_slice(if is_v4 { &ETHERTYPE_IPV4 } else { &ETHERTYPE_IPV6 });
                let length = (frame.len() - if is_v4 { 14 } else { 54 }) as u16;
                let at = if is_v4 { 16 } else { 18 };
                frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
                frame[if is_v4 { 23 } else { 20 }] = PROTOCOL_TCP;
            }
            let header = NetHeader {
                gso_type: if is_v4 { GSO_TCPV4 } else { GSO_TCPV6 },
                gso_size,
                csum_start,
                csum_offset: Transport::Tcp.checksum(),
                ..NetHeader::default()
            };
            if let Some(cut) = Cut::of(&frame, &header) {
                frames(&cut);
            }
        }
    }

    #[test]
    fn a_header_that_is_wrong_of_its_frame_is_refused() {
        let (frame, right) = long(true, 0, &[7; 3000], 1460);
        assert_eq!(Cut::of(&frame, &right).unwrap().count(), 3);
        let other = |change: fn(&mut NetHeader)| {
            let mut header = right;
            change(&mut header);
            Cut::of(&frame, &header).is_none()
        };
        assert!(other(|it| it.gso_type = GSO_TCPV6));
        assert!(other(|it| it.gso_type = 3));
        assert!(other(|it| it.gso_size = SMALLEST - 1));
        assert!(other(|it| it.csum_start += 2));
        assert!(other(|it| it.csum_offset = 6));
        for (at, byte) in [(16, 0), (23, 17), (46, 0x40)] {
            let mut wrong = frame.clone();
            wrong[at] = byte;
            assert!(Cut::of(&wrong, &right).is_none(), "{at}");
        }
        assert!(
            Cut::of(&frame[..54], &right).is_none(),
            "its data is missing"
        );
        assert!(Cut::of(&[], &right).is_none());
    }
}
