//! From `index.json` or `manifest.json` to the configuration and the layers.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ImageError;
use super::choice::{self, Named};
use super::digest::Digest;
use super::limits::MAX_NESTING;
use super::store::Store;

const INDEX: &str = "index.json";
const DOCKER_MANIFEST: &str = "manifest.json";
/// Where a manifest's image is called something: what docker writes, whole, and
/// what all write (OCI image specification, `annotations.md`).
const NAMES: &[&str] = &[
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

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
    #[serde(default)]
    annotations: HashMap<String, String>,
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
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
}

/// The manifest of the image called `name`, or of the only one; `None` if there
/// is none at all.
pub(super) fn read(store: &Store, name: Option<&str>) -> Result<Option<Manifest>, ImageError> {
    if store.has(INDEX) {
        let index: Index = parse(INDEX, &store.document(INDEX)?)?;
        let manifests = choice::choose(index.manifests, name)?;
        return of_index(store, &Index { manifests }, MAX_NESTING).map(Some);
    }
    if store.has(DOCKER_MANIFEST) {
        of_docker(store, name).map(Some)
    } else {
        Ok(None)
    }
}

impl Named for Descriptor {
    fn names(&self) -> Vec<String> {
        let said = NAMES.iter().filter_map(|name| self.annotations.get(*name));
        said.cloned().chain([self.digest.clone()]).collect()
    }

    /// Manifests of one image for several platforms lie beside each other.
    fn may_be_one(&self) -> bool {
        self.platform.is_some() && !NAMES.iter().any(|it| self.annotations.contains_key(*it))
    }
}

impl Named for DockerImage {
    fn names(&self) -> Vec<String> {
        let tags = self.repo_tags.iter().flatten().cloned();
        tags.chain([self.config.clone()]).collect()
    }

    fn may_be_one(&self) -> bool {
        false
    }
}

fn of_index(store: &Store, index: &Index, nesting: u32) -> Result<Manifest, ImageError> {
    let ours = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|it| (it.os.as_str(), it.architecture.as_str()) == ("linux", "amd64"))
    };
    let chosen = index
        .manifests
        .iter()
        .find(ours)
        .or_else(|| index.manifests.iter().find(|it| it.platform.is_none()));
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
    let layer = |descriptor: &Descriptor| -> Result<LayerName, ImageError> {
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

fn of_docker(store: &Store, name: Option<&str>) -> Result<Manifest, ImageError> {
    let images: Vec<DockerImage> = parse(DOCKER_MANIFEST, &store.document(DOCKER_MANIFEST)?)?;
    let image = choice::choose(images, name)?
        .into_iter()
        .next()
        .ok_or_else(|| ImageError::Missing("image".to_owned()))?;
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
        source: source.into(),
    })
}
