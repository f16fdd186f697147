//! Reading and writing, shaped like `std::io`: [`Read`], [`Write`], [`Error`].
//!
//! Small on purpose: what sockets and files of an appliance need. Code written
//! for `std` usually compiles here after changing the `use` line.
//!
//! ```
//! use tare_io::{Read, Write};
//!
//! let mut out = Vec::new();
//! write!(out, "{} bytes", 3)?;
//! let mut word = [0; 2];
//! out.as_slice().read_exact(&mut word)?;
//! assert_eq!(&word, b"3 ");
//! # Ok::<(), tare_io::Error>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "embedded-io")]
mod embedded;
mod error;
mod traits;

pub use error::{Error, ErrorKind, Result};
pub use traits::{IoSlice, Read, Write};

#[cfg(test)]
mod tests;
