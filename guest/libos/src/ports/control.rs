//! Control messages (virtio 1.2, 5.3.6.2), and which ports have their name.

use tare_abi::streams::{NAMES, SIGNALS, SIGNALS_PORT};

/// Bytes of `struct virtio_console_control`, and of the longest message: a name follows.
pub(super) const LEN: usize = 8;
pub(super) const LONGEST: usize = 64;

const DEVICE_READY: u16 = 0;
const DEVICE_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;
/// "No port" (Linux `include/uapi/linux/virtio_console.h`).
const BAD_ID: u32 = u32::MAX;

/// The first message: the driver has set itself up.
pub(super) fn device_ready() -> [u8; LEN] {
    bytes(BAD_ID, DEVICE_READY)
}

fn bytes(port: u32, event: u16) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&port.to_le_bytes());
    bytes[4..6].copy_from_slice(&event.to_le_bytes());
    bytes[6..].copy_from_slice(&1_u16.to_le_bytes());
    bytes
}

/// What follows from a message of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// Nothing.
    Nothing,
    /// This answer.
    Answer([u8; LEN]),
    /// The host's end of a port is open, or closed.
    Host(usize, bool),
}

/// What the ports of a console are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Standard streams, in Tare's own monitor.
    Streams,
    /// Signals, in QEMU.
    Signals,
}

impl Kind {
    /// Of a console with this number of ports.
    pub(super) fn of(ports: u32) -> Option<Self> {
        match ports as usize {
            ports if ports == SIGNALS_PORT + 1 => Some(Self::Signals),
            ports if ports >= NAMES.len() => Some(Self::Streams),
            _ => None,
        }
    }

    /// The name that a port must have.
    fn name(self, port: usize) -> Option<&'static str> {
        match self {
            Self::Streams => NAMES.get(port).copied(),
            Self::Signals => (port == SIGNALS_PORT).then_some(SIGNALS),
        }
    }

    /// Whether the console has this port.
    pub(super) fn has(self, port: usize) -> bool {
        self.name(port).is_some()
    }
}

/// Which ports have the name that their number stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    kind: Kind,
    named: [bool; NAMES.len()],
}

impl Names {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            named: [false; NAMES.len()],
        }
    }

    /// Hears a message. One that makes no sense changes nothing: the host may be another one.
    pub(super) fn hear(&mut self, message: &[u8]) -> Follows {
        let Some((head, name)) = message.split_first_chunk::<LEN>() else {
            return Follows::Nothing;
        };
        // QEMU's names end with a NUL (`handle_control_message` in hw/char/virtio-serial-bus.c).
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let [a, b, c, d, event_low, event_high, value_low, value_high] = *head;
        let number = u32::from_le_bytes([a, b, c, d]);
        let port = number as usize;
        let Some(expected) = self.kind.name(port) else {
            return Follows::Nothing;
        };
        match u16::from_le_bytes([event_low, event_high]) {
            DEVICE_ADD => Follows::Answer(bytes(number, PORT_READY)),
            PORT_NAME if name == expected.as_bytes() => {
                self.named[port] = true;
                Follows::Answer(bytes(number, PORT_OPEN))
            }
            PORT_OPEN if self.named[port] => {
                Follows::Host(port, u16::from_le_bytes([value_low, value_high]) != 0)
            }
            _ => Follows::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn message(port: u8, event: u8, value: u8, name: &str) -> Vec<u8> {
        let mut bytes = vec![port, 0, 0, 0, event, 0, value, 0];
        bytes.extend_from_slice(name.as_bytes());
        bytes
    }

    #[test]
    fn a_port_is_made_ready_named_and_opened() {
        let mut names = Names::new(Kind::Streams);
        let ready = names.hear(&message(1, 1, 1, ""));
        assert_eq!(ready, Follows::Answer([1, 0, 0, 0, 3, 0, 1, 0]));
        let open = names.hear(&message(1, 7, 1, "tare.stdout"));
        assert_eq!(open, Follows::Answer([1, 0, 0, 0, 6, 0, 1, 0]));
        assert_eq!(names.hear(&message(1, 6, 1, "")), Follows::Host(1, true));
        assert_eq!(names.hear(&message(1, 6, 0, "")), Follows::Host(1, false));
    }

    #[test]
    fn a_port_of_another_name_is_left_alone() {
        let mut names = Names::new(Kind::Streams);
        for name in ["", "tare.stdin", "tare.stdout2", "org.qemu.guest_agent.0"] {
            assert_eq!(names.hear(&message(1, 7, 1, name)), Follows::Nothing);
        }
        assert_eq!(names.hear(&message(1, 6, 1, "")), Follows::Nothing);
        assert_eq!(names.hear(&message(3, 1, 1, "")), Follows::Nothing);
    }

    #[test]
    fn a_console_of_two_ports_has_the_one_of_signals() {
        let kinds = [0, 1, 2, 3, 31].map(Kind::of);
        let streams = Some(Kind::Streams);
        assert_eq!(kinds, [None, None, Some(Kind::Signals), streams, streams]);
        let mut names = Names::new(Kind::Signals);
        for (port, name, follows) in [
            (0, "tare.stdin", Follows::Nothing),
            (1, "tare.stdout", Follows::Nothing),
            (2, "tare.signals", Follows::Nothing),
            (1, "tare.signals\0\0", Follows::Nothing),
            (1, "tare.signals", Follows::Answer([1, 0, 0, 0, 6, 0, 1, 0])),
            (
                1,
                "tare.signals\0",
                Follows::Answer([1, 0, 0, 0, 6, 0, 1, 0]),
            ),
        ] {
            assert_eq!(names.hear(&message(port, 7, 1, name)), follows);
        }
        assert_eq!(names.hear(&message(1, 6, 1, "")), Follows::Host(1, true));
    }

    proptest! {
        #[test]
        fn no_message_names_a_port_that_is_not_there(messages: Vec<Vec<u8>>) {
            for kind in [Kind::Streams, Kind::Signals] {
                let mut names = Names::new(kind);
                for message in &messages {
                    if let Follows::Host(port, _) = names.hear(message) {
                        prop_assert!(kind.has(port));
                    }
                }
            }
        }
    }
}
