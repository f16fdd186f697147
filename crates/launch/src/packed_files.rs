//! A guest's files as its engine takes them. The root of a program in Tare's monitor is mapped: an
//! archive in the user's cache if it can be one, which the machines of a root share (ADR 79).

use std::fs::File;

use tare_rootfs::cpio::{self, PackError};
use tare_rootfs::{ArchiveStore, Cache, Tree};

use crate::engine::Engine;
use crate::failure::Failure;
use crate::machine::{Files, PackedFiles};
use crate::program::ProgramError;

/// Packs a machine's files.
pub(crate) fn pack(files: Files, engine: &Engine) -> Result<PackedFiles, Failure> {
    let own = match files {
        Files::None => return Ok(PackedFiles::default()),
        Files::Program { tree, start, .. } => return program(tree, start, engine),
        Files::Initrd(file) => file,
        Files::Root(listing) => cpio::pack(&listing.tree)?,
        Files::Site(tree) => cpio::pack(&tree)?,
        Files::Linux(root) => cpio::pack(&root.tree)?,
    };
    Ok(PackedFiles {
        shared: None,
        own: Some(own),
    })
}

fn program(mut tree: Tree, start: Tree, engine: &Engine) -> Result<PackedFiles, Failure> {
    Ok(match engine {
        Engine::Tare(_) => PackedFiles {
            shared: Some(shared(&tree)?),
            own: Some(cpio::pack(&start)?),
        },
        // It takes one file, and copies it.
        Engine::Qemu { .. } => {
            tree.merge(start).map_err(ProgramError::from)?;
            PackedFiles {
                shared: None,
                own: Some(cpio::pack_for_mapping(&tree)?),
            }
        }
    })
}

/// The cache's archive of a root; in memory where the cache cannot have it, which costs
/// memory, and no machine.
fn shared(tree: &Tree) -> Result<File, PackError> {
    let store = Cache::open_default().ok();
    let store = store.and_then(|cache| ArchiveStore::open(&cache).ok());
    let stored = store.map_or(Ok(None), |store| store.archive(tree));
    match stored {
        Ok(Some(archive)) => Ok(archive),
        Ok(None) | Err(PackError::Write(_)) => cpio::pack_for_mapping(tree),
        Err(error) => Err(error),
    }
}
