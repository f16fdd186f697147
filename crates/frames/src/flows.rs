//! Flows that the host began: what a guest may answer although the address is
//! closed to it.
//!
//! A client on the host that connects to a published port by one of the host's
//! own addresses keeps that address as its source. Its flow is recorded with
//! each frame that passt sends to the guest, so a guest cannot make an entry.
//! The table is fixed in size; when a set is full its oldest entry goes, and
//! comes back with the next frame from the host.

use std::net::IpAddr;

use crate::packet::Ip;

const SETS: usize = 256;
const WAYS: usize = 4;

/// One direction of a flow, as the guest answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    protocol: u8,
    host: IpAddr,
    host_port: u16,
    guest_port: u16,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Flows(Box<[[Option<Flow>; WAYS]]>);

impl Flows {
    pub(crate) fn new() -> Self {
        Self(vec![[None; WAYS]; SETS].into_boxed_slice())
    }

    /// Records the flow of a packet that goes to the guest.
    pub(crate) fn record(&mut self, packet: &Ip) {
        let Some(ports) = packet.ports else { return };
        let flow = Flow {
            protocol: packet.protocol,
            host: packet.source,
            host_port: ports.source,
            guest_port: ports.destination,
        };
        let set = &mut self.0[flow.set()];
        let way = set.iter().position(|known| *known == Some(flow));
        // The newest is first.
        set[..=way.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = Some(flow);
    }

    /// Whether a packet from the guest answers a recorded flow. One that opens a connection does not: the client's
    /// port may be another program's by now, and passt would connect to it.
    pub(crate) fn answers(&self, packet: &Ip) -> bool {
        let Some(ports) = packet.ports.filter(|_| !packet.opens) else {
            return false;
        };
        let flow = Flow {
            protocol: packet.protocol,
            host: packet.destination,
            host_port: ports.destination,
            guest_port: ports.source,
        };
        self.0[flow.set()].contains(&Some(flow))
    }
}

impl Flow {
    fn set(&self) -> usize {
        usize::from(self.host_port ^ self.guest_port) % SETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ports, TCP, UDP};

    fn packet(source: u16, destination: u16) -> Ip {
        Ip {
            source: IpAddr::from([192, 0, 2, 1]),
            destination: IpAddr::from([192, 0, 2, 1]),
            protocol: TCP,
            icmpv6: None,
            ports: Some(Ports {
                source,
                destination,
            }),
            opens: false,
        }
    }

    #[test]
    fn only_the_answer_to_a_recorded_flow_is_known() {
        let mut flows = Flows::new();
        flows.record(&packet(40_000, 80));
        assert!(flows.answers(&packet(80, 40_000)));
        assert!(!flows.answers(&packet(40_000, 80)));
        assert!(!flows.answers(&packet(80, 40_001)));
        let udp = Ip {
            protocol: UDP,
            ..packet(80, 40_000)
        };
        assert!(!flows.answers(&udp));
        let opening = Ip {
            opens: true,
            ..packet(80, 40_000)
        };
        assert!(!flows.answers(&opening));
        let portless = Ip {
            ports: None,
            ..packet(80, 40_000)
        };
        assert!(!flows.answers(&portless));
    }

    #[test]
    fn a_full_set_forgets_what_was_silent_longest() {
        let mut flows = Flows::new();
        let client = |n: usize| (n * SETS) as u16;
        for n in 0..WAYS {
            flows.record(&packet(client(n), 0));
        }
        flows.record(&packet(client(0), 0));
        flows.record(&packet(client(WAYS), 0));
        assert!(flows.answers(&packet(0, client(0))));
        assert!(!flows.answers(&packet(0, client(1))));
        assert!(flows.answers(&packet(0, client(WAYS))));
    }
}
