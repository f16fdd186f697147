//! An image: layers on each other, and what to run in them.

#[cfg(any(test, feature = "fuzz"))]
use std::fs::File;
use std::path::Path;

use serde::Deserialize;

use super::ImageError;
use super::layer::{self, Added, Layer, Spool};
use super::manifest::{self, Manifest};
use super::place::Place;
use super::store::{self, Store};
use crate::tree::{NameError, Tree};

/// A root and what to run in it.
#[derive(Debug)]
pub struct Image {
    /// Its files.
    pub tree: Tree,
    /// What it says about its command.
    pub settings: Settings,
}

/// What an image says about its command (OCI `config.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Settings {
    /// What always comes first.
    #[serde(deserialize_with = "or_empty")]
    pub entrypoint: Vec<String>,
    /// What comes after it unless the user says something else.
    #[serde(deserialize_with = "or_empty")]
    pub cmd: Vec<String>,
    /// `NAME=VALUE`.
    #[serde(deserialize_with = "or_empty")]
    pub env: Vec<String>,
    /// Where it runs.
    #[serde(deserialize_with = "or_empty")]
    pub working_dir: String,
    /// Who runs it, `USER[:GROUP]`.
    #[serde(deserialize_with = "or_empty")]
    pub user: String,
}

/// A field that is missing or null.
fn or_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<Settings>,
}

impl Settings {
    /// The whole command, with the user's words in the place of `cmd`.
    pub fn command(&self, user: &[String]) -> Vec<String> {
        let rest = match user {
            [] => &self.cmd,
            user => user,
        };
        self.entrypoint.iter().chain(rest).cloned().collect()
    }
}

/// Whether a directory is an OCI layout and not simply a root.
pub fn is_layout(dir: &Path) -> bool {
    store::is_layout(dir)
}

/// Reads an image, of a directory or an archive, that unpacks to `limit_bytes` at most.
pub fn read(place: &Place, limit_bytes: u64) -> Result<Image, ImageError> {
    let store = Store::open(&place.path)?;
    of_store(&store, place.name.as_deref(), limit_bytes)?
        .ok_or_else(|| ImageError::NotAnImage(place.path.clone()))
}

#[cfg(any(test, feature = "fuzz"))]
/// Reads an image from an open archive; `None` if it is something else.
pub(crate) fn read_archive(file: File, limit_bytes: u64) -> Result<Option<Image>, ImageError> {
    of_store(&Store::archive(file)?, None, limit_bytes)
}

fn of_store(
    store: &Store,
    name: Option<&str>,
    limit_bytes: u64,
) -> Result<Option<Image>, ImageError> {
    let Some(manifest) = manifest::read(store, name)? else {
        return Ok(None);
    };
    let settings = settings(&manifest)?;
    let mut tree = Tree::new();
    let mut spool = Spool::new(limit_bytes)?;
    for layer in &manifest.layers {
        if let Some(digest) = &layer.digest {
            store.check(digest)?;
        }
        let part = store.part(&layer.name)?;
        let read = layer::read(&layer.name, part, &mut spool)?;
        apply(read, &layer.name, &mut tree)?;
    }
    Ok(Some(Image { tree, settings }))
}

fn settings(manifest: &Manifest) -> Result<Settings, ImageError> {
    let config: Config = manifest::parse(&manifest.config_name, &manifest.config)?;
    let platform = (config.os.as_str(), config.architecture.as_str());
    if !matches!(platform, ("linux" | "", "amd64" | "")) {
        return Err(ImageError::Platform {
            found: format!("{}/{}", config.os, config.architecture),
        });
    }
    Ok(config.config.unwrap_or_default())
}

/// First what goes, which is of lower layers only, then what comes.
fn apply(layer: Layer, name: &str, tree: &mut Tree) -> Result<(), ImageError> {
    let place = |tree: &Tree, entry: &str| {
        tree.through_links(entry).map_err(|source| match source {
            NameError::Climbs(_) => ImageError::Climbs {
                layer: name.to_owned(),
                entry: entry.to_owned(),
            },
            source => ImageError::Name {
                layer: name.to_owned(),
                source,
            },
        })
    };
    for gone in &layer.removed {
        let gone = place(tree, gone)?;
        tree.remove(&gone);
    }
    for emptied in &layer.emptied {
        let emptied = match emptied.as_str() {
            "" => String::new(),
            emptied => place(tree, emptied)?,
        };
        tree.remove_below(&emptied);
    }
    for (entry, added) in layer.added {
        let node = match added {
            Added::Node(node) => node,
            Added::HardLink(target) => {
                let target = place(tree, &target)?;
                let node = tree.get(&target).cloned();
                node.ok_or(ImageError::Missing(format!("{target} in {name}")))?
            }
        };
        let entry = place(tree, &entry)?;
        tree.insert(&entry, node)
            .map_err(|source| ImageError::Name {
                layer: name.to_owned(),
                source,
            })?;
    }
    Ok(())
}
