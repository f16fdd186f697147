//! Control messages (virtio 1.2, 5.3.6.2): `struct virtio_console_control`, behind it a
//! name in one case.

/// Bytes of the structure.
pub(super) const LEN: usize = 8;

const DEVICE_READY: u16 = 0;
const DEVICE_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

/// The value of a message: yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Yes,
    No,
}

/// A message of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FromDriver {
    /// Whether it can use the device.
    DeviceReady(Value),
    /// Whether it can use the port.
    PortReady(usize, Value),
    /// Whether its end of the port is open.
    PortOpen(usize, Value),
}

impl FromDriver {
    /// The message, if a device with that number of ports understands it.
    pub(super) fn parse(bytes: [u8; LEN], ports: usize) -> Option<Self> {
        let [a, b, c, d, event_low, event_high, value_low, value_high] = bytes;
        let value = match u16::from_le_bytes([value_low, value_high]) {
            0 => Value::No,
            1 => Value::Yes,
            _ => return None,
        };
        let event = u16::from_le_bytes([event_low, event_high]);
        if event == DEVICE_READY {
            // The port's number is not used.
            return Some(Self::DeviceReady(value));
        }
        let port = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
        match event {
            _ if port >= ports => None,
            PORT_READY => Some(Self::PortReady(port, value)),
            PORT_OPEN => Some(Self::PortOpen(port, value)),
            _ => None,
        }
    }
}

/// A message to the driver, of the port with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToDriver {
    /// There is such a port.
    Add,
    /// It has this name.
    Name(&'static str),
    /// Whether the host's end of it is open.
    Open(Value),
}

impl ToDriver {
    /// The message's bytes.
    pub(super) fn bytes(self, port: usize) -> Vec<u8> {
        let (event, value, name) = match self {
            Self::Add => (DEVICE_ADD, 1, ""),
            Self::Name(name) => (PORT_NAME, 1, name),
            Self::Open(value) => (PORT_OPEN, u16::from(value == Value::Yes), ""),
        };
        let mut bytes = Vec::with_capacity(LEN + name.len());
        bytes.extend_from_slice(&(port as u32).to_le_bytes());
        bytes.extend_from_slice(&u16::to_le_bytes(event));
        bytes.extend_from_slice(&u16::to_le_bytes(value));
        bytes.extend_from_slice(name.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_have_the_standards_layout() {
        let message = FromDriver::parse([2, 0, 0, 0, 6, 0, 1, 0], 3);
        assert_eq!(message, Some(FromDriver::PortOpen(2, Value::Yes)));
        let message = FromDriver::parse([0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0], 3);
        assert_eq!(message, Some(FromDriver::DeviceReady(Value::Yes)));
        assert_eq!(ToDriver::Add.bytes(1), [1, 0, 0, 0, 1, 0, 1, 0]);
        let name = ToDriver::Name("ab").bytes(2);
        assert_eq!(name, [2, 0, 0, 0, 7, 0, 1, 0, b'a', b'b']);
        let open = ToDriver::Open(Value::No).bytes(0);
        assert_eq!(open, [0, 0, 0, 0, 6, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn a_message_that_is_understood_is_of_a_port_that_exists(bytes: [u8; LEN], ports in 0usize..5) {
            match FromDriver::parse(bytes, ports) {
                Some(FromDriver::PortReady(port, _) | FromDriver::PortOpen(port, _)) => {
                    prop_assert!(port < ports);
                }
                Some(FromDriver::DeviceReady(_)) | None => {}
            }
        }
    }
}
