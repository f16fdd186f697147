//! The clock's registers.

use std::time::{SystemTime, UNIX_EPOCH};

use tare_abi::ports;

use super::calendar::DateTime;

const SECONDS: u8 = 0x00;
const MINUTES: u8 = 0x02;
const HOURS: u8 = 0x04;
const WEEKDAY: u8 = 0x06;
const DAY: u8 = 0x07;
const MONTH: u8 = 0x08;
const YEAR: u8 = 0x09;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const STATUS_D: u8 = 0x0d;
/// Where firmware keeps the century, and ACPI's FADT says so.
const CENTURY: u8 = 0x32;

/// 32,768 Hz time base; no update is ever in progress.
const STATUS_A_VALUE: u8 = 0x26;
const STATUS_B_BINARY: u8 = 0x04;
const STATUS_B_24_HOURS: u8 = 0x02;
const STATUS_D_VALID: u8 = 0x80;
const PM: u8 = 0x80;
/// Bit 7 of the index port masks non-maskable interrupts.
const INDEX_MASK: u8 = 0x7f;

/// Gives seconds since 1970.
type Clock = Box<dyn Fn() -> u64 + Send>;

/// The clock. vCPU threads, under a mutex.
pub struct Cmos {
    clock: Clock,
    index: u8,
    status_b: u8,
    /// Time at the last read of the seconds: the other registers belong to it,
    /// so that a date read in sequence is not torn.
    now: DateTime,
}

impl Cmos {
    /// A clock that shows the host's time.
    pub fn new() -> Self {
        Self::with_clock(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs())
        })
    }

    /// A clock that shows what `clock` gives, in seconds since 1970.
    pub(crate) fn with_clock(clock: impl Fn() -> u64 + Send + 'static) -> Self {
        Self {
            now: DateTime::from_unix(clock()),
            clock: Box::new(clock),
            index: 0,
            status_b: STATUS_B_24_HOURS,
        }
    }

    /// A read of port 0x70 or 0x71. The registers are a byte wide; other bytes
    /// of a wider access read as ones.
    pub fn read(&mut self, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        if let (Some(byte), ports::CMOS_DATA) = (data.first_mut(), port) {
            *byte = self.register();
        }
    }

    /// A write of port 0x70 or 0x71.
    pub fn write(&mut self, port: u16, data: &[u8]) {
        match (port, data.first()) {
            (ports::CMOS_INDEX, Some(index)) => self.index = index & INDEX_MASK,
            (ports::CMOS_DATA, Some(value)) if self.index == STATUS_B => {
                self.status_b = value & (STATUS_B_BINARY | STATUS_B_24_HOURS);
            }
            _ => {}
        }
    }

    fn register(&mut self) -> u8 {
        if self.index == SECONDS {
            self.now = DateTime::from_unix((self.clock)());
        }
        let now = &self.now;
        match self.index {
            SECONDS => self.encode(now.second),
            MINUTES => self.encode(now.minute),
            HOURS => self.hours(),
            WEEKDAY => self.encode(now.weekday),
            DAY => self.encode(now.day),
            MONTH => self.encode(now.month),
            YEAR => self.encode((now.year % 100) as u8),
            CENTURY => self.encode((now.year / 100 % 100) as u8),
            STATUS_A => STATUS_A_VALUE,
            STATUS_B => self.status_b,
            STATUS_D => STATUS_D_VALID,
            _ => 0,
        }
    }

    fn hours(&self) -> u8 {
        let hour = self.now.hour;
        if self.status_b & STATUS_B_24_HOURS != 0 {
            return self.encode(hour);
        }
        let half = if hour >= 12 { PM } else { 0 };
        let twelve = if hour.is_multiple_of(12) {
            12
        } else {
            hour % 12
        };
        self.encode(twelve) | half
    }

    /// Binary, or two decimal digits.
    fn encode(&self, value: u8) -> u8 {
        if self.status_b & STATUS_B_BINARY != 0 {
            value
        } else {
            ((value / 10) << 4) | (value % 10)
        }
    }
}

impl Default for Cmos {
    fn default() -> Self {
        Self::new()
    }
}
