//! A crate that makes an image, by what its Cargo.toml says.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

/// Largest Cargo.toml, bytes.
const LARGEST: u64 = 1 << 20;

/// A crate with `[package.metadata.tare]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appliance {
    directory: PathBuf,
    publish: Vec<String>,
}

/// Why a directory has no appliance.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It has no crate.
    #[error("{} has no Cargo.toml", .0.display())]
    NoCrate(PathBuf),
    /// It has another crate.
    #[error("{} has no [package.metadata.tare]: not an appliance's crate", .0.display())]
    Other(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file has a mistake.
    #[error("{} is invalid: {}", .0.display(), .1.message())]
    Invalid(PathBuf, toml::de::Error),
}

#[derive(Deserialize)]
struct Manifest {
    package: Option<Package>,
}

#[derive(Deserialize)]
struct Package {
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    tare: Option<Tare>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tare {
    #[serde(default)]
    publish: Vec<String>,
}

impl Appliance {
    /// The appliance in `directory`.
    pub fn open(directory: &Path) -> Result<Self, ManifestError> {
        let path = directory.join("Cargo.toml");
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ManifestError::NoCrate(directory.to_owned()));
            }
            Err(error) => return Err(ManifestError::Read(path, error)),
        };
        let manifest: Manifest = match toml::from_str(&text) {
            Ok(manifest) => manifest,
            Err(error) => return Err(ManifestError::Invalid(path, error)),
        };
        let metadata = manifest.package.and_then(|package| package.metadata);
        match metadata.and_then(|metadata| metadata.tare) {
            Some(Tare { publish }) => Ok(Self {
                directory: directory.to_owned(),
                publish,
            }),
            None => Err(ManifestError::Other(path)),
        }
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The port forwards that `tare run` makes without `-p`, as they are written.
    pub fn publish(&self) -> &[String] {
        &self.publish
    }
}

/// The user names the directory, whose owner chooses what its manifest is: a pipe that no user writes
/// to, or a file without an end.
fn read(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        let why = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(manifest: &str) -> Result<Appliance, ManifestError> {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("Cargo.toml"), manifest).unwrap();
        Appliance::open(place.path())
    }

    #[test]
    fn metadata_make_a_crate_an_appliance() {
        let with = "[package]\nname = \"a\"\n[package.metadata.tare]\n";
        assert!(open(with).unwrap().publish().is_empty());
        let more = format!("{with}publish = [\"1:2\", \"3:4/udp\"]\n[profile.dev]\nx = 1\n");
        assert_eq!(open(&more).unwrap().publish(), ["1:2", "3:4/udp"]);
    }

    #[test]
    fn other_crates_are_none() {
        for text in [
            "",
            "[workspace]\n",
            "[package]\nname = \"a\"\n",
            "[package.metadata.docs]\n",
        ] {
            assert!(matches!(open(text), Err(ManifestError::Other(_))), "{text}");
        }
        let place = tempfile::tempdir().unwrap();
        let none = Appliance::open(place.path()).unwrap_err();
        assert!(matches!(none, ManifestError::NoCrate(_)), "{none}");
    }

    #[test]
    fn a_manifest_that_is_a_pipe_or_has_no_end_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("Cargo.toml");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let refused = Appliance::open(place.path()).unwrap_err();
        assert!(matches!(refused, ManifestError::Read(..)), "{refused}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let refused = Appliance::open(place.path()).unwrap_err();
        assert!(matches!(refused, ManifestError::Read(..)), "{refused}");
        fs::remove_file(&path).unwrap();
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let refused = Appliance::open(place.path()).unwrap_err();
        assert!(matches!(refused, ManifestError::Read(..)), "{refused}");
    }

    #[test]
    fn mistakes_are_named_in_one_line() {
        for (text, says) in [
            ("[package", "unclosed"),
            ("[package.metadata.tare]\npublish = 80\n", "sequence"),
            (
                "[package.metadata.tare]\nports = []\n",
                "unknown field `ports`",
            ),
        ] {
            let sentence = open(text).unwrap_err().to_string();
            assert!(sentence.contains(says), "{sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    }
}
