//! Finds built guest images.

use std::path::{Path, PathBuf};

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It has not been built.
    #[error("no image {}, build it with `cargo xtask guests`", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
}

/// The image of the guest `name`, such as `selftest`.
pub fn image(name: &str) -> Result<PathBuf, ImageError> {
    let path = directory().join(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(ImageError::Missing { path })
    }
}

fn directory() -> PathBuf {
    if let Some(given) = std::env::var_os("TARE_GUESTS") {
        return given.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    target.join("x86_64-unknown-none/guest")
}
