//! A crate that makes an image, by what its Cargo.toml says.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

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
        let text = match fs::read_to_string(&path) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
