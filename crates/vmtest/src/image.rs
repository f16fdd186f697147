//! Finds built guest images.

use std::path::{Path, PathBuf};

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It has not been built.
    #[error("the {0} image is not built (cargo xtask guests)")]
    Missing(String),
}

/// The image of the guest `name`, such as `selftest`: in `$TARE_IMAGES`, or where it was built
/// with the test.
pub fn image(name: &str) -> Result<PathBuf, ImageError> {
    let set = std::env::var_os("TARE_IMAGES")
        .map(PathBuf::from)
        .map(|directory| directory.join(name))
        .filter(|path| path.is_file());
    set.map_or_else(|| built_image(name), Ok)
}

/// The same, whatever `$TARE_IMAGES` is: the image of the tree under test.
pub fn built_image(name: &str) -> Result<PathBuf, ImageError> {
    // The test is `target/debug/deps/NAME-HASH`.
    let test = std::env::current_exe().unwrap_or_default();
    let programs = test.ancestors().nth(2).unwrap_or(Path::new(""));
    ["images", "../x86_64-unknown-none/guest"]
        .map(|directory| programs.join(directory).join(name))
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| ImageError::Missing(name.to_owned()))
}
