//! Announces the guest's hardware address to the other end before the guest sends.
//!
//! passt learns the address from the first frame that it receives, and until then sends to
//! 00:00:00:00:00:00, which no guest accepts: a server with a static address, which only answers,
//! would never be reached. The frame is a reverse ARP request (RFC 903), with which QEMU announces
//! a machine too.

use tare_devices::net::{Link, LinkError, NetHeader};

/// Shortest Ethernet frame without its checksum.
const FRAME: usize = 60;
const BROADCAST: [u8; 6] = [0xff; 6];
const ETHERTYPE_RARP: u16 = 0x8035;
/// Ethernet, IPv4, lengths 6 and 4, "request reverse".
const REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 3];

/// Sends the announcement of `mac`.
pub(super) fn announce(link: &mut impl Link, mac: [u8; 6]) -> Result<(), LinkError> {
    let Some(room) = link.reserve(FRAME)? else {
        return Ok(());
    };
    room.copy_from_slice(&frame(mac));
    link.commit(&NetHeader::default())?;
    link.flush()
}

fn frame(mac: [u8; 6]) -> [u8; FRAME] {
    let unknown_address = [0; 4];
    let parts: [&[u8]; 8] = [
        &BROADCAST,
        &mac,
        &ETHERTYPE_RARP.to_be_bytes(),
        &REQUEST,
        &mac,
        &unknown_address,
        &mac,
        &unknown_address,
    ];
    let mut frame = [0; FRAME];
    for (to, from) in frame.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_a_broadcast_from_the_guest() {
        let mac = [2, 3, 4, 5, 6, 7];
        let frame = frame(mac);
        assert_eq!(frame[..6], BROADCAST);
        assert_eq!(frame[6..12], mac);
        assert_eq!(frame[12..14], [0x80, 0x35]);
        assert_eq!(frame[22..28], mac);
        assert_eq!(frame[42..], [0; FRAME - 42]);
    }
}
