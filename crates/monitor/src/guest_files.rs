//! The files that a guest finds in its memory: an archive that is mapped, which other machines may
//! use too, and behind it, from the next page on, the machine's own, which is copied (ADR 79).

use std::fs::File;
use std::io;

use tare_abi::layout::KIB;
use tare_boot::{Initramfs, LoadError};
use tare_hv::{GuestMemoryMmap, map_file};
use vm_memory::{Address as _, GuestAddress};

const PAGE: u64 = 4 * KIB;

/// What the guest gets.
#[derive(Debug, Default)]
pub(crate) struct GuestFiles {
    /// The archive that is mapped.
    pub(crate) shared: Option<File>,
    /// The machine's own.
    pub(crate) own: Option<File>,
}

impl GuestFiles {
    /// Itself, if there are any.
    pub(crate) fn initramfs(&mut self) -> Option<&mut dyn Initramfs> {
        match self {
            Self {
                shared: None,
                own: None,
            } => None,
            files => Some(files),
        }
    }

    /// Bytes from the first file's start to the second one's.
    fn own_at(&mut self) -> io::Result<u64> {
        Ok(size(&mut self.shared)?.next_multiple_of(PAGE))
    }
}

impl Initramfs for GuestFiles {
    fn size(&mut self) -> io::Result<u64> {
        Ok(self.own_at()?.saturating_add(size(&mut self.own)?))
    }

    fn put(&mut self, memory: &GuestMemoryMmap, start: GuestAddress) -> Result<(), LoadError> {
        let own_at = start.unchecked_add(self.own_at().map_err(LoadError::Initramfs)?);
        if let Some(shared) = &self.shared {
            map_file(memory, start, shared).map_err(LoadError::Initramfs)?;
        }
        match &mut self.own {
            Some(own) => own.put(memory, own_at),
            None => Ok(()),
        }
    }
}

fn size(file: &mut Option<File>) -> io::Result<u64> {
    file.as_mut().map_or(Ok(0), Initramfs::size)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tare_hv::guest_memory;
    use vm_memory::Bytes as _;

    use super::*;

    fn file(bytes: &[u8]) -> Option<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Some(file)
    }

    #[test]
    fn the_own_files_begin_a_page_behind_the_shared_ones() {
        const START: GuestAddress = GuestAddress(0x4000);
        for (shared, own, size) in [
            (None, file(&[2; 10]), 10),
            (file(&[1; 10]), None, 4096),
            (file(&[1; 4096]), file(&[2; 10]), 4106),
            (file(&[1; 4097]), file(&[2; 10]), 8202),
        ] {
            let mut files = GuestFiles { shared, own };
            let initramfs = files.initramfs().unwrap();
            assert_eq!(initramfs.size().unwrap(), size);
            let memory = guest_memory(1 << 20).unwrap();
            initramfs.put(&memory, START).unwrap();
            let mut there = vec![0; size as usize];
            memory.read_slice(&mut there, START).unwrap();
            let first_own = there.iter().position(|&byte| byte == 2);
            let own_at = size & !(PAGE - 1);
            assert_eq!(
                first_own.is_some_and(|at| at as u64 == own_at),
                size % PAGE == 10
            );
            assert_eq!(there[0] == 1, files.shared.is_some());
        }
        assert!(GuestFiles::default().initramfs().is_none());
    }
}
