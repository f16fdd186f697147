//! An ext4 file system on one of the machine's disks, by the crate `rsext4` (ADR 76): a
//! [`Volume`](tare_linux::volume::Volume) for the tree of files of Linux programs.
//!
//! | module | what it is |
//! |---|---|
//! | `cache` | pages of the disk in memory, with a bound; written when the file system flushes |
//! | `device` | the cache as the block device that `rsext4` asks for |
//! | `mount` | a disk becomes a volume, or a sentence says why not |
//! | `volume` | the calls, under one lock |
//! | `writer` | the thread that makes changes durable some seconds after the first |
//! | `error` | errors of `rsext4` as Linux's numbers |
//!
//! Limits: times are read in whole seconds, and attributes beyond `stat` are kept but not offered. A
//! disk may be damaged or made by an attacker: what `rsext4` does not notice ends this machine only.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod cache;
mod device;
mod error;
mod mount;
mod volume;
mod writer;

pub use cache::{Requests, Sectors};
pub use mount::{MountError, mount, mount_on, mount_with};
pub use volume::Ext4Volume;
