//! One ARP request in the guest's name (RFC 826), with the framing of QEMU's stream sockets. It
//! gives passt the guest's hardware address; see `passt`.

const BROADCAST: [u8; 6] = [0xff; 6];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// Ethernet, IPv4, address lengths 6 and 4, request.
const REQUEST: [u8; 8] = [0, 1, 0x08, 0, 6, 4, 0, 1];
/// Shortest Ethernet frame without its check sequence (IEEE 802.3, 3.2.8).
const SHORTEST: usize = 60;

/// "Who has `gateway`? Tell `guest`", after its 32-bit length.
pub(crate) fn announcement(mac: [u8; 6], guest: [u8; 4], gateway: [u8; 4]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(4 + SHORTEST);
    frame.extend((SHORTEST as u32).to_be_bytes());
    frame.extend(BROADCAST);
    frame.extend(mac);
    frame.extend(ETHERTYPE_ARP);
    frame.extend(REQUEST);
    frame.extend(mac);
    frame.extend(guest);
    frame.extend([0; 6]);
    frame.extend(gateway);
    frame.resize(4 + SHORTEST, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_a_request_from_the_guest() {
        let mac = [2, 1, 2, 3, 4, 5];
        let frame = announcement(mac, [10, 0, 2, 15], [10, 0, 2, 2]);
        assert_eq!(frame.len(), 64);
        assert_eq!(frame[..4], [0, 0, 0, 60]);
        assert_eq!(frame[10..16], mac);
        assert_eq!(frame[26..32], mac);
        assert_eq!(frame[32..36], [10, 0, 2, 15]);
        assert_eq!(frame[42..46], [10, 0, 2, 2]);
    }
}
