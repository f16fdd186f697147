//! `embedded-io`'s and `embedded-io-async`'s traits on sockets and files, so that crates without
//! std that take any reader or writer run on them.
//!
//! The async reads and writes of a connection are safe to cancel: dropped while they wait, they
//! have taken and sent nothing.

use embedded_io::{BufRead, ErrorType, Read, ReadReady, Seek, SeekFrom, Write, WriteReady};
use embedded_io_async as asynchronous;

use crate::fs::File;
use crate::io::{self, Error, IoSlice, Result};
use crate::net::{Interests, Source, TcpStream};
use crate::task;

impl ErrorType for TcpStream {
    type Error = Error;
}

impl ErrorType for &TcpStream {
    type Error = Error;
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        Read::read(&mut &*self, buf)
    }
}

/// Empty buffers are answered at once, as `embedded-io` has it.
impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        io::Read::read(self, buf)
    }
}

impl ReadReady for TcpStream {
    fn read_ready(&mut self) -> Result<bool> {
        Ok(self.readable())
    }
}

impl ReadReady for &TcpStream {
    fn read_ready(&mut self) -> Result<bool> {
        Ok(self.readable())
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        Write::write(&mut &*self, buf)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        io::Write::write(self, buf)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl WriteReady for TcpStream {
    fn write_ready(&mut self) -> Result<bool> {
        Ok(self.readiness().writable)
    }
}

impl WriteReady for &TcpStream {
    fn write_ready(&mut self) -> Result<bool> {
        Ok(self.readiness().writable)
    }
}

impl asynchronous::Read for TcpStream {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        asynchronous::Read::read(&mut &*self, buf).await
    }
}

impl asynchronous::Read for &TcpStream {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        task::attempt(*self, Interests::READ, || self.try_read(buf)).await
    }
}

impl asynchronous::Write for TcpStream {
    async fn write(&mut self, buf: &[u8]) -> Result<usize> {
        asynchronous::Write::write(&mut &*self, buf).await
    }

    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl asynchronous::Write for &TcpStream {
    async fn write(&mut self, buf: &[u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let parts = [IoSlice::new(buf)];
        task::attempt(*self, Interests::WRITE, || self.try_write(&parts)).await
    }

    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl ErrorType for File {
    type Error = Error;
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        io::Read::read(self, buf)
    }
}

impl BufRead for File {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        Ok(self.rest())
    }

    fn consume(&mut self, len: usize) {
        let len = len.min(self.rest().len());
        self.set_position(self.position() + len);
    }
}

/// A position may lie behind the end, where reads find nothing.
impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => (self.bytes().len() as u64).checked_add_signed(by),
            SeekFrom::Current(by) => (self.position() as u64).checked_add_signed(by),
        };
        let outside = Error::new(io::ErrorKind::InvalidInput, "a position outside of files");
        let position = position.ok_or(outside)?;
        self.set_position(usize::try_from(position).map_err(|_| outside)?);
        Ok(position)
    }
}

#[cfg(test)]
mod tests;
