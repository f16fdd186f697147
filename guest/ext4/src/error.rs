//! Errors of `rsext4` as Linux's numbers, and errors of disks as those of `rsext4`.

use rsext4::{Ext4Error, Ext4ErrorKind};
use tare_libos::block::BlockError;
use tare_linux::volume::Errno;

/// What a program sees.
pub(crate) fn errno(error: Ext4Error) -> Errno {
    use Ext4ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound => Errno::ENOENT,
        Kind::AlreadyExists => Errno::EEXIST,
        Kind::NotDirectory => Errno::ENOTDIR,
        Kind::IsDirectory => Errno::EISDIR,
        Kind::NotEmpty => Errno::ENOTEMPTY,
        Kind::NoSpace => Errno::ENOSPC,
        Kind::QuotaExceeded => Errno::EDQUOT,
        Kind::TooManyLinks => Errno::EMLINK,
        Kind::FileTooLarge | Kind::Overflow => Errno::EFBIG,
        Kind::NoMemory => Errno::ENOMEM,
        Kind::PermissionDenied => Errno::EPERM,
        Kind::Unsupported | Kind::UnsupportedCapability | Kind::UnsupportedFeature => {
            Errno::EOPNOTSUPP
        }
        Kind::InvalidInput => Errno::EINVAL,
        Kind::Busy => Errno::EBUSY,
        // As ext4 of Linux after a failed journal.
        Kind::ReadOnly | Kind::JournalAborted => Errno::EROFS,
        // EFSCORRUPTED and EFSBADCRC of Linux.
        Kind::Corrupted | Kind::BadSuperblock | Kind::InvalidMagic => Errno::EUCLEAN,
        Kind::ChecksumMismatch => Errno::EBADMSG,
        Kind::Io | Kind::BadFileDescriptor | Kind::Timeout => Errno::EIO,
    }
}

/// What the file system sees of its disk.
pub(crate) fn of_disk(error: BlockError) -> Ext4Error {
    match error {
        BlockError::ReadOnly => Ext4Error::read_only(),
        BlockError::BeyondEnd => Ext4Error::corrupted().with_operation("disk:beyond_end"),
        _ => Ext4Error::io(),
    }
}
