//! Capabilities: a daemon that root started has all of them and needs none,
//! since everything is open before a guest runs.
//!
//! One exception: a directory in which files are to be removed may belong to
//! another user (`sudo` with the user's run root). Then the main thread keeps
//! CAP_DAC_OVERRIDE, and Landlock keeps it to that directory.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::fstat;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

use super::calls::Opens;

/// Takes all capabilities from the calling thread and from those that it will
/// start, except for what removing files in `directories` needs.
pub fn drop_capabilities(directories: &[&Path]) -> io::Result<()> {
    let foreign = |directory: &&Path| {
        let owner = directory.metadata().map(|metadata| metadata.uid());
        owner.is_ok_and(|owner| owner != geteuid().as_raw())
    };
    if directories.iter().any(foreign) {
        keep_only(CapabilitySet::DAC_OVERRIDE)
    } else {
        drop_all()
    }
}

/// The same with open directories.
pub fn drop_capabilities_but_removal(directories: &[&OwnedFd]) -> io::Result<()> {
    let own = geteuid().as_raw();
    let foreign = |directory: &&OwnedFd| fstat(directory).is_ok_and(|it| it.st_uid != own);
    if directories.iter().any(foreign) {
        keep_only(CapabilitySet::DAC_OVERRIDE)
    } else {
        drop_all()
    }
}

/// What a reader that opens files below a directory keeps, so that they may be another user's:
/// only if Landlock keeps it to that directory. Without it the capability opens every file of
/// the host, and the directory must be one that this user may read.
pub(super) fn of_a_reader(opens: Opens, has_landlock: bool) -> CapabilitySet {
    match opens {
        Opens::Below if has_landlock => CapabilitySet::DAC_READ_SEARCH,
        Opens::Below | Opens::Nothing => CapabilitySet::empty(),
    }
}

/// Takes all capabilities from the calling thread.
pub(super) fn drop_all() -> io::Result<()> {
    keep_only(CapabilitySet::empty())
}

/// Takes all other capabilities from the calling thread.
pub(super) fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    // Kernels before 4.3 have no ambient set.
    let _ = clear_ambient_capability_set();
    let had = capabilities(None)?;
    let sets = CapabilitySets {
        effective: had.permitted & kept,
        permitted: had.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn left(directories: &'static [&'static str]) -> CapabilitySet {
        let body = move || {
            let directories: Vec<&Path> = directories.iter().map(Path::new).collect();
            drop_capabilities(&directories).expect("capabilities can be dropped");
            let left = capabilities(None).expect("capabilities");
            assert_eq!(left.inheritable, CapabilitySet::empty());
            left.effective | left.permitted
        };
        thread::spawn(body).join().expect("a thread")
    }

    #[test]
    fn a_reader_keeps_a_capability_only_where_landlock_narrows_it() {
        let reads = CapabilitySet::DAC_READ_SEARCH;
        assert_eq!(of_a_reader(Opens::Below, true), reads);
        for (opens, has_landlock) in [
            (Opens::Below, false),
            (Opens::Nothing, true),
            (Opens::Nothing, false),
        ] {
            assert!(of_a_reader(opens, has_landlock).is_empty());
        }
    }

    #[test]
    fn no_capability_is_left() {
        assert_eq!(left(&[]), CapabilitySet::empty());
    }

    #[test]
    fn nothing_but_removal_is_left_for_a_directory_of_another_user() {
        // Root's for any user but root, for whom it is its own.
        let left = left(&["/"]);
        assert!(CapabilitySet::DAC_OVERRIDE.contains(left), "{left:?}");
        if geteuid().is_root() {
            assert_eq!(left, CapabilitySet::empty());
        }
    }
}
