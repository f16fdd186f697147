//! The console, and `/dev/null`.

use alloc::string::String;

use linux_raw_sys::general::{POLLIN, POLLOUT};

use super::{File, Status};
use crate::errno::Result;

/// Standard output and error: the serial console. Reading gives the end.
pub(crate) struct Console;

impl File for Console {
    fn read(&self, _to: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        // Bytes that are not UTF-8 show as replacement characters.
        tare_libos::print!("{}", String::from_utf8_lossy(from));
        Ok(from.len())
    }

    fn status(&self) -> Status {
        Status::device(5, 1)
    }

    fn name(&self) -> String {
        String::from("/dev/console")
    }
}

/// `/dev/null`.
pub(crate) struct Null;

impl File for Null {
    fn read(&self, _to: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        Ok(from.len())
    }

    fn status(&self) -> Status {
        Status::device(1, 3)
    }

    fn read_at(&self, _offset: u64, to: &mut [u8]) -> Result<usize> {
        self.read(to)
    }

    fn write_at(&self, _offset: u64, from: &[u8]) -> Result<usize> {
        self.write(from)
    }

    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        Ok(0)
    }

    fn has_events(&self) -> bool {
        false
    }

    fn ready(&self) -> u32 {
        POLLIN | POLLOUT
    }

    fn name(&self) -> String {
        String::from("/dev/null")
    }
}
