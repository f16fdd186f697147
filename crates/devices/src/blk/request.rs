//! Parses a request from its header and the lengths of its chain into a valid [`Request`], or says
//! why it is refused (virtio 1.2, 5.2.6). Pure.

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH,
    VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};

use super::{MAX_REQUEST_BYTES, MAX_ZERO_SECTORS, SECTOR_BYTES, SERIAL_BYTES};

/// Length of the header: type, reserved, sector.
pub(crate) const HEADER_BYTES: usize = 16;
/// Length of a range in a discard or write-zeroes request.
pub(crate) const RANGE_BYTES: usize = 16;
/// Bit of a range: the device may deallocate the blocks.
const UNMAP: u32 = 1;

/// What the driver sent, as far as the parser needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes that the device may read.
    pub readable: usize,
    /// Bytes that the device may write.
    pub writable: usize,
    /// The first readable bytes; what is missing is zero.
    pub start: [u8; HEADER_BYTES + RANGE_BYTES],
}

/// What the disk and the negotiation allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Sectors of the disk.
    pub sectors: u64,
    /// Whether the disk may be written.
    pub writable: bool,
    /// Sectors of a logical block: requests begin and end at its multiples.
    pub block_sectors: u64,
}

/// A valid request. Offsets and lengths in bytes, within the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Disk to memory.
    Read {
        /// Where on the disk.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// Memory to disk.
    Write {
        /// Where on the disk.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// Make completed writes durable.
    Flush,
    /// The serial number.
    GetId,
    /// Discards the range: the guest does not need its content any more.
    Discard {
        /// Where on the disk.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// Makes the range read as zeros.
    WriteZeroes {
        /// Where on the disk.
        offset: u64,
        /// How much.
        len: u64,
        /// Whether the device may deallocate the blocks.
        unmap: Unmap,
    },
}

impl Request {
    /// Bytes that count against a limit of bytes.
    pub(super) fn transferred(self) -> u64 {
        match self {
            Self::Read { len, .. } | Self::Write { len, .. } | Self::WriteZeroes { len, .. } => len,
            Self::Flush | Self::GetId | Self::Discard { .. } => 0,
        }
    }
}

/// Whether the device may deallocate blocks that are to read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// They may.
    Allowed,
    /// They stay.
    Forbidden,
}

/// Why a request is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The chain has no room for a status, so the request cannot be answered.
    NoStatus,
    /// Header or data are missing, have the wrong direction or length.
    Malformed,
    /// Type or flags are not known.
    Unsupported,
    /// Sectors that do not exist.
    OutOfRange,
    /// The disk is read-only.
    ReadOnly,
}

impl Refusal {
    /// The status byte (5.2.6).
    pub fn status(self) -> u8 {
        match self {
            Self::Unsupported => VIRTIO_BLK_S_UNSUPP as u8,
            Self::NoStatus | Self::Malformed | Self::OutOfRange | Self::ReadOnly => {
                VIRTIO_BLK_S_IOERR as u8
            }
        }
    }
}

/// Parses a request.
pub fn parse(shape: &Shape, limits: RequestLimits) -> Result<Request, Refusal> {
    let data_in = shape.writable.checked_sub(1).ok_or(Refusal::NoStatus)? as u64;
    let data_out = shape
        .readable
        .checked_sub(HEADER_BYTES)
        .ok_or(Refusal::Malformed)? as u64;
    let sector = word64(&shape.start, 8);
    match word32(&shape.start, 0) {
        VIRTIO_BLK_T_IN => {
            only(data_in, data_out)?;
            let (offset, len) = transfer(sector, data_in, limits)?;
            Ok(Request::Read { offset, len })
        }
        VIRTIO_BLK_T_OUT => {
            only(data_out, data_in)?;
            may_write(limits)?;
            let (offset, len) = transfer(sector, data_out, limits)?;
            Ok(Request::Write { offset, len })
        }
        VIRTIO_BLK_T_FLUSH => Ok(Request::Flush),
        VIRTIO_BLK_T_GET_ID if data_in >= SERIAL_BYTES as u64 => Ok(Request::GetId),
        VIRTIO_BLK_T_GET_ID => Err(Refusal::Malformed),
        kind @ (VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES) => {
            may_write(limits)?;
            if data_out != RANGE_BYTES as u64 || data_in != 0 {
                return Err(Refusal::Malformed);
            }
            range(kind, &shape.start, limits)
        }
        _ => Err(Refusal::Unsupported),
    }
}

/// Data in one direction and none in the other.
fn only(data: u64, other: u64) -> Result<(), Refusal> {
    if data > 0 && other == 0 {
        Ok(())
    } else {
        Err(Refusal::Malformed)
    }
}

fn may_write(limits: RequestLimits) -> Result<(), Refusal> {
    if limits.writable {
        Ok(())
    } else {
        Err(Refusal::ReadOnly)
    }
}

fn transfer(sector: u64, len: u64, limits: RequestLimits) -> Result<(u64, u64), Refusal> {
    if !len.is_multiple_of(SECTOR_BYTES) || len > MAX_REQUEST_BYTES {
        return Err(Refusal::Malformed);
    }
    within(sector, len / SECTOR_BYTES, limits)
}

/// The range in bytes, if it lies on the disk and is of whole blocks.
fn within(sector: u64, count: u64, limits: RequestLimits) -> Result<(u64, u64), Refusal> {
    if !(sector | count).is_multiple_of(limits.block_sectors) {
        return Err(Refusal::Malformed);
    }
    let end = sector.checked_add(count).ok_or(Refusal::OutOfRange)?;
    if end > limits.sectors {
        return Err(Refusal::OutOfRange);
    }
    // Cannot overflow: the disk's size in bytes is a u64.
    Ok((sector * SECTOR_BYTES, count * SECTOR_BYTES))
}

fn range(
    kind: u32,
    start: &[u8; HEADER_BYTES + RANGE_BYTES],
    limits: RequestLimits,
) -> Result<Request, Refusal> {
    let sector = word64(start, HEADER_BYTES);
    let count = word32(start, HEADER_BYTES + 8);
    let flags = word32(start, HEADER_BYTES + 12);
    let discards = kind == VIRTIO_BLK_T_DISCARD;
    // A discard has no flags at all (5.2.6.2).
    let known = if discards { 0 } else { UNMAP };
    if flags & !known != 0 {
        return Err(Refusal::Unsupported);
    }
    if count == 0 || (!discards && count > MAX_ZERO_SECTORS) {
        return Err(Refusal::Malformed);
    }
    let (offset, len) = within(sector, count.into(), limits)?;
    Ok(match (discards, flags & UNMAP) {
        (true, _) => Request::Discard { offset, len },
        (false, 0) => Request::WriteZeroes {
            offset,
            len,
            unmap: Unmap::Forbidden,
        },
        (false, _) => Request::WriteZeroes {
            offset,
            len,
            unmap: Unmap::Allowed,
        },
    })
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    word64(bytes, at) as u32
}

/// Up to eight bytes from `at`; missing ones are zero.
fn word64(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.iter().skip(at).take(8);
    (0..)
        .zip(bytes)
        .fold(0, |word, (n, byte)| word | u64::from(*byte) << (8 * n))
}
