//! Capabilities of files, which an initramfs and a disk made by any user come without.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr};
use tare_init::FileCapabilities;

use crate::console::say;

/// The extended attribute (capabilities(7)).
const NAME: &str = "security.capability";

/// Sets them; a command may do without.
pub(crate) fn set(all: &[FileCapabilities]) {
    for FileCapabilities { path, value } in all {
        let file = Path::new("/").join(OsStr::from_bytes(path));
        if let Err(error) = lsetxattr(&file, NAME, value, XattrFlags::empty()) {
            say(&format!("{} has no capabilities: {error}", file.display()));
        }
    }
}
