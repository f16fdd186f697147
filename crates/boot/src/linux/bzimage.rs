//! bzImage: a setup header, real-mode code that is not used, and a payload that
//! unpacks itself.

use std::io::{Read as _, SeekFrom};
use std::ops::Range;

use tare_abi::layout::{HIGH_RAM, LINUX_CMDLINE_MAX, MIB};
use vm_memory::{Bytes, GuestAddress};

use super::setup_header::SetupHeader;
use crate::GuestMemoryMmap;
use crate::error::{LoadError, Part};
use crate::source::{Source, size};

const SECTOR: u64 = 512;
/// Protocol 2.12 has `xloadflags`, which say whether there is a 64-bit entry.
const OLDEST: u16 = 0x020c;
/// `xloadflags`: a 64-bit entry at 0x200.
const KERNEL_64: u16 = 1;
/// Where that entry lies in the payload.
const ENTRY_64: u64 = 0x200;
/// Sectors where the header says 0.
const DEFAULT_SECTORS: u8 = 4;
/// As much as is read to find the header.
const BEGIN_BYTES: u64 = 0x290;
/// A kernel's alignment is a power of two up to this.
const MAX_ALIGNMENT: u64 = 1 << 30;

/// A checked bzImage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BzImage {
    pub(crate) header: SetupHeader,
    /// The payload in the file.
    payload: Range<u64>,
    /// Memory that it needs while it unpacks itself, from where it is loaded.
    init_bytes: u64,
    preferred: u64,
    /// Where else it may be loaded: multiples of this. `None`: nowhere.
    alignment: Option<u64>,
    /// Bytes of the longest command line, without a NUL.
    pub(crate) cmdline_most: usize,
    /// Behind the last byte that an initramfs may have.
    pub(crate) initramfs_limit: u64,
}

impl BzImage {
    /// Whether the file claims to be one: "HdrS" at its place.
    pub(crate) fn is_one<S: Source>(source: &mut S) -> Result<bool, LoadError> {
        Ok(SetupHeader::of_image(&begin(source)?).is_some())
    }

    /// Reads and checks the header.
    pub(crate) fn parse<S: Source>(source: &mut S) -> Result<Self, LoadError> {
        let header = SetupHeader::of_image(&begin(source)?).ok_or(LoadError::NotAKernel)?;
        let version = header.u16(0x206);
        if version < OLDEST || header.u16(0x236) & KERNEL_64 == 0 {
            return Err(LoadError::No64BitEntry);
        }
        let payload = payload(&header, size(source).map_err(LoadError::Image)?)?;
        let init_bytes = u64::from(header.u32(0x260)).max(payload.end - payload.start);
        Ok(Self {
            init_bytes,
            preferred: header.u64(0x258),
            alignment: alignment(&header)?,
            cmdline_most: match header.u32(0x238) {
                // The header does not say.
                0 => LINUX_CMDLINE_MAX - 1,
                most => most as usize,
            },
            initramfs_limit: u64::from(header.u32(0x22c)) + 1,
            payload,
            header,
        })
    }

    /// The addresses that the kernel needs, in low memory that ends at `low_end`:
    /// where it prefers, else as low as it may.
    pub(crate) fn place(&self, low_end: u64) -> Result<Range<u64>, LoadError> {
        let lowest = self
            .alignment
            .map(|alignment| HIGH_RAM.next_multiple_of(alignment));
        [Some(self.preferred), lowest]
            .into_iter()
            .flatten()
            .filter(|start| *start >= HIGH_RAM)
            .filter_map(|start| Some(start..start.checked_add(self.init_bytes)?))
            .find(|range| range.end <= low_end)
            .ok_or_else(|| LoadError::KernelTooLarge {
                need_mib: lowest
                    .unwrap_or(self.preferred)
                    .saturating_add(self.init_bytes)
                    .div_ceil(MIB),
                have_mib: low_end / MIB,
            })
    }

    /// The 64-bit entry of a kernel that was loaded at `start`.
    pub(crate) fn entry(&self, start: u64) -> u64 {
        start + ENTRY_64
    }

    pub(crate) fn write<S: Source>(
        &self,
        source: &mut S,
        start: u64,
        memory: &GuestMemoryMmap,
    ) -> Result<(), LoadError> {
        source
            .seek(SeekFrom::Start(self.payload.start))
            .map_err(LoadError::Image)?;
        let bytes = (self.payload.end - self.payload.start) as usize;
        Ok(memory.read_exact_volatile_from(GuestAddress(start), source, bytes)?)
    }
}

fn begin<S: Source>(source: &mut S) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    source.seek(SeekFrom::Start(0)).map_err(LoadError::Image)?;
    source
        .by_ref()
        .take(BEGIN_BYTES)
        .read_to_end(&mut bytes)
        .map_err(LoadError::Image)?;
    Ok(bytes)
}

/// From behind the real-mode code to the end of the file, which must be as
/// long as the header says.
fn payload(header: &SetupHeader, file_bytes: u64) -> Result<Range<u64>, LoadError> {
    let sectors = match header.u8(0x1f1) {
        0 => DEFAULT_SECTORS,
        sectors => sectors,
    };
    let start = (u64::from(sectors) + 1) * SECTOR;
    let end = start + u64::from(header.u32(0x1f4)) * 16;
    if end > file_bytes || start + ENTRY_64 >= file_bytes {
        return Err(LoadError::Truncated {
            part: Part::Payload,
            end: end.max(start + ENTRY_64 + 1),
            file_bytes,
        });
    }
    Ok(start..file_bytes)
}

fn alignment(header: &SetupHeader) -> Result<Option<u64>, LoadError> {
    let alignment = u64::from(header.u32(0x230));
    let relocatable = header.u8(0x234) != 0;
    match (relocatable, alignment) {
        (false, _) => Ok(None),
        (true, it) if it.is_power_of_two() && it <= MAX_ALIGNMENT => Ok(Some(it)),
        (true, _) => Err(LoadError::KernelAlignment { alignment }),
    }
}
