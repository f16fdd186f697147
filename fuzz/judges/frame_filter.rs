//! What the filter of frames must keep to, whatever the bytes are. Shared by the
//! fuzz target and the replay of the corpus in tare-frames.

use std::net::Ipv4Addr;

use tare_frames::{Filter, Prefix, Rules, Verdict};

const HOST: [u8; 4] = [192, 168, 7, 1];
const GATEWAY: [u8; 4] = [10, 0, 2, 2];

/// The first byte says how often the frame also goes to the guest, which must
/// never open an address that is not the frame's own source.
pub(crate) fn judge(bytes: &[u8]) {
    let Some((mode, frame)) = bytes.split_first() else {
        return;
    };
    let mut filter = Filter::new(Rules {
        host: vec![Prefix::from(Ipv4Addr::from(HOST))],
        gateways: vec![GATEWAY.into()],
        ..Rules::default()
    });
    let fresh = filter.check_outgoing(frame);
    if fresh == Verdict::Pass {
        assert!(!names_the_host(frame), "{frame:?}");
    }
    for _ in 0..mode % 3 {
        filter.note_incoming(frame);
    }
    let later = filter.check_outgoing(frame);
    // Only a frame from itself to itself answers itself.
    if later != fresh {
        let (source, destination) = ends(frame).unwrap_or_default();
        assert_eq!(source, destination, "{frame:?}");
    }
}

/// Source and destination of an IPv4 or IPv6 packet behind up to two VLAN tags.
fn ends(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81 | 0x91, 0x00] | [0x88, 0xa8]) && at < 20 {
        at += 4;
    }
    let packet = frame.get(at + 2..)?;
    match frame.get(at..at + 2)? {
        [0x08, 0x00] => Some((packet.get(12..16)?, packet.get(16..20)?)),
        [0x86, 0xdd] => Some((packet.get(8..24)?, packet.get(24..40)?)),
        _ => None,
    }
}

/// A second reading, by fixed places alone: IPv4 without tags whose destination
/// is the host's, except for what DHCP sends, or the gateway's, except for names and DHCP.
fn names_the_host(frame: &[u8]) -> bool {
    let (Some([0x08, 0x00]), Some(to)) = (frame.get(12..14), frame.get(30..34)) else {
        return false;
    };
    let dhcp = frame[23] == 17 && to == [255; 4];
    let closed = matches!(to, [0 | 127 | 224..=239 | 255, ..] | [169, 254, ..]);
    // UDP, and no later fragment; its port lies behind options.
    let served = frame[23] == 17 && frame[20] & 0x1f == 0 && frame[21] == 0;
    (closed && !dhcp) || to == HOST || (to == GATEWAY && !served)
}
