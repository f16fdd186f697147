//! Files as they are after a test, to compare with how they were before.

use std::path::{Path, PathBuf};

/// The paths of all that is below `root`, in order.
///
/// # Panics
/// If a directory cannot be read.
pub fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory that can be read") {
            let entry = entry.expect("an entry");
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
            paths.push(entry.path());
        }
    }
    paths.sort();
    paths
}
