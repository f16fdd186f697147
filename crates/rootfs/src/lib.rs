//! Root file systems for Linux guests, and kernels to boot them with.
//!
//! ```text
//! kernel::debian   Debian's cloud kernel, its modules and configuration
//! modules          which modules a driver needs, in the order of loading
//! tree             files, directories, links and owners: what a guest gets
//! capability       what a program may do, beside its file
//! walk, host       a tree from a directory, from programs of this computer
//! oci              a tree from a container image
//! root             a tree and a task from what a user names: a directory or an image
//! archive          kernel sources, packages: unpacked within limits, confined
//! package          Debian's packages, unpacked and not installed
//! cpio, ext4       a tree as an initramfs, as a disk
//! archive_store    archives of trees in the cache, by what their files are
//! directory        a tree as a directory of this computer
//! guest            the initramfs of a command: tree, modules, first process
//! qemu             what guests in QEMU share
//! ```
//!
//! Neighbours: `init` (the first process and its task) and `confine` (of what reads images and
//! archives) below, `cli`, `probe`,
//! `tailor` and `lab` above. Nothing here boots a machine.
//! Limits: x86-64; modules that are not compressed (Debian 12's are not).

#![forbid(unsafe_code)]

pub mod archive;
mod archive_store;
pub mod cache;
mod capability;
pub mod cpio;
pub mod directory;
pub mod ext4;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_entry;
pub mod guest;
pub mod host;
mod host_file;
pub mod kernel;
mod left_out;
mod lookups;
pub mod modules;
pub mod oci;
pub mod package;
mod program;
mod quote;
pub mod root;
pub mod tree;
pub mod walk;

pub use archive_store::ArchiveStore;
pub use cache::Cache;
pub use capability::FileCapability;
pub use host_file::{HostFile, is_public_directory, is_seen_by_all};
pub use kernel::Kernel;
pub use tare_init::{Logging, Root, Task};
pub use tree::Tree;
