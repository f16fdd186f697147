//! Where run directories stand, and which names machines may have.

use std::path::{Path, PathBuf};

/// Environment variable that names another root for run directories.
pub const ROOT_VARIABLE: &str = "TARE_RUN_ROOT";
/// Longest name of a machine in bytes.
pub(super) const MAX_NAME: usize = 64;

/// Whether `name` may name a machine: 1 to `MAX_NAME` ASCII letters, digits,
/// `.`, `_` or `-`, beginning with a letter or digit.
pub fn valid_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.len() <= MAX_NAME
        && name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(inner)
}

/// The directory that holds this user's run directories. It need not exist.
pub fn default_root() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(root) = set(ROOT_VARIABLE) {
        return root.into();
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/tare".into();
    }
    match set("XDG_RUNTIME_DIR") {
        Some(runtime) => Path::new(&runtime).join("tare"),
        None => std::env::temp_dir().join(format!("tare-{}", uid.as_raw())),
    }
}
