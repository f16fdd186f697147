//! Where run directories stand, and which names machines may have.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Uid;

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
///
/// `XDG_RUNTIME_DIR` counts only if it is a directory of this user: after `su`, and in services, the
/// variable can name another user's, or one that the end of a session removed.
pub fn default_root() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(root) = set(ROOT_VARIABLE) {
        return root.into();
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/tare".into();
    }
    users_root(set("XDG_RUNTIME_DIR"), uid)
}

fn users_root(runtime: Option<OsString>, user: Uid) -> PathBuf {
    match runtime.map(PathBuf::from) {
        Some(runtime) if is_directory_of(&runtime, user) => runtime.join("tare"),
        _ => std::env::temp_dir().join(format!("tare-{}", user.as_raw())),
    }
}

fn is_directory_of(path: &Path, user: Uid) -> bool {
    let is_theirs = |it: fs::Metadata| it.is_dir() && it.uid() == user.as_raw();
    path.is_absolute() && fs::metadata(path).is_ok_and(is_theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_directory_counts_if_it_is_there_and_the_users() {
        let keep = tempfile::tempdir().unwrap();
        let owner = fs::metadata(keep.path()).unwrap().uid();
        let [user, other] = [owner, owner + 1].map(Uid::from_raw);
        let root = |path: &Path, user| users_root(Some(path.into()), user);
        assert_eq!(root(keep.path(), user), keep.path().join("tare"));
        let elsewhere = |user: Uid| std::env::temp_dir().join(format!("tare-{}", user.as_raw()));
        assert_eq!(root(keep.path(), other), elsewhere(other));
        let file = keep.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [&keep.path().join("missing"), &file, Path::new(".")] {
            assert_eq!(root(path, user), elsewhere(user), "{}", path.display());
        }
        assert_eq!(users_root(None, user), elsewhere(user));
    }
}
