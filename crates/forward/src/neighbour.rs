//! Answers to who has the gateway's address: ARP (RFC 826) and neighbour discovery (RFC 4861).
//! Only where no passt is on the wire yet.

use std::net::{Ipv4Addr, Ipv6Addr};

use tare_devices::net::checksum;

use crate::Settings;
use crate::frame::{ETHERTYPE_ARP, ETHERTYPE_IPV6, IPV6_HEADER, PROTOCOL_ICMPV6, Question};

/// An ARP reply for IPv4 over Ethernet.
const ARP_REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];
/// Neighbour advertisement (RFC 4861, 4.4), and its flags: from a router, as an answer, to be believed.
const ADVERTISEMENT: u8 = 136;
const FLAGS: u8 = 0xe0;
/// The option with the sender's hardware address: its kind, and its length in 8 bytes.
const TARGET_ADDRESS: [u8; 2] = [2, 1];
const ADVERTISEMENT_LEN: usize = 32;
/// What neighbour discovery sends with, so that no router has passed it on.
const HOP_LIMIT: u8 = 255;

/// The answer to `question`, if it is about the gateway.
pub(crate) fn answer(settings: &Settings, question: Question) -> Option<Vec<u8>> {
    match question {
        Question::Arp { asker, wanted } => {
            (wanted == settings.v4.gateway).then(|| arp_reply(settings, asker))
        }
        Question::Solicitation { asker, wanted } => {
            let is_ours = settings.v6.is_some_and(|v6| wanted == v6.gateway);
            // A question without a sender is a look for duplicates.
            (is_ours && !asker.is_unspecified()).then(|| advertisement(settings, asker, wanted))
        }
    }
}

/// Whether the guest looks for a host that is neither itself nor the gateway.
pub(crate) fn is_about_others(settings: &Settings, question: Question) -> bool {
    match question {
        // What is sent with the address in question, or with none, is an announcement or a look for
        // duplicates (RFC 5227).
        Question::Arp { asker, wanted } => {
            let own = [asker, settings.v4.guest, settings.v4.gateway];
            !asker.is_unspecified() && !own.contains(&wanted)
        }
        Question::Solicitation { asker, wanted } => settings.v6.is_some_and(|v6| {
            let own = [asker, v6.guest, v6.gateway];
            !asker.is_unspecified() && !own.contains(&wanted)
        }),
    }
}

fn ethernet(settings: &Settings, ethertype: [u8; 2]) -> Vec<u8> {
    [
        settings.guest_mac.as_slice(),
        &settings.gateway_mac,
        &ethertype,
    ]
    .concat()
}

fn arp_reply(settings: &Settings, asker: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(settings, ETHERTYPE_ARP);
    frame.extend(ARP_REPLY);
    frame.extend(settings.gateway_mac);
    frame.extend(settings.v4.gateway.octets());
    frame.extend(settings.guest_mac);
    frame.extend(asker.octets());
    frame
}

fn advertisement(settings: &Settings, asker: Ipv6Addr, own: Ipv6Addr) -> Vec<u8> {
    let mut frame = ethernet(settings, ETHERTYPE_IPV6);
    let ip = frame.len();
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((ADVERTISEMENT_LEN as u16).to_be_bytes());
    frame.extend([PROTOCOL_ICMPV6, HOP_LIMIT]);
    frame.extend(own.octets());
    frame.extend(asker.octets());
    frame.extend([ADVERTISEMENT, 0, 0, 0, FLAGS, 0, 0, 0]);
    frame.extend(own.octets());
    frame.extend(TARGET_ADDRESS);
    frame.extend(settings.gateway_mac);
    let (header, message) = frame[ip..].split_at_mut(IPV6_HEADER);
    let pseudo = checksum::sum(&header[8..]) + u64::from(PROTOCOL_ICMPV6) + message.len() as u64;
    let sum = !checksum::fold(pseudo + checksum::sum(message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    frame
}
