//! A disk becomes a volume, or a sentence says why not.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use rsext4::{Clock, MountServices, NoopObserver};
use rsext4::{Ext4, Ext4Error, Ext4ErrorKind, Ext4Result, Ext4Timestamp, MountOptions};
use tare_libos::block::{self, Access, Disk, SECTOR_BYTES};
use tare_libos::heap;
use tare_libos::time::{SystemTime, UNIX_EPOCH};
use tare_linux::volume::Volume;

use crate::cache::{Cache, PAGE, Requests, Sectors};
use crate::device::Device;
use crate::volume::Ext4Volume;
use crate::writer;

/// The cache has memory's size shifted right by this: a sixteenth.
const CACHE_SHIFT: u32 = 4;
/// Bytes of the cache where memory is not accounted, as on the host.
const HOST_CACHE: u64 = 4 << 20;

/// A disk that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// The machine has no such disk.
    #[error("the machine has no disk {0}")]
    NoDisk(String),
    /// No ext4.
    #[error("{0} has no ext4 file system: make one on the host with mkfs.ext4 FILE")]
    NotExt4(String),
    /// Features that `rsext4` does not know.
    #[error(
        "{disk} has features of ext4 that are not supported ({set} {bits:#x}): make the file system \
         with mkfs.ext4 FILE, without further options"
    )]
    Features {
        /// The disk.
        disk: String,
        /// Which set of features.
        set: String,
        /// Those of them that are unknown.
        bits: u32,
    },
    /// A journal that waits to be replayed, on a disk that may only be read.
    #[error("{0} was not unmounted and may only be read: run it once without ,ro, or e2fsck FILE")]
    DirtyReadOnly(String),
    /// Damaged.
    #[error(
        "the ext4 file system of {disk} is damaged ({why}): repair it on the host with e2fsck FILE"
    )]
    Damaged {
        /// The disk.
        disk: String,
        /// What was found.
        why: String,
    },
    /// It cannot be mounted for another reason.
    #[error("cannot mount {disk}: {why}")]
    Other {
        /// The disk.
        disk: String,
        /// Why.
        why: String,
    },
}

/// The wall clock of the machine.
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Ext4Result<Ext4Timestamp> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = i64::try_from(now.as_secs()).map_err(|_| Ext4Error::overflow())?;
        Ok(Ext4Timestamp::new(seconds, now.subsec_nanos()))
    }
}

/// Mounts the disk with this name; a thread writes changes back from then on.
pub fn mount(name: &str) -> Result<Arc<dyn Volume>, String> {
    let volume = find(name).and_then(|disk| mount_with(&disk, cache_bytes()));
    let volume = Arc::new(volume.map_err(|error| alloc::format!("{error}"))?);
    writer::start(&volume);
    Ok(volume)
}

fn find(name: &str) -> Result<Disk, MountError> {
    let disk = block::disk(name).cloned();
    disk.ok_or_else(|| MountError::NoDisk(name.into()))
}

fn cache_bytes() -> u64 {
    match heap::stats().total {
        0 => HOST_CACHE,
        total => total >> CACHE_SHIFT,
    }
}

/// Mounts a disk, with a cache of at most these bytes.
pub fn mount_with(disk: &Disk, cache_bytes: u64) -> Result<Ext4Volume, MountError> {
    mount_on(
        disk.name(),
        Box::new(disk.clone()),
        disk.access(),
        cache_bytes,
    )
}

/// Mounts what has sectors as a disk has them.
pub fn mount_on(
    name: &str,
    mut sectors: Box<dyn Sectors>,
    access: Access,
    cache_bytes: u64,
) -> Result<Ext4Volume, MountError> {
    if access == Access::ReadOnly && waits_for_replay(sectors.as_mut()) {
        return Err(MountError::DirtyReadOnly(name.into()));
    }
    let requests = Arc::new(Requests::default());
    let bytes = sectors.sectors().saturating_mul(SECTOR_BYTES as u64);
    let most = usize::try_from(cache_bytes / PAGE as u64).unwrap_or(usize::MAX);
    let device = Device {
        cache: Cache::new(sectors, most, requests.clone()),
        access,
    };
    let services = MountServices::new(WallClock, (), NoopObserver);
    let options = match access {
        Access::ReadWrite => MountOptions::read_write(),
        Access::ReadOnly => MountOptions::read_only_no_journal_replay(),
    };
    let mounted = Ext4::mount(device, services, options);
    let mounted = mounted.map_err(|error| refused(name, error))?;
    Ok(Ext4Volume::new(mounted, bytes, access, requests))
}

/// Whether the journal has changes that are not in their places (`s_feature_incompat` of the
/// superblock, kernel `fs/ext4/ext4.h`).
fn waits_for_replay(sectors: &mut dyn Sectors) -> bool {
    const SUPERBLOCK: usize = 1024;
    const MAGIC: [u8; 2] = 0xef53_u16.to_le_bytes();
    const RECOVER: u8 = 4;
    let mut superblock = [0; 1024];
    let read = sectors.read((SUPERBLOCK / SECTOR_BYTES) as u64, &mut superblock);
    read.is_ok() && superblock[0x38..0x3a] == MAGIC && superblock[0x60] & RECOVER != 0
}

fn refused(name: &str, error: Ext4Error) -> MountError {
    use rsext4::ErrorContext;
    let name = String::from(name);
    let why = match error.context() {
        Some(ErrorContext::Operation { op }) => alloc::format!("{}: {op}", error.kind()),
        _ => alloc::format!("{}", error.kind()),
    };
    match (error.kind(), error.context()) {
        (Ext4ErrorKind::InvalidMagic, _) => MountError::NotExt4(name),
        (_, Some(ErrorContext::Feature { set, bits })) => MountError::Features {
            disk: name,
            set: alloc::format!("{set:?}"),
            bits,
        },
        (Ext4ErrorKind::ReadOnly, _) => MountError::DirtyReadOnly(name),
        (
            Ext4ErrorKind::Corrupted
            | Ext4ErrorKind::ChecksumMismatch
            | Ext4ErrorKind::BadSuperblock
            | Ext4ErrorKind::JournalAborted,
            _,
        ) => MountError::Damaged { disk: name, why },
        _ => MountError::Other { disk: name, why },
    }
}
