use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::packet::TCP;

const GUEST: [u8; 4] = [10, 0, 2, 15];
const GATEWAY: [u8; 4] = [10, 0, 2, 2];
const GATEWAY_V6: &str = "fd00::2";
const HOST: [u8; 4] = [192, 168, 7, 1];

fn filter(allow: &[&str]) -> Filter {
    let range = |text: &&str| text.parse().expect("a range");
    Filter::new(Rules {
        host: vec![
            Prefix::from(Ipv4Addr::from(HOST)),
            // The host's network may have the same addresses as the guest's.
            Prefix::from(Ipv4Addr::from(GUEST)),
            Prefix::from(Ipv4Addr::from(GATEWAY)),
            "2001:db8::7".parse().expect("a range"),
        ],
        allow: allow.iter().map(range).collect(),
        gateways: vec![GATEWAY.into(), GATEWAY_V6.parse().expect("an address")],
    })
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x52; 12];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

fn segment(source: u16, destination: u16) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[..2].copy_from_slice(&source.to_be_bytes());
    bytes[2..4].copy_from_slice(&destination.to_be_bytes());
    bytes
}

fn ipv4(protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20];
    packet[0] = 0x45;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet.extend(payload);
    packet
}

fn tcp(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    ethernet(0x0800, &ipv4(TCP, from, to, &segment(40_000, 80)))
}

fn ipv6(protocol: u8, from: &str, to: &str) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address").octets();
    let mut packet = vec![0; 60];
    packet[0] = 0x60;
    packet[6] = protocol;
    packet[8..24].copy_from_slice(&address(from));
    packet[24..40].copy_from_slice(&address(to));
    ethernet(0x86dd, &packet)
}

fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    packet[14..18].copy_from_slice(&sender);
    packet[24..28].copy_from_slice(&target);
    ethernet(0x0806, &packet)
}

#[test]
fn a_guest_reaches_the_world_and_its_gateway() {
    let filter = filter(&[]);
    assert_eq!(
        filter.check_outgoing(&tcp(GUEST, [192, 0, 2, 1])),
        Verdict::Pass
    );
    assert_eq!(filter.check_outgoing(&arp(GUEST, GATEWAY)), Verdict::Pass);
    assert_eq!(
        filter.check_outgoing(&arp([0; 4], GUEST)),
        Verdict::Drop(Reason::Host)
    );
    assert_eq!(
        filter.check_outgoing(&ethernet(0x8035, &[0; 46])),
        Verdict::Pass
    );
    let v6 = ipv6(TCP, "fd00::15", "2001:db8::8");
    assert_eq!(filter.check_outgoing(&v6), Verdict::Pass);
}

#[test]
fn addresses_of_the_host_are_closed() {
    let closed = [
        ([127, 0, 0, 1], Reason::Loopback),
        ([127, 9, 9, 9], Reason::Loopback),
        ([0, 0, 0, 0], Reason::Unspecified),
        ([0, 1, 2, 3], Reason::Unspecified),
        ([169, 254, 169, 254], Reason::LinkLocal),
        (HOST, Reason::Host),
        ([224, 0, 0, 251], Reason::Multicast),
        ([255, 255, 255, 255], Reason::Multicast),
    ];
    let filter = filter(&[]);
    for (address, reason) in closed {
        assert_eq!(
            filter.check_outgoing(&tcp(GUEST, address)),
            Verdict::Drop(reason)
        );
        assert_eq!(
            filter.check_outgoing(&arp(GUEST, address)),
            Verdict::Drop(reason)
        );
    }
}

#[test]
fn a_source_that_answers_would_go_to_the_host_for_is_closed() {
    let filter = filter(&[]);
    let sources = [
        ([127, 0, 0, 1], Reason::Loopback),
        ([0, 0, 0, 0], Reason::Unspecified),
        ([169, 254, 1, 1], Reason::LinkLocal),
    ];
    for (address, reason) in sources {
        let frame = tcp(address, [192, 0, 2, 1]);
        assert_eq!(filter.check_outgoing(&frame), Verdict::Drop(reason));
    }
}

#[test]
fn ipv6_addresses_of_the_host_are_closed_in_every_spelling() {
    let closed = [
        ("::1", Reason::Loopback),
        ("::", Reason::Unspecified),
        ("fe80::1", Reason::LinkLocal),
        ("ff02::fb", Reason::Multicast),
        ("2001:db8::7", Reason::Host),
        ("::ffff:127.0.0.1", Reason::Loopback),
        ("::ffff:192.168.7.1", Reason::Host),
        ("64:ff9b::c0a8:701", Reason::Host),
    ];
    let filter = filter(&[]);
    for (address, reason) in closed {
        let frame = ipv6(TCP, "fd00::15", address);
        assert_eq!(
            filter.check_outgoing(&frame),
            Verdict::Drop(reason),
            "{address}"
        );
    }
}

#[test]
fn dhcp_and_neighbour_discovery_pass() {
    let filter = filter(&[]);
    let discover = |ports: &[u8]| ethernet(0x0800, &ipv4(UDP, [0; 4], [255; 4], ports));
    assert_eq!(
        filter.check_outgoing(&discover(&segment(68, 67))),
        Verdict::Pass
    );
    assert_ne!(
        filter.check_outgoing(&discover(&segment(68, 53))),
        Verdict::Pass
    );
    assert_ne!(filter.check_outgoing(&discover(&[])), Verdict::Pass);
    let message = |kind: u8, from: &str, to: &str| {
        let mut frame = ipv6(ICMPV6, from, to);
        frame[54] = kind;
        filter.check_outgoing(&frame)
    };
    assert_eq!(message(133, "::", "ff02::2"), Verdict::Pass);
    assert_eq!(message(135, "fe80::5", "fe80::1"), Verdict::Pass);
    assert_eq!(message(136, "fe80::5", "ff02::1"), Verdict::Pass);
    assert_ne!(message(133, "fd00::15", "ff02::2"), Verdict::Pass);
    // passt would send echo requests to the host's links, and routers advertise for others.
    for kind in [0, 128, 129, 134, 137] {
        let sent = message(kind, "fe80::5", "fe80::1");
        assert_eq!(sent, Verdict::Drop(Reason::LinkLocal), "{kind}");
        assert_ne!(message(kind, "::", "ff02::1"), Verdict::Pass, "{kind}");
    }
    let request = |from: &str, to: &str, port: u16| {
        let mut frame = ipv6(UDP, from, to);
        frame[54..58].copy_from_slice(&segment(546, port)[..4]);
        filter.check_outgoing(&frame)
    };
    assert_eq!(request("fe80::5", "ff02::1:2", 547), Verdict::Pass);
    assert_ne!(request("fd00::15", "ff02::1:2", 547), Verdict::Pass);
    assert_ne!(request("fe80::5", "ff02::1:2", 53), Verdict::Pass);
    assert_ne!(request("fe80::5", "ff02::fb", 547), Verdict::Pass);
    // passt passes over the options and sends what is behind them.
    let report = |to: &str, behind: u8, kind: u8| {
        let mut frame = ipv6(0, "fe80::5", to);
        (frame[54], frame[62]) = (behind, kind);
        filter.check_outgoing(&frame)
    };
    assert_eq!(report("ff02::16", ICMPV6, 143), Verdict::Pass);
    assert_ne!(report("ff02::1", ICMPV6, 143), Verdict::Pass);
    assert_ne!(report("ff02::16", ICMPV6, 128), Verdict::Pass);
    for behind in [UDP, TCP, 0, 60] {
        assert_ne!(report("ff02::16", behind, 143), Verdict::Pass, "{behind}");
    }
    // Options that are longer than the frame.
    let mut long = ipv6(0, "fe80::5", "ff02::16");
    (long[54], long[55], long[62]) = (ICMPV6, 255, 143);
    assert_ne!(filter.check_outgoing(&long), Verdict::Pass);
}

#[test]
fn vlan_tags_do_not_hide_an_address() {
    let filter = filter(&[]);
    let packet = ipv4(TCP, GUEST, [127, 0, 0, 1], &segment(40_000, 80));
    let mut tagged = vec![0, 5, 0x08, 0x00];
    tagged.extend(&packet);
    for ethertype in [0x8100, 0x88a8, 0x9100] {
        let frame = ethernet(ethertype, &tagged);
        assert_eq!(
            filter.check_outgoing(&frame),
            Verdict::Drop(Reason::Loopback)
        );
    }
    let mut twice = vec![0, 5, 0x81, 0x00];
    twice.extend(&tagged);
    let frame = ethernet(0x88a8, &twice);
    assert_eq!(
        filter.check_outgoing(&frame),
        Verdict::Drop(Reason::Loopback)
    );
    let mut thrice = vec![0, 5, 0x81, 0x00];
    thrice.extend(&twice);
    let frame = ethernet(0x88a8, &thrice);
    assert_eq!(
        filter.check_outgoing(&frame),
        Verdict::Drop(Reason::Protocol)
    );
}

#[test]
fn every_fragment_is_checked() {
    let mut filter = filter(&[]);
    filter.note_incoming(&ethernet(
        0x0800,
        &ipv4(TCP, HOST, GUEST, &segment(80, 40_000)),
    ));
    let mut packet = ipv4(TCP, GUEST, HOST, &segment(40_000, 80));
    let first = ethernet(0x0800, &packet);
    assert_eq!(filter.check_outgoing(&first), Verdict::Pass, "an answer");
    packet[7] = 3;
    let later = ethernet(0x0800, &packet);
    assert_eq!(filter.check_outgoing(&later), Verdict::Drop(Reason::Host));
}

#[test]
fn frames_that_are_cut_short_are_dropped_at_any_length() {
    let filter = filter(&[]);
    let whole = [
        tcp(GUEST, [192, 0, 2, 1]),
        arp(GUEST, GATEWAY),
        ipv6(TCP, "fd00::15", "2001:db8::8"),
    ];
    for (frame, least) in whole.iter().zip([34, 42, 54]) {
        for length in 0..least {
            let verdict = filter.check_outgoing(&frame[..length]);
            assert_eq!(verdict, Verdict::Drop(Reason::Malformed), "{length}");
        }
        assert_eq!(filter.check_outgoing(&frame[..least]), Verdict::Pass);
    }
    let mut wrong = tcp(GUEST, [192, 0, 2, 1]);
    for first in [0x44, 0x4f, 0x65, 0x05] {
        wrong[14] = first;
        let verdict = filter.check_outgoing(&wrong[..50]);
        assert_eq!(verdict, Verdict::Drop(Reason::Malformed), "{first:#x}");
    }
}

#[test]
fn other_protocols_are_dropped() {
    let filter = filter(&[]);
    for ethertype in [0x0000, 0x0026, 0x88cc, 0x8847, 0xffff] {
        let frame = ethernet(ethertype, &[0; 64]);
        assert_eq!(
            filter.check_outgoing(&frame),
            Verdict::Drop(Reason::Protocol)
        );
    }
}

#[test]
fn an_allowed_range_is_open() {
    let filter = filter(&["127.0.0.1", "169.254.0.0/16", "192.168.7.1"]);
    for address in [[127, 0, 0, 1], [169, 254, 169, 254], HOST] {
        assert_eq!(filter.check_outgoing(&tcp(GUEST, address)), Verdict::Pass);
        assert_eq!(filter.check_outgoing(&arp(GUEST, address)), Verdict::Pass);
    }
    let other = tcp(GUEST, [127, 0, 0, 2]);
    assert_eq!(
        filter.check_outgoing(&other),
        Verdict::Drop(Reason::Loopback)
    );
}

#[test]
fn a_guest_answers_the_host_and_does_not_call_it() {
    let mut filter = filter(&[]);
    let answer = ethernet(0x0800, &ipv4(TCP, GUEST, HOST, &segment(80, 50_000)));
    assert_eq!(filter.check_outgoing(&answer), Verdict::Drop(Reason::Host));
    filter.note_incoming(&ethernet(
        0x0800,
        &ipv4(TCP, HOST, GUEST, &segment(50_000, 80)),
    ));
    assert_eq!(filter.check_outgoing(&answer), Verdict::Pass);
    let call = ethernet(0x0800, &ipv4(TCP, GUEST, HOST, &segment(80, 22)));
    assert_eq!(filter.check_outgoing(&call), Verdict::Drop(Reason::Host));
}

#[test]
fn the_gateways_arp_passes_where_the_host_has_that_address_too() {
    let mut filter = filter(&[]);
    assert_eq!(filter.check_outgoing(&arp(GUEST, GATEWAY)), Verdict::Pass);
    assert_eq!(
        filter.check_outgoing(&tcp(GUEST, GATEWAY)),
        Verdict::Drop(Reason::Host)
    );
    filter.note_incoming(&ethernet(
        0x0800,
        &ipv4(TCP, GATEWAY, GUEST, &segment(80, 40_000)),
    ));
    assert_eq!(filter.check_outgoing(&tcp(GUEST, GATEWAY)), Verdict::Pass);
}

#[test]
fn a_gateway_is_closed_but_for_what_passt_serves() {
    let filter = filter(&["0.0.0.0/0", "::/0"]);
    let v4 = |protocol, payload: &[u8]| {
        filter.check_outgoing(&ethernet(0x0800, &ipv4(protocol, GUEST, GATEWAY, payload)))
    };
    assert_eq!(v4(UDP, &segment(40_000, 53)), Verdict::Pass);
    assert_eq!(v4(UDP, &segment(68, 67)), Verdict::Pass);
    let closed = Verdict::Drop(Reason::Host);
    assert_eq!(v4(UDP, &segment(40_000, 54)), closed);
    assert_eq!(v4(UDP, &segment(53, 40_000)), closed);
    assert_eq!(v4(UDP, &[]), closed);
    assert_eq!(v4(TCP, &segment(40_000, 53)), closed);
    assert_eq!(v4(1, &segment(8, 0)), closed);
    let discovery = |kind: u8| {
        let mut frame = ipv6(ICMPV6, "fd00::15", GATEWAY_V6);
        frame[54] = kind;
        filter.check_outgoing(&frame)
    };
    for (kind, verdict) in [(135, Verdict::Pass), (136, Verdict::Pass), (128, closed)] {
        assert_eq!(discovery(kind), verdict, "{kind}");
    }
    assert_eq!(
        filter.check_outgoing(&ipv6(TCP, "fd00::15", GATEWAY_V6)),
        closed
    );
}

#[test]
fn a_guest_answers_a_client_that_passt_shows_as_the_gateway() {
    let mut filter = filter(&[]);
    let packet =
        |protocol, from, to, payload: &[u8]| ethernet(0x0800, &ipv4(protocol, from, to, payload));
    for protocol in [UDP, TCP] {
        let mut answer = segment(80, 50_000);
        // SYN and ACK.
        answer[13] = 0x12;
        let answer = packet(protocol, GUEST, GATEWAY, &answer);
        let closed = Verdict::Drop(Reason::Host);
        assert_eq!(filter.check_outgoing(&answer), closed);
        let question = packet(protocol, GATEWAY, GUEST, &segment(50_000, 80));
        filter.note_incoming(&question);
        assert_eq!(filter.check_outgoing(&answer), Verdict::Pass);
    }
    let mut opening = segment(80, 50_000);
    opening[13] = 0x02;
    for payload in [&opening[..], &opening[..13]] {
        let call = packet(TCP, GUEST, GATEWAY, payload);
        assert_eq!(
            filter.check_outgoing(&call),
            Verdict::Drop(Reason::Host),
            "another program may have the port by now"
        );
    }
}
