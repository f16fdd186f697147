//! Loading the kernel modules that came along, in their order.

use std::fs::File;

use rustix::io::Errno;
use rustix::system::finit_module;

use crate::console::say;

/// Loads each; one that fails is reported, and the others may do.
pub(crate) fn load(paths: &[String]) {
    for path in paths {
        match load_one(path) {
            // Loaded already, or the device that it is for is missing.
            Ok(()) | Err(Errno::EXIST | Errno::NODEV) => {}
            Err(errno) => say(&format!(
                "the kernel does not take the module {path}: {errno}"
            )),
        }
    }
}

fn load_one(path: &str) -> Result<(), Errno> {
    let missing = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let file = File::open(format!("/{path}")).map_err(missing)?;
    finit_module(&file, c"", 0)
}
