//! What is done to the disk before the first run.

use alloc::vec;

use tare_libos::block::{BlockError, Disk, SECTOR_BYTES};

use crate::job::{Clear, Job};

/// Sectors that are read back at a time.
const READ_BACK: u64 = 64;

/// Why a disk cannot be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// Its cache.
    #[error("the write cache cannot be switched: {0}")]
    Cache(#[source] BlockError),
    /// What is on it.
    #[error("the disk cannot be emptied: {0}")]
    Clear(#[source] BlockError),
    /// Zeros are not.
    #[error("sector {0} is not zero after it was zeroed")]
    NotZero(u64),
}

/// Switches the cache and empties the span, as the job says.
pub fn prepare(job: &Job, disk: &Disk) -> Result<(), PrepareError> {
    if let Some(cache) = job.cache {
        disk.set_cache(cache).map_err(PrepareError::Cache)?;
    }
    let bytes = job.span.unwrap_or(u64::MAX).min(disk.bytes());
    let sectors = bytes / SECTOR_BYTES as u64;
    match job.clear {
        None => Ok(()),
        Some(Clear::Discard) => disk.discard(0, sectors).map_err(PrepareError::Clear),
        Some(Clear::Zeroes) => {
            disk.write_zeroes(0, sectors).map_err(PrepareError::Clear)?;
            check_zeros(disk, sectors)
        }
    }
}

fn check_zeros(disk: &Disk, sectors: u64) -> Result<(), PrepareError> {
    let mut buffer = vec![0xff; READ_BACK as usize * SECTOR_BYTES];
    for sector in (0..sectors).step_by(READ_BACK as usize) {
        let bytes = (sectors - sector).min(READ_BACK) as usize * SECTOR_BYTES;
        let part = &mut buffer[..bytes];
        disk.read(sector, part).map_err(PrepareError::Clear)?;
        if let Some(at) = part.iter().position(|byte| *byte != 0) {
            return Err(PrepareError::NotZero(sector + (at / SECTOR_BYTES) as u64));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_libos::block::Access;

    #[test]
    fn the_span_is_emptied_and_the_rest_stays() {
        let disk = Disk::in_memory("d", vec![7; 40 << 10], Access::ReadWrite);
        let job = Job::parse("clear=zeroes span=33K cache=writethrough".split(' ')).unwrap();
        prepare(&job, &disk).unwrap();
        let mut all = vec![1; 40 << 10];
        disk.read(0, &mut all).unwrap();
        assert!(all[..33 << 10].iter().all(|byte| *byte == 0));
        assert!(all[33 << 10..].iter().all(|byte| *byte == 7));
        assert_eq!(check_zeros(&disk, 80), Err(PrepareError::NotZero(66)));
        let disk = Disk::in_memory("d", vec![7; 1024], Access::ReadOnly);
        let refused = Err(PrepareError::Clear(BlockError::ReadOnly));
        assert_eq!(prepare(&job, &disk), refused);
    }
}
