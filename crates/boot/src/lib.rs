//! Image to guest memory: a 64-bit ELF file with a PVH note or a Linux kernel
//! (bzImage, vmlinux), its initramfs, the command line, the boot information and
//! the ACPI tables.
//!
//! # Interface
//!
//! [`load()`] checks all headers, then writes, and returns where the first vCPU enters
//! ([`Loaded`]). A [`LoadError`] names the file, the part and the limit, and memory is unchanged.
//!
//! Neighbours: `abi` (where everything lies, the entry state) below, `monitor`
//! above, which gives open files and fresh (zeroed) guest memory. Files are hostile: every
//! header is checked before a byte of guest memory is written.
//! Limits: kernels and their initramfs lie below 3 GiB.
//! References: Xen `docs/misc/pvh.pandoc`; Linux `Documentation/arch/x86/boot.rst`; System V ABI, chapter 5; ACPI 6.5.

#![forbid(unsafe_code)]

pub mod acpi;
mod cmdline;
mod elf;
mod error;
mod exit;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_entry;
mod initramfs;
mod linux;
mod load;
mod memory_map;
mod note;
mod protocol;
mod source;
mod start_info;

pub use elf::{boots_by_itself, expiries, options, rings};
pub use error::{LoadError, Part};
pub use initramfs::Initramfs;
pub use load::{LoadOptions, Loaded, load};
pub use protocol::Protocol;
pub use source::Source;

/// Guest memory as all crates use it: no dirty bitmap.
pub type GuestMemoryMmap = vm_memory::GuestMemoryMmap<()>;
