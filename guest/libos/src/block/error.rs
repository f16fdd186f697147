//! [`BlockError`].

use crate::io;

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The buffer is empty or no whole number of sectors.
    #[error("the buffer is not a whole number of sectors")]
    NotWholeSectors,
    /// The last sector lies beyond the disk's end.
    #[error("the sectors lie beyond the end of the disk")]
    BeyondEnd,
    /// The disk may only be read.
    #[error("the disk is read-only")]
    ReadOnly,
    /// The device reported an error.
    #[error("the device reported an I/O error")]
    Io,
    /// The device does not know such requests.
    #[error("the device does not support the request")]
    Unsupported,
    /// The device broke the rules of its queue and is not used any more.
    #[error("the device completed a request that was not submitted and is disabled")]
    Broken,
}

impl From<BlockError> for io::Error {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::NotWholeSectors => {
                Self::new(io::ErrorKind::InvalidInput, "not whole sectors of the disk")
            }
            BlockError::BeyondEnd => {
                Self::new(io::ErrorKind::UnexpectedEof, "beyond the end of the disk")
            }
            BlockError::ReadOnly => Self::new(io::ErrorKind::Unsupported, "the disk is read-only"),
            BlockError::Unsupported => Self::new(
                io::ErrorKind::Unsupported,
                "the disk does not support the request",
            ),
            BlockError::Io => Self::new(io::ErrorKind::Other, "the disk reported an I/O error"),
            BlockError::Broken => Self::new(io::ErrorKind::Other, "the disk broke its queue"),
        }
    }
}
