//! Control messages (virtio 1.2, 5.3.6.2), and which ports have their name.

use tare_abi::streams::NAMES;

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

/// Which ports have the name that their number stands for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names([bool; NAMES.len()]);

impl Names {
    /// Hears a message. One that makes no sense changes nothing: the host may be another one.
    pub(super) fn hear(&mut self, message: &[u8]) -> Follows {
        let Some((head, name)) = message.split_first_chunk::<LEN>() else {
            return Follows::Nothing;
        };
        let [a, b, c, d, event_low, event_high, value_low, value_high] = *head;
        let number = u32::from_le_bytes([a, b, c, d]);
        let port = number as usize;
        let Some(expected) = NAMES.get(port) else {
            return Follows::Nothing;
        };
        match u16::from_le_bytes([event_low, event_high]) {
            DEVICE_ADD => Follows::Answer(bytes(number, PORT_READY)),
            PORT_NAME if name == expected.as_bytes() => {
                self.0[port] = true;
                Follows::Answer(bytes(number, PORT_OPEN))
            }
            PORT_OPEN if self.0[port] => {
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
        let mut names = Names::default();
        let ready = names.hear(&message(1, 1, 1, ""));
        assert_eq!(ready, Follows::Answer([1, 0, 0, 0, 3, 0, 1, 0]));
        let open = names.hear(&message(1, 7, 1, "tare.stdout"));
        assert_eq!(open, Follows::Answer([1, 0, 0, 0, 6, 0, 1, 0]));
        assert_eq!(names.hear(&message(1, 6, 1, "")), Follows::Host(1, true));
        assert_eq!(names.hear(&message(1, 6, 0, "")), Follows::Host(1, false));
    }

    #[test]
    fn a_port_of_another_name_is_left_alone() {
        let mut names = Names::default();
        for name in ["", "tare.stdin", "tare.stdout2", "org.qemu.guest_agent.0"] {
            assert_eq!(names.hear(&message(1, 7, 1, name)), Follows::Nothing);
        }
        assert_eq!(names.hear(&message(1, 6, 1, "")), Follows::Nothing);
        assert_eq!(names.hear(&message(3, 1, 1, "")), Follows::Nothing);
    }

    proptest! {
        #[test]
        fn no_message_names_a_port_that_is_not_there(messages: Vec<Vec<u8>>) {
            let mut names = Names::default();
            for message in messages {
                if let Follows::Host(port, _) = names.hear(&message) {
                    prop_assert!(port < NAMES.len());
                }
            }
        }
    }
}
