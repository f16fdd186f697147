//! The files of a guest that has one of the programs beside `tare` (`tare-rr`, `tare-calls`) and the
//! libraries of the program: for a Linux guest, or for the library OS.

use std::path::Path;

use tare_rootfs::directory::{self, Owners};
use tare_rootfs::{Tree, host};

use super::{LinuxError, machine};

/// The program in `/bin`, its libraries where its loader looks, and the program's path.
pub fn tree(program: &'static str) -> Result<(Tree, String), LinuxError> {
    let beside = machine::this_program()?.with_file_name(program);
    if !beside.is_file() {
        return Err(LinuxError::NoProgram(program));
    }
    let mut tree = Tree::new();
    let place = format!("bin/{program}");
    tree.insert(&place, host::file(&beside)?)?;
    for library in host::libraries(&beside)? {
        host::add_file(&mut tree, &library)?;
    }
    Ok((tree, format!("/{place}")))
}

/// Writes them into `root`; gives the program's path there.
pub(crate) fn fill(root: &Path, program: &'static str) -> Result<String, LinuxError> {
    let (tree, path) = tree(program)?;
    directory::write(&tree, root, Owners::Caller)?;
    Ok(path)
}
