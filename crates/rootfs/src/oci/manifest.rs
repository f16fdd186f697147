//! From `index.json` or `manifest.json` to the configuration and the layers.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ImageError;
use super::store::Store;

const INDEX: &str = "index.json";
const DOCKER_MANIFEST: &str = "manifest.json";
/// Indexes that name indexes: one is usual for several platforms.
const MAX_NESTING: u32 = 3;

/// Where an image's parts are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) config: Vec<u8>,
    pub(super) config_name: String,
    /// From the lowest.
    pub(super) layers: Vec<LayerName>,
}

/// A layer's part, with its digest where the image says one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LayerName {
    pub(super) name: String,
    pub(super) digest: Option<Digest>,
}

/// A SHA-256 digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    digits: String,
    bytes: Vec<u8>,
}

impl Digest {
    pub(super) fn parse(text: &str) -> Result<Self, ImageError> {
        let bad = || ImageError::BadDigest(text.to_owned());
        let digits = text.strip_prefix("sha256:").ok_or_else(bad)?;
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        };
        let lower = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if digits.len() != 64 || !digits.chars().all(lower) {
            return Err(bad());
        }
        Ok(Self {
            bytes: digits.as_bytes().chunks(2).filter_map(byte).collect(),
            digits: digits.to_owned(),
        })
    }

    /// The blob's name in an image.
    pub(super) fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digits)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    platform: Option<Platform>,
}

#[derive(Clone, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct ImageManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    layers: Vec<String>,
}

/// The image's manifest; `None` if there is none at all.
pub(super) fn read(store: &Store) -> Result<Option<Manifest>, ImageError> {
    if store.has(INDEX) {
        let index: Index = parse(INDEX, &store.document(INDEX)?)?;
        return of_index(store, &index, MAX_NESTING).map(Some);
    }
    match store.has(DOCKER_MANIFEST) {
        true => of_docker(store).map(Some),
        false => Ok(None),
    }
}

fn of_index(store: &Store, index: &Index, nesting: u32) -> Result<Manifest, ImageError> {
    let ours = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|it| (it.os.as_str(), it.architecture.as_str()) == ("linux", "amd64"))
    };
    let chosen = index.manifests.iter().find(ours);
    let chosen = chosen.or_else(|| index.manifests.iter().find(|it| it.platform.is_none()));
    let Some(chosen) = chosen else {
        return Err(
            match index.manifests.first().and_then(|it| it.platform.as_ref()) {
                Some(other) => ImageError::Platform {
                    found: format!("{}/{}", other.os, other.architecture),
                },
                None => ImageError::Missing("manifest".to_owned()),
            },
        );
    };
    let digest = Digest::parse(&chosen.digest)?;
    let document = store.checked_document(&digest)?;
    if chosen.media_type.contains("index") || chosen.media_type.contains("manifest.list") {
        let nesting = nesting.checked_sub(1).ok_or(ImageError::Nested)?;
        return of_index(store, &parse(&digest.path(), &document)?, nesting);
    }
    let manifest: ImageManifest = parse(&digest.path(), &document)?;
    let config = Digest::parse(&manifest.config.digest)?;
    let layer = |descriptor: &Descriptor| {
        let digest = Digest::parse(&descriptor.digest)?;
        Ok(LayerName {
            name: digest.path(),
            digest: Some(digest),
        })
    };
    Ok(Manifest {
        config: store.checked_document(&config)?,
        config_name: config.path(),
        layers: manifest
            .layers
            .iter()
            .map(layer)
            .collect::<Result<_, _>>()?,
    })
}

/// The first image of the archive.
fn of_docker(store: &Store) -> Result<Manifest, ImageError> {
    let images: Vec<DockerImage> = parse(DOCKER_MANIFEST, &store.document(DOCKER_MANIFEST)?)?;
    let image = images.into_iter().next();
    let image = image.ok_or_else(|| ImageError::Missing("image".to_owned()))?;
    let layer = |name| LayerName { name, digest: None };
    Ok(Manifest {
        config: store.document(&image.config)?,
        config_name: image.config,
        layers: image.layers.into_iter().map(layer).collect(),
    })
}

pub(super) fn parse<T: DeserializeOwned>(part: &str, document: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(document).map_err(|source| ImageError::Document {
        part: part.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_digests_become_names() {
        let digits = "0123456789abcdef".repeat(4);
        let digest = Digest::parse(&format!("sha256:{digits}"));
        assert_eq!(
            digest.map(|it| (it.path(), it.bytes().len())).ok(),
            Some((format!("blobs/sha256/{digits}"), 32))
        );
        for bad in [
            "",
            "sha256:",
            "sha256:../../etc/passwd",
            "sha512:00",
            &digits,
        ] {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
    }
}
