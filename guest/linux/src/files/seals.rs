//! Seals of files without a name (`fcntl(2)`, F_ADD_SEALS; kernel `mm/memfd.c`, `mm/shmem.c`).

use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general::{
    F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE,
};

use crate::errno::{Errno, Result};

const ALL: u32 =
    F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_EXEC;
const WRITES: u32 = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
/// Of a file that has none and gets none.
const NO_SEALS: u32 = 1 << 31;
const PAGE: u64 = 4096;

/// What may not be done any more with a file.
pub(crate) struct Seals(AtomicU32);

impl Seals {
    /// Of a file with a name.
    pub(crate) const fn none() -> Self {
        Self(AtomicU32::new(NO_SEALS))
    }

    /// Begins with these.
    pub(crate) fn begin(&self, seals: u32) {
        self.0.store(seals, Ordering::Relaxed);
    }

    /// EINVAL for a file that has none.
    pub(crate) fn get(&self) -> Result<u32> {
        match self.0.load(Ordering::Relaxed) {
            NO_SEALS => Err(Errno::EINVAL),
            seals => Ok(seals),
        }
    }

    /// Adds seals: EINVAL for others and for a file that has none, EPERM if none may be added,
    /// EBUSY against writing while `is_mapped` for that.
    pub(crate) fn add(&self, added: u32, is_mapped: impl FnOnce() -> bool) -> Result<()> {
        if added & !ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let seals = self.get()?;
        if seals & F_SEAL_SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if added & !seals & F_SEAL_WRITE != 0 && is_mapped() {
            return Err(Errno::EBUSY);
        }
        self.0.fetch_or(added, Ordering::Relaxed);
        Ok(())
    }

    fn has(&self, seals: u32) -> bool {
        self.0.load(Ordering::Relaxed) & seals != 0
    }

    /// How many bytes may be written at an offset of a file of this length: up to the page in which
    /// it would grow. EPERM if none.
    pub(crate) fn may_write(&self, offset: u64, count: usize, length: u64) -> Result<usize> {
        if self.has(WRITES) {
            return Err(Errno::EPERM);
        }
        if !self.has(F_SEAL_GROW) || offset.saturating_add(count as u64) <= length {
            return Ok(count);
        }
        match (length - length % PAGE).saturating_sub(offset) {
            0 => Err(Errno::EPERM),
            whole => Ok(whole as usize),
        }
    }

    /// EPERM for a new length that is not allowed.
    pub(crate) fn may_resize(&self, from: u64, to: u64) -> Result<()> {
        if to < from && self.has(F_SEAL_SHRINK) || to > from && self.has(F_SEAL_GROW) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// EPERM where nothing is written any more by new mappings.
    pub(crate) fn may_map_for_writing(&self) -> Result<()> {
        if self.has(WRITES) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// EPERM where the right to execute changes and may not.
    pub(crate) fn may_change_mode(&self, from: u32, to: u32) -> Result<()> {
        if (from ^ to) & 0o111 != 0 && self.has(F_SEAL_EXEC) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(seals: u32) -> Seals {
        let new = Seals::none();
        new.begin(0);
        assert_eq!(new.add(seals, || false), Ok(()));
        new
    }

    #[test]
    fn a_file_with_a_name_has_no_seals() {
        let none = Seals::none();
        assert_eq!(none.get(), Err(Errno::EINVAL));
        assert_eq!(none.add(F_SEAL_GROW, || false), Err(Errno::EINVAL));
        assert_eq!(none.may_write(0, 9, 0), Ok(9));
        assert_eq!(none.may_resize(9, 0), Ok(()));
        assert_eq!(none.may_resize(0, 9), Ok(()));
        assert_eq!(none.may_map_for_writing(), Ok(()));
        assert_eq!(none.may_change_mode(0, 0o777), Ok(()));
    }

    #[test]
    fn seals_forbid_what_they_say() {
        assert_eq!(with(F_SEAL_SHRINK).may_resize(9, 8), Err(Errno::EPERM));
        assert_eq!(with(F_SEAL_SHRINK).may_resize(9, 10), Ok(()));
        assert_eq!(with(F_SEAL_GROW).may_resize(9, 10), Err(Errno::EPERM));
        assert_eq!(with(F_SEAL_GROW).may_resize(9, 8), Ok(()));
        for seal in [F_SEAL_WRITE, F_SEAL_FUTURE_WRITE] {
            assert_eq!(with(seal).may_write(0, 1, 9), Err(Errno::EPERM));
            assert_eq!(with(seal).may_map_for_writing(), Err(Errno::EPERM));
        }
        let executable = with(F_SEAL_EXEC);
        assert_eq!(executable.may_change_mode(0o666, 0o600), Ok(()));
        assert_eq!(executable.may_change_mode(0o666, 0o766), Err(Errno::EPERM));
    }

    #[test]
    fn a_write_ends_at_the_page_in_which_the_file_would_grow() {
        let seals = with(F_SEAL_GROW);
        assert_eq!(seals.may_write(10, 4086, 4096), Ok(4086));
        assert_eq!(seals.may_write(10, 4087, 4096), Ok(4086));
        assert_eq!(seals.may_write(4096, 1, 4096), Err(Errno::EPERM));
        assert_eq!(seals.may_write(0, 5000, 4999), Ok(4096));
    }

    #[test]
    fn seals_stay_and_the_last_one_ends_them() {
        let seals = with(F_SEAL_GROW);
        assert_eq!(seals.add(F_SEAL_WRITE, || true), Err(Errno::EBUSY));
        assert_eq!(seals.add(1 << 7, || false), Err(Errno::EINVAL));
        assert_eq!(seals.add(F_SEAL_WRITE | F_SEAL_SEAL, || false), Ok(()));
        assert_eq!(seals.get(), Ok(F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL));
        assert_eq!(seals.add(0, || false), Err(Errno::EPERM));
    }
}
