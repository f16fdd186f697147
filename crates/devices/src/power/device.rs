//! The ports.

use std::sync::Arc;

use tare_abi::exit::GuestExit;
use tare_abi::ports;

use super::PowerCounters;
use crate::CounterSource;

/// Bit of [`ports::RESET`] that starts a reset; bit 1 only chooses its kind.
const RESET_CPU: u8 = 1 << 2;
const SLEEP_ENABLE: u8 = 1 << 5;

/// The guest's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// ACPI S5.
    PowerOff,
    /// A reset of the machine.
    Reset,
    /// The guest reports its result.
    Exit(GuestExit),
}

/// The ports 0x64, 0xcf9, 0x600, 0x601 and 0xf4. vCPU threads.
#[derive(Debug, Default)]
pub struct Power {
    reset_control: u8,
    counters: Arc<PowerCounters>,
}

impl Power {
    /// Powered on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a port access belongs to this device. At 0xcf9 only bytes do: wider ones belong to
    /// PCI configuration.
    pub fn claims_port(port: u16, len: usize) -> bool {
        match port {
            ports::RESET => len == 1,
            ports::I8042 | ports::SLEEP_CONTROL | ports::SLEEP_STATUS | ports::EXIT => true,
            _ => false,
        }
    }

    /// A port read: the reset control as written, zeros elsewhere (an i8042 that is ready for a
    /// command, and no wake-up event).
    pub fn read(&mut self, port: u16, data: &mut [u8]) {
        data.fill(0);
        if let (ports::RESET, Some(byte)) = (port, data.first_mut()) {
            *byte = self.reset_control;
        }
    }

    /// A port write; an event ends the run.
    pub fn write(&mut self, port: u16, data: &[u8]) -> Option<PowerEvent> {
        let value = *data.first()?;
        let event = match port {
            ports::I8042 => (value == ports::I8042_RESET).then_some(PowerEvent::Reset),
            ports::RESET => return self.reset(value),
            ports::SLEEP_CONTROL if value & SLEEP_ENABLE == 0 => return None,
            ports::SLEEP_CONTROL => (value == ports::SLEEP_S5).then_some(PowerEvent::PowerOff),
            ports::SLEEP_STATUS => return None,
            ports::EXIT => exit_value(data).map(PowerEvent::Exit),
            _ => None,
        };
        self.count(event)
    }

    /// Counters, shared.
    pub fn counters(&self) -> Arc<dyn CounterSource> {
        Arc::clone(&self.counters) as Arc<dyn CounterSource>
    }

    fn reset(&mut self, value: u8) -> Option<PowerEvent> {
        self.reset_control = value & !RESET_CPU;
        if value & RESET_CPU == 0 {
            return None;
        }
        self.count(Some(PowerEvent::Reset))
    }

    fn count(&self, event: Option<PowerEvent>) -> Option<PowerEvent> {
        match event {
            Some(_) => self.counters.events.increment(),
            None => self.counters.malformed.increment(),
        }
        event
    }
}

/// The value of a write of one to four bytes.
fn exit_value(data: &[u8]) -> Option<GuestExit> {
    let mut bytes = [0; 4];
    bytes.get_mut(..data.len())?.copy_from_slice(data);
    GuestExit::from_value(u32::from_le_bytes(bytes))
}
