//! Bytes and words at the program's pointers. A pointer that the program may not use
//! is EFAULT; a page that has not come yet comes.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use tare_program::names;

use crate::errno::{Errno, Result};
use crate::memory::{self, PAGE};
use crate::process::Process;
use crate::space::Access;

/// Longest path, with its NUL.
const PATH_MAX: usize = 4096;
/// Most parts of a vector (`UIO_MAXIOV`).
const MOST_PARTS: u64 = 1024;
/// Bytes of a part (`struct iovec`), and how many are copied at once.
const PART_BYTES: usize = 16;
const PARTS_AT_ONCE: usize = 16;
/// Where Linux ends the addresses of programs, with four levels of page tables.
pub(crate) const USER_END: u64 = 0x7fff_ffff_f000;

impl Process {
    /// Copies from the program.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<()> {
        if memory::read(address, to) {
            return Ok(());
        }
        self.bring(address, to.len(), Access::Read)?;
        if memory::read(address, to) {
            Ok(())
        } else {
            Err(Errno::EFAULT)
        }
    }

    /// Copies to the program.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<()> {
        if memory::write(address, from) {
            return Ok(());
        }
        self.bring(address, from.len(), Access::Write)?;
        if memory::write(address, from) {
            Ok(())
        } else {
            Err(Errno::EFAULT)
        }
    }

    /// EFAULT for a range that no program has, wherever its pages are (`access_ok`).
    pub(crate) fn is_own(address: u64, length: u64) -> Result<()> {
        const END: u64 = 1 << 47;
        match address.checked_add(length) {
            Some(..=END) => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }

    /// Copies from the program up to the first page that it cannot read; gives how much.
    pub(crate) fn read_some(&self, address: u64, to: &mut [u8]) -> usize {
        if self.read(address, to).is_ok() {
            return to.len();
        }
        by_pages(address, to.len(), |at, part| self.read(at, &mut to[part]))
    }

    /// Copies to the program up to the first page that it cannot write; gives how much.
    pub(crate) fn write_some(&self, address: u64, from: &[u8]) -> usize {
        if self.write(address, from).is_ok() {
            return from.len();
        }
        by_pages(address, from.len(), |at, part| self.write(at, &from[part]))
    }

    /// Whether the program may write to `address`; its page comes.
    pub(crate) fn may_write(&self, address: u64) -> Result<()> {
        if memory::is_writable(address) {
            return Ok(());
        }
        self.bring(address, 1, Access::Write)
    }

    /// How many bytes from `address` the program may write to, up to `length`; their pages come.
    pub(crate) fn writable(&self, address: u64, length: usize) -> usize {
        by_pages(address, length, |at, _| self.may_write(at))
    }

    /// Brings the pages of a range that are not there.
    fn bring(&self, address: u64, length: usize, access: Access) -> Result<()> {
        let end = address.checked_add(length as u64).ok_or(Errno::EFAULT)?;
        let mut space = self.space.lock();
        let mut at = address & !(PAGE - 1);
        while at < end {
            space.fault(at, access).map_err(|_| Errno::EFAULT)?;
            at += PAGE;
        }
        Ok(())
    }

    /// `length` bytes.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&self, address: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// A structure of the size that it has in the program's headers: what they lack is zero, and what
    /// they have beyond is E2BIG unless it is zero (`copy_struct_from_user` of Linux's
    /// `include/linux/uaccess.h`).
    pub(crate) fn versioned<const N: usize>(&self, address: u64, size: usize) -> Result<[u8; N]> {
        let bytes = self.bytes(address, size)?;
        let (known, unknown) = bytes.split_at(size.min(N));
        if unknown.iter().any(|byte| *byte != 0) {
            return Err(Errno::E2BIG);
        }
        let mut whole = [0; N];
        whole[..known.len()].copy_from_slice(known);
        Ok(whole)
    }

    pub(crate) fn u64(&self, address: u64) -> Result<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&self, address: u64) -> Result<u32> {
        self.array(address).map(u32::from_le_bytes)
    }

    pub(crate) fn put_u32(&self, address: u64, value: u32) -> Result<()> {
        self.write(address, &value.to_le_bytes())
    }

    pub(crate) fn put_u64(&self, address: u64, value: u64) -> Result<()> {
        self.write(address, &value.to_le_bytes())
    }

    /// The word of a futex.
    pub(crate) fn futex_word(&self, address: u64) -> Result<u32> {
        if !address.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if let Some(word) = memory::load_u32(address) {
            return Ok(word);
        }
        self.bring(address, 4, Access::Read)?;
        memory::load_u32(address).ok_or(Errno::EFAULT)
    }

    /// The same for one that is written at once: gives what it held, and holds `new` if that is
    /// `expected`.
    pub(crate) fn exchange_futex_word(&self, address: u64, expected: u32, new: u32) -> Result<u32> {
        if !address.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if let Some(held) = memory::exchange_u32(address, expected, new) {
            return Ok(held);
        }
        self.bring(address, 4, Access::Write)?;
        memory::exchange_u32(address, expected, new).ok_or(Errno::EFAULT)
    }

    /// A path, or other text that ends with NUL.
    pub(crate) fn text(&self, address: u64) -> Result<String> {
        let bytes = self.before_nul(address, PATH_MAX)?;
        bytes.map(names::text).ok_or(Errno::ENAMETOOLONG)
    }

    /// The bytes before a NUL; none where the first `most` have none.
    pub(crate) fn before_nul(&self, address: u64, most: usize) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        while bytes.len() < most {
            // To the page's end: what is behind may not be mapped.
            let at = address.wrapping_add(bytes.len() as u64);
            let part = (4096 - at % 4096).min(256) as usize;
            let start = bytes.len();
            bytes.resize(start + part, 0);
            self.read(at, &mut bytes[start..])?;
            if let Some(end) = bytes[start..].iter().position(|&byte| byte == 0) {
                bytes.truncate(start + end);
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// The name of a thread: up to 15 bytes, the rest zeros.
    pub(crate) fn name(&self, address: u64) -> Result<[u8; 16]> {
        let mut name = [0; 16];
        for (slot, at) in name[..15].iter_mut().zip(0..) {
            *slot = self.array::<1>(address.wrapping_add(at))?[0];
            if *slot == 0 {
                break;
            }
        }
        Ok(name)
    }

    /// The parts of a vector: address and length each.
    pub(crate) fn parts(&self, address: u64, count: u64) -> Result<Vec<(u64, usize)>> {
        if count > MOST_PARTS {
            return Err(Errno::EINVAL);
        }
        let mut total = 0_u64;
        let mut parts = Vec::with_capacity(count as usize);
        let mut chunk = [0; PARTS_AT_ONCE * PART_BYTES];
        while parts.len() < count as usize {
            let some = (count as usize - parts.len()).min(PARTS_AT_ONCE);
            let bytes = &mut chunk[..some * PART_BYTES];
            self.read(
                address.wrapping_add((parts.len() * PART_BYTES) as u64),
                bytes,
            )?;
            let (entries, _) = bytes.as_chunks::<PART_BYTES>();
            for entry in entries {
                let (base, length) = entry.split_at(8);
                let word = |half: &[u8]| {
                    half.first_chunk()
                        .map_or(0, |half| u64::from_le_bytes(*half))
                };
                let (base, length) = (word(base), word(length));
                total = total.checked_add(length).ok_or(Errno::EINVAL)?;
                if total > i64::MAX as u64 {
                    return Err(Errno::EINVAL);
                }
                parts.push((base, length as usize));
            }
        }
        let is_far = |(base, length): &(u64, usize)| {
            let end = base.checked_add(*length as u64);
            end.is_none_or(|end| end > USER_END)
        };
        // Also where nothing would be copied, as at a file's end.
        if parts.iter().any(is_far) {
            return Err(Errno::EFAULT);
        }
        Ok(parts)
    }
}

/// Calls `act` with the parts of `length` bytes at `address` that are in one page each,
/// until it fails; gives the bytes before.
fn by_pages(
    address: u64,
    length: usize,
    mut act: impl FnMut(u64, Range<usize>) -> Result<()>,
) -> usize {
    let mut done = 0;
    while done < length {
        let at = address.wrapping_add(done as u64);
        let part = ((PAGE - at % PAGE) as usize).min(length - done);
        if act(at, done..done + part).is_err() {
            break;
        }
        done += part;
    }
    done
}
