//! A guest's files as its engine takes them. Those of an image or a program in Tare's monitor are mapped: an
//! archive in the user's cache if it can be one, which the machines of a root share (ADR 79).

use std::fs::File;

use tare_rootfs::cpio::{self, Layout, PackError};
use tare_rootfs::{ArchiveStore, Cache, Tree};

use crate::engine::Engine;
use crate::failure::Failure;
use crate::machine::{Files, PackedFiles};
use crate::program::ProgramError;

/// Packs a machine's files.
pub(crate) fn pack(files: Files, engine: &Engine) -> Result<PackedFiles, Failure> {
    match files {
        Files::None => Ok(PackedFiles::default()),
        Files::Initrd(file) => Ok(copied(file)),
        // Linux unpacks it and uses its memory again.
        Files::Linux(root) => Ok(copied(cpio::pack(&root.tree)?)),
        Files::Root(listing) => image(&listing.tree, engine),
        Files::Site(tree) => image(&tree, engine),
        Files::Program { tree, start, .. } => program(tree, start, engine),
    }
}

fn copied(own: File) -> PackedFiles {
    PackedFiles {
        shared: None,
        own: Some(own),
    }
}

fn image(tree: &Tree, engine: &Engine) -> Result<PackedFiles, Failure> {
    Ok(match engine {
        Engine::Tare(_) => PackedFiles {
            shared: Some(shared(tree, Layout::Compact)?),
            own: None,
        },
        Engine::Qemu { .. } => copied(cpio::pack(tree)?),
    })
}

fn program(mut tree: Tree, start: Tree, engine: &Engine) -> Result<PackedFiles, Failure> {
    Ok(match engine {
        Engine::Tare(_) => PackedFiles {
            shared: Some(shared(&tree, Layout::Pages)?),
            own: Some(cpio::pack(&start)?),
        },
        // It takes one file, and copies it.
        Engine::Qemu { .. } => {
            tree.merge(start).map_err(ProgramError::from)?;
            copied(cpio::pack_as(&tree, Layout::Pages)?)
        }
    })
}

/// The cache's archive of a root; in memory where the cache cannot have it, which costs
/// memory, and no machine.
fn shared(tree: &Tree, layout: Layout) -> Result<File, PackError> {
    let store = Cache::open_default().ok();
    let store = store.and_then(|cache| ArchiveStore::open(&cache).ok());
    let stored = store.map_or(Ok(None), |store| store.archive(tree, layout));
    match stored {
        Ok(Some(archive)) => Ok(archive),
        Ok(None) | Err(PackError::Write(_)) => cpio::pack_as(tree, layout),
        Err(error) => Err(error),
    }
}
