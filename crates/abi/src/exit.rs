//! Values a guest writes to [`crate::ports::EXIT`].

/// How a guest says that it ends. QEMU's `isa-debug-exit` turns value `v` into
/// its own exit status `2 v + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestExit {
    /// The application returned; the low byte is its status (0 is success).
    Status(u8),
    /// The guest panicked; the message is on its console.
    Panic,
    /// A processor exception that the guest does not handle; the message and
    /// registers are on its console.
    Fault,
}

/// Begin of the line that a Linux guest's first process prints when its command
/// has ended; the status follows, in decimal. For engines that do not pass the
/// status on by themselves.
pub const STATUS_LINE: &str = "tare-init: the command ended with status ";

/// The same of an application of the library OS whose status is not 0, under a monitor whose exit
/// port cannot carry it ([`GuestExit::from_qemu_status`]).
pub const APPLICATION_STATUS_LINE: &str = "tare: the application ended with status ";

const STATUS: u32 = 0x10;
/// The kind of a status that is not 0, so that QEMU's exit status shows that much.
const FAILED: u32 = 0x11;
const PANIC: u32 = 0x20;
const FAULT: u32 = 0x21;

impl GuestExit {
    /// The value to write: a status in bits 8 to 15 above a kind in bits 0 to 7.
    pub const fn to_value(self) -> u32 {
        match self {
            Self::Status(0) => STATUS,
            Self::Status(status) => FAILED | (status as u32) << 8,
            Self::Panic => PANIC,
            Self::Fault => FAULT,
        }
    }

    /// The meaning of a written value; `None` for one that means nothing.
    pub const fn from_value(value: u32) -> Option<Self> {
        match value {
            PANIC => Some(Self::Panic),
            FAULT => Some(Self::Fault),
            FAILED => Some(Self::Status(1)),
            _ if matches!(value & 0xffff_00ff, STATUS | FAILED) => {
                Some(Self::Status((value >> 8) as u8))
            }
            _ => None,
        }
    }

    /// The meaning of QEMU's exit status. QEMU's status has only the low seven
    /// bits of the value, so a status other than zero reads as one.
    pub const fn from_qemu_status(status: u8) -> Option<Self> {
        if status & 1 == 0 {
            return None;
        }
        Self::from_value((status >> 1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_survives_the_port() {
        for exit in (0..=255)
            .map(GuestExit::Status)
            .chain([GuestExit::Panic, GuestExit::Fault])
        {
            assert_eq!(GuestExit::from_value(exit.to_value()), Some(exit));
        }
    }

    #[test]
    fn nonsense_means_nothing() {
        for value in [0, 1, 0xff, 0x1_0010, u32::MAX] {
            assert_eq!(GuestExit::from_value(value), None, "{value:#x}");
        }
    }

    #[test]
    fn qemu_reports_panics_and_success() {
        let status = |exit: GuestExit| ((exit.to_value() << 1) | 1) as u8;
        assert_eq!(
            GuestExit::from_qemu_status(status(GuestExit::Panic)),
            Some(GuestExit::Panic)
        );
        assert_eq!(
            GuestExit::from_qemu_status(status(GuestExit::Status(0))),
            Some(GuestExit::Status(0))
        );
        assert_eq!(
            GuestExit::from_qemu_status(status(GuestExit::Status(77))),
            Some(GuestExit::Status(1))
        );
        assert_eq!(GuestExit::from_qemu_status(0), None);
    }
}
