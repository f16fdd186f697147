//! What the loader handed over: memory map, command line, initramfs, the way
//! to the ACPI tables.

#[cfg(any(target_os = "none", test))]
mod claim;
#[cfg(target_os = "none")]
mod entry;
mod handover;
#[cfg(target_os = "none")]
mod initramfs;
mod physical;
mod regions;
#[cfg(target_os = "none")]
mod start;

pub use handover::{Handover, Protocol, parse};
pub use physical::{Physical, u16_at, u32_at, u64_at};
pub use regions::Regions;

#[cfg(test)]
pub(crate) use physical::fake;

#[cfg(target_os = "none")]
pub use initramfs::Initramfs;
#[cfg(target_os = "none")]
pub(crate) use start::acpi_virtio_mmio;
#[cfg(target_os = "none")]
pub use start::{cmdline, initramfs, take_initramfs};

#[cfg(not(target_os = "none"))]
mod host {
    /// The command line.
    pub fn cmdline() -> &'static str {
        ""
    }

    /// The initramfs, if one was loaded.
    pub fn initramfs() -> Option<&'static [u8]> {
        None
    }

    /// The initramfs as a value of one owner. On the host there is none.
    pub enum Initramfs {}

    impl core::ops::Deref for Initramfs {
        type Target = [u8];

        fn deref(&self) -> &[u8] {
            match *self {}
        }
    }

    /// The initramfs as a value of one owner, if one was loaded.
    pub fn take_initramfs() -> Option<Initramfs> {
        None
    }
}
#[cfg(not(target_os = "none"))]
pub use host::*;
