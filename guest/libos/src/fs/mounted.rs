//! Where the files come from: the archive, or what is mounted in its place.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tare_hal::once::OnceCell;

use super::attributes::Metadata;
use super::content::Content;
use super::dir::DirEntry;
use super::tree::Tree;
use crate::env;
use crate::io::Result;

static ARCHIVE: OnceCell<&'static [u8]> = OnceCell::new();
static TREE: OnceCell<Tree<'static>> = OnceCell::new();
/// Behind a trait, so that an image that never mounts a disk does not carry what
/// reads one.
static MOUNTED: OnceCell<Box<dyn Source>> = OnceCell::new();

/// Files that are not in the initramfs.
pub(crate) trait Source: Send + Sync {
    fn metadata(&self, path: &str) -> Result<Metadata>;
    fn read(&self, path: &str) -> Result<(Content, Metadata)>;
    fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>>;
    fn disk_name(&self) -> &'static str;
}

/// Makes `archive` the file system in the initramfs's place; the first stays.
pub(super) fn set_archive(archive: &'static [u8]) {
    let _ = ARCHIVE.set(archive);
}

/// Puts `source` in the archive's place; the first stays.
pub(super) fn set_source(source: Box<dyn Source>) {
    let _ = MOUNTED.set(source);
}

/// What is mounted in the archive's place.
pub(super) fn source() -> Option<&'static dyn Source> {
    MOUNTED.get().map(AsRef::as_ref)
}

/// The index of the archive, built by the first call.
pub(super) fn tree() -> &'static Tree<'static> {
    TREE.get_or_init(|| {
        let archive = ARCHIVE.get().copied().or_else(env::initramfs);
        Tree::build(archive.unwrap_or_default())
    })
}
