//! Finds and opens the image: a path, or the name of one that came with Tare. Only cheap checks
//! happen here; `boot` reads the rest.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// An image that is open.
#[derive(Debug)]
pub(crate) struct Image {
    /// Where it was found.
    pub(crate) path: PathBuf,
    /// The open file.
    pub(crate) file: File,
    /// Its size in bytes.
    pub(crate) bytes: u64,
}

/// No image to boot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// No file of that name in any directory searched.
    #[error("no image is named {}", .0.display())]
    Unknown(PathBuf),
    /// The file cannot be opened.
    #[error("cannot open the image {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory or a device.
    #[error("the image {} is not a file", .0.display())]
    NotFile(PathBuf),
}

impl Explain for ImageError {
    fn code(&self) -> ExitCode {
        ExitCode::ImageUnreadable
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown(_) => Some(format!("{}; or give a path", known_images())),
            Self::Open { .. } | Self::NotFile(_) => None,
        }
    }
}

/// Finds and opens `image`.
pub(crate) fn open(image: &Path) -> Result<Image, ImageError> {
    let path = find(image)?;
    let file = File::open(&path).map_err(|source| open_error(&path, source))?;
    let metadata = file
        .metadata()
        .map_err(|source| open_error(&path, source))?;
    if !metadata.is_file() {
        return Err(ImageError::NotFile(path));
    }
    Ok(Image {
        path,
        file,
        bytes: metadata.len(),
    })
}

fn open_error(path: &Path, source: io::Error) -> ImageError {
    ImageError::Open {
        path: path.to_owned(),
        source,
    }
}

/// Finds a bare name among the images first and in the current directory last; anything with a
/// slash is a path.
fn find(image: &Path) -> Result<PathBuf, ImageError> {
    if !is_bare_name(image) {
        return Ok(image.to_owned());
    }
    image_dirs()
        .into_iter()
        .map(|dir| dir.join(image))
        .chain([image.to_owned()])
        .find(|path| path.is_file())
        .ok_or_else(|| ImageError::Unknown(image.to_owned()))
}

fn is_bare_name(image: &Path) -> bool {
    let mut components = image.components();
    let one = matches!(components.next(), Some(Component::Normal(_)));
    one && components.next().is_none() && !image.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// The directories of images, in search order.
pub(crate) fn image_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = env::var_os("TARE_IMAGES")
        .filter(|dirs| !dirs.is_empty())
        .map(|dirs| env::split_paths(&dirs).collect())
        .unwrap_or_default();
    if let Some(here) = env::current_exe().ok().and_then(parent) {
        dirs.push(here.join("images"));
        if let Some(above) = parent(here) {
            dirs.push(above.join("share/tare/images"));
            dirs.push(above.join("x86_64-unknown-none/guest"));
        }
    }
    dirs
}

fn parent(path: PathBuf) -> Option<PathBuf> {
    path.parent().map(Path::to_owned)
}

/// Names of the images in those directories, sorted.
pub fn known() -> Vec<String> {
    let mut names: Vec<String> = image_dirs()
        .iter()
        .filter_map(|dir| dir.read_dir().ok())
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.contains('.'))
        .collect();
    names.sort();
    names.dedup();
    names
}

fn known_images() -> String {
    match known().as_slice() {
        [] => "no images are installed: build them with `make build`, set TARE_IMAGES".to_owned(),
        names => format!(
            "there are {}; `make build` builds all of Tare's",
            names.join(", ")
        ),
    }
}

/// The name of machines that run the image, without their number.
pub(crate) fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(OsStr::new("machine"));
    let mut name: String = stem
        .to_string_lossy()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_')
        .take(32)
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        name.insert(0, 'm');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_without_slashes_is_looked_up() {
        assert!(is_bare_name(Path::new("http")));
        for path in ["./http", "a/http", "/http", "..", "http/"] {
            assert!(!is_bare_name(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn an_unknown_image_is_named() {
        let error = open(Path::new("no-such-image")).expect_err("no image");
        assert_eq!(error.to_string(), "no image is named no-such-image");
        assert_eq!(error.code(), ExitCode::ImageUnreadable);
    }

    #[test]
    fn a_directory_is_refused_as_an_image() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(open(dir.path()), Err(ImageError::NotFile(_))));
    }

    #[test]
    fn machines_are_named_after_their_image() {
        assert_eq!(stem(Path::new("/a/http")), "http");
        assert_eq!(stem(Path::new("v mlinux.elf")), "vmlinux");
        assert_eq!(stem(Path::new("-x")), "m-x");
        assert_eq!(stem(Path::new("/")), "machine");
    }
}
