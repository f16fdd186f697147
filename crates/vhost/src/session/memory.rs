//! Guest memory as the front-end shares it: regions of files, checked before
//! they are mapped, and the translation of the front-end's own addresses.
//!
//! Limits: files with a length (no device memory). What happens when a front-end
//! shortens one later is `shortened`'s.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use vm_memory::{FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

use tare_devices::GuestRam;

use super::shortened::Watch;
use crate::limits::MAX_REGIONS;

/// Type of a file system of huge pages (`HUGETLBFS_MAGIC` of Linux's
/// `include/uapi/linux/magic.h`). A part of a page is mapped as a whole one there, but is not
/// unmapped (`hugetlb_vm_op_split` in mm/hugetlb.c).
const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;

/// Why memory is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    /// No byte, or beyond the end of addresses.
    #[error("invalid memory region: {size} bytes at {guest:#x}")]
    Empty {
        /// Guest address.
        guest: u64,
        /// Length.
        size: u64,
    },
    /// The file is shorter than the region.
    #[error("a memory region ends at byte {end} of a file with {length} bytes")]
    BeyondFile {
        /// Where the region ends in the file.
        end: u64,
        /// The file's length.
        length: u64,
    },
    /// Only whole huge pages can be unmapped again.
    #[error(
        "a memory region of {size} bytes at byte {offset} of its file is not of whole huge pages"
    )]
    HugePart {
        /// Length.
        size: u64,
        /// Where it begins in its file.
        offset: u64,
    },
    /// The system refused.
    #[error("cannot map a memory region")]
    Map(#[source] io::Error),
    /// It overlaps another.
    #[error("regions overlap")]
    Overlap,
    /// More than [`MAX_REGIONS`].
    #[error("there are more than {MAX_REGIONS} regions")]
    TooMany,
    /// A region to be removed is not there.
    #[error("unknown region")]
    Unknown,
}

/// A region as the front-end describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrontendRegion {
    /// Guest-physical address.
    pub(crate) guest: u64,
    /// Length.
    pub(crate) size: u64,
    /// The front-end's own address of it, in which it gives rings' addresses.
    pub(crate) user: u64,
    /// Where it begins in its file.
    pub(crate) offset: u64,
}

/// A region in this process.
struct Mapped {
    /// Goes before the mapping does.
    watch: Watch,
    region: Arc<GuestRegionMmap<()>>,
}

/// All regions.
#[derive(Clone, Default)]
pub(crate) struct Regions {
    places: Vec<(FrontendRegion, Arc<Mapped>)>,
}

impl Regions {
    /// Adds a region.
    pub(crate) fn add(&mut self, place: FrontendRegion, file: File) -> Result<(), MemoryError> {
        if self.places.len() >= MAX_REGIONS {
            return Err(MemoryError::TooMany);
        }
        let overlaps = |(other, _): &(FrontendRegion, _)| {
            place.guest < other.guest + other.size && other.guest < place.guest + place.size
        };
        let mapped = map(place, file)?;
        if self.places.iter().any(overlaps) {
            return Err(MemoryError::Overlap);
        }
        self.places.push((place, Arc::new(mapped)));
        Ok(())
    }

    /// Removes a region.
    pub(crate) fn remove(&mut self, guest: u64, size: u64) -> Result<(), MemoryError> {
        let found = self
            .places
            .iter()
            .position(|(place, _)| (place.guest, place.size) == (guest, size));
        self.places.remove(found.ok_or(MemoryError::Unknown)?);
        Ok(())
    }

    /// The guest's memory; `None` while there is none.
    pub(crate) fn memory(&self) -> Option<GuestRam> {
        let mut regions: Vec<_> = self.places.iter().collect();
        regions.sort_by_key(|(place, _)| place.guest);
        let regions = regions
            .into_iter()
            .map(|(_, mapped)| Arc::clone(&mapped.region));
        GuestRam::from_arc_regions(regions.collect()).ok()
    }

    /// Whether a file became shorter than what is mapped of it.
    pub(crate) fn are_gone(&self) -> bool {
        self.places.iter().any(|(_, mapped)| mapped.watch.is_gone())
    }

    /// The guest-physical address of what the front-end sees at `user`.
    pub(crate) fn translate(&self, user: u64) -> Option<u64> {
        let inside =
            |place: &FrontendRegion| user.checked_sub(place.user).filter(|at| *at < place.size);
        let found = self
            .places
            .iter()
            .find_map(|(place, _)| inside(place).map(|at| (place, at)));
        // Cannot overflow: the region was found to end before the last address.
        found.map(|(place, at)| place.guest + at)
    }
}

fn map(place: FrontendRegion, file: File) -> Result<Mapped, MemoryError> {
    let FrontendRegion { guest, size, .. } = place;
    let empty = MemoryError::Empty { guest, size };
    let ends = [place.guest, place.user, place.offset].map(|at| at.checked_add(size));
    let [Some(_), Some(_), Some(end)] = ends else {
        return Err(empty);
    };
    let Ok(bytes @ 1..) = usize::try_from(size) else {
        return Err(empty);
    };
    let found = file.metadata().map_err(MemoryError::Map)?;
    let length = found.size();
    if end > length {
        return Err(MemoryError::BeyondFile { end, length });
    }
    let system = rustix::fs::fstatfs(&file).map_err(|error| MemoryError::Map(error.into()))?;
    let is_whole = (size | place.offset).is_multiple_of(found.blksize().max(1));
    if system.f_type == HUGETLBFS && !is_whole {
        let offset = place.offset;
        return Err(MemoryError::HugePart { size, offset });
    }
    let region = MmapRegion::from_file(FileOffset::new(file, place.offset), bytes)
        .map_err(|error| MemoryError::Map(io::Error::other(error)))?;
    let watch = Watch::new(region.as_ptr(), bytes, found.blksize());
    let region = GuestRegionMmap::new(region, GuestAddress(guest)).ok_or(empty)?;
    Ok(Mapped {
        watch: watch.ok_or(MemoryError::TooMany)?,
        region: Arc::new(region),
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    const HUGE: u64 = 2 << 20;

    #[test]
    fn a_part_of_a_huge_page_is_refused() {
        let Ok(file) = memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) else {
            tare_vmtest::lacks("the kernel has no huge pages of 2 MiB");
            return;
        };
        let file = File::from(file);
        file.set_len(HUGE).unwrap();
        let add = |size, offset| {
            let place = FrontendRegion {
                guest: 0,
                size,
                user: 0,
                offset,
            };
            let mut regions = Regions::default();
            regions.add(place, file.try_clone().unwrap())
        };
        for (size, offset) in [(4096, 0), (HUGE - 4096, 4096)] {
            assert!(matches!(
                add(size, offset),
                Err(MemoryError::HugePart { .. })
            ));
        }
        assert!(add(HUGE, 0).is_ok());
    }
}
