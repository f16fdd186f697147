//! Character devices: the serial console, and those without a device behind them (`null(4)`,
//! `full(4)`, `random(4)`).

use alloc::string::String;

use super::{File, Status};
use crate::errno::{Errno, Result};

/// A character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Null,
    Zero,
    Full,
    /// `/dev/random` and `/dev/urandom`.
    Random,
    /// Standard output and error: the serial console. Reading gives the end.
    Console,
}

impl Device {
    pub(super) const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Null => (1, 3),
            Self::Zero => (1, 5),
            Self::Full => (1, 7),
            Self::Random => (1, 9),
            Self::Console => (5, 1),
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Null => "/dev/null",
            Self::Zero => "/dev/zero",
            Self::Full => "/dev/full",
            Self::Random => "/dev/urandom",
            Self::Console => "/dev/console",
        }
    }

    /// All but the console take any offset, and it changes nothing.
    fn take_offset(self) -> Result<()> {
        match self {
            Self::Console => Err(Errno::ESPIPE),
            _ => Ok(()),
        }
    }
}

impl File for Device {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        match self {
            Self::Null | Self::Console => return Ok(0),
            Self::Zero | Self::Full => to.fill(0),
            Self::Random => tare_libos::random::fill(to),
        }
        Ok(to.len())
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        match self {
            Self::Null | Self::Zero | Self::Random => {}
            Self::Full => return Err(Errno::ENOSPC),
            // Bytes that are not UTF-8 show as replacement characters.
            Self::Console => tare_libos::print!("{}", String::from_utf8_lossy(from)),
        }
        Ok(from.len())
    }

    fn read_at(&self, _offset: u64, to: &mut [u8]) -> Result<usize> {
        self.take_offset()?;
        self.read(to)
    }

    fn write_at(&self, _offset: u64, from: &[u8]) -> Result<usize> {
        self.take_offset()?;
        self.write(from)
    }

    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        self.take_offset().map(|()| 0)
    }

    fn has_events(&self) -> bool {
        matches!(self, Self::Random | Self::Console)
    }

    fn status(&self) -> Result<Status> {
        let (major, minor) = self.numbers();
        Ok(Status::device(major, minor))
    }

    fn name(&self) -> String {
        String::from(self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_and_take_what_linux_gives_and_takes() {
        let mut bytes = [7; 4];
        assert_eq!(Device::Null.read(&mut bytes), Ok(0));
        assert_eq!(bytes, [7; 4]);
        assert_eq!(Device::Full.read_at(9, &mut bytes), Ok(4));
        assert_eq!(bytes, [0; 4]);
        assert_eq!(Device::Zero.write(&bytes), Ok(4));
        assert_eq!(Device::Full.write_at(9, &bytes), Err(Errno::ENOSPC));
        assert_eq!(Device::Null.seek(5, 0), Ok(0));
        assert_eq!(Device::Console.seek(5, 0), Err(Errno::ESPIPE));
        assert_eq!(Device::Console.write_at(0, b"x"), Err(Errno::ESPIPE));
    }
}
