//! Disks: whole sectors read and written by blocking calls, as many at a time
//! as there are threads that call.
//!
//! [`Disk`] checks each call and splits it as the device wants it; what is
//! under it is a virtio-blk device (`virtio`) or, for tests and on the host,
//! memory ([`Disk::in_memory`]). A thread that calls sleeps until its own request
//! has completed: the interrupt handler takes completions off the ring and wakes
//! only the threads that they belong to.
//!
//! ```
//! use tare_libos::block::{Access, BlockError, Disk};
//!
//! let disk = Disk::in_memory("scratch", vec![0; 8192], Access::ReadWrite);
//! disk.write(3, &[7; 512])?;
//! disk.flush()?;
//! let mut sector = [0; 512];
//! disk.read(3, &mut sector)?;
//! assert_eq!(sector, [7; 512]);
//! assert_eq!(disk.read(16, &mut sector), Err(BlockError::BeyondEnd));
//! # Ok::<(), BlockError>(())
//! ```

mod device;
mod disk;
mod error;
mod list;
mod memory;
mod virtio;

pub use device::{Access, Cache, DiskStats};
pub(crate) use device::{Device, Geometry, Operation};
pub use disk::Disk;
pub use error::BlockError;
#[cfg_attr(not(target_os = "none"), allow(unused_imports))] // the host has no devices
pub(crate) use list::{attach, set_disks};
pub use list::{disk, disks};
#[cfg_attr(not(target_os = "none"), allow(unused_imports))] // as above
pub(crate) use virtio::{Tables, VirtioBlk};

/// Bytes of a sector, the unit of every request (virtio 1.2, 5.2.4).
pub const SECTOR_BYTES: usize = 512;

#[cfg(test)]
mod tests;
