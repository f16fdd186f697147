//! [`Read`] and [`Write`].

use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use super::{Error, ErrorKind, Result};

const READ_TO_END_STEP: usize = 1024;

/// A source of bytes.
pub trait Read {
    /// Reads up to `buf.len()` bytes and returns how many; 0 means the end
    /// (or an empty `buf`).
    fn read(&mut self, buf: &mut [u8]) -> Result<usize>;

    /// Fills `buf`, or fails with [`ErrorKind::UnexpectedEof`].
    fn read_exact(&mut self, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            match self.read(buf)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => buf = &mut buf[n..],
            }
        }
        Ok(())
    }

    /// Appends everything up to the end to `buf`; returns how much that was.
    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> Result<usize> {
        let start = buf.len();
        let mut len = start;
        loop {
            buf.resize(len + READ_TO_END_STEP, 0);
            match self.read(&mut buf[len..]) {
                Ok(0) => {
                    buf.truncate(len);
                    return Ok(len - start);
                }
                Ok(n) => len += n,
                Err(error) => {
                    buf.truncate(len);
                    return Err(error);
                }
            }
        }
    }
}

/// A part of a vectored write.
#[derive(Clone, Copy, Debug)]
pub struct IoSlice<'a>(&'a [u8]);

impl<'a> IoSlice<'a> {
    /// Wraps a slice.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl Deref for IoSlice<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

/// A sink of bytes.
pub trait Write {
    /// Writes a prefix of `buf` and returns its length.
    fn write(&mut self, buf: &[u8]) -> Result<usize>;

    /// Hands buffered bytes on.
    fn flush(&mut self) -> Result<()>;

    /// Writes from several slices in order; returns how many bytes in all. A
    /// TCP stream sends what one call takes in as few segments as possible.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<usize> {
        match parts.iter().find(|part| !part.is_empty()) {
            Some(part) => self.write(part),
            None => Ok(0),
        }
    }

    /// Writes all of `buf`.
    fn write_all(&mut self, mut buf: &[u8]) -> Result<()> {
        while !buf.is_empty() {
            match self.write(buf)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => buf = &buf[n..],
            }
        }
        Ok(())
    }

    /// Writes formatted text; what `write!` calls.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<()>
    where
        Self: Sized,
    {
        let mut adapter = Adapter {
            sink: self,
            error: None,
        };
        match fmt::write(&mut adapter, text) {
            Ok(()) => Ok(()),
            Err(fmt::Error) => Err(adapter
                .error
                .unwrap_or(Error::new(ErrorKind::Other, "formatting failed"))),
        }
    }
}

/// Lets `core::fmt` write into a [`Write`], remembering its error.
struct Adapter<'a, W> {
    sink: &'a mut W,
    error: Option<Error>,
}

impl<W: Write> fmt::Write for Adapter<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.sink.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

impl Read for &[u8] {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = buf.len().min(self.len());
        let (head, tail) = self.split_at(n);
        buf[..n].copy_from_slice(head);
        *self = tail;
        Ok(n)
    }
}

impl Write for Vec<u8> {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        self.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<usize> {
        let before = self.len();
        for part in parts {
            self.extend_from_slice(part);
        }
        Ok(self.len() - before)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<R: Read + ?Sized> Read for &mut R {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        (**self).read(buf)
    }
}

impl<W: Write + ?Sized> Write for &mut W {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        (**self).write(buf)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<usize> {
        (**self).write_vectored(parts)
    }

    fn flush(&mut self) -> Result<()> {
        (**self).flush()
    }
}
