//! An image: layers on each other, and what to run in them.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tare_confine::read_confined;
use tare_host::signal_number::SignalNumber;

use super::ImageError;
use super::digest::Digest;
use super::image_ref::ImageRef;
use super::layer::{self, Added, Layer, Unpacker};
use super::limits::{Budget, LimitError, Limits, MAX_LAYERS};
use super::manifest::{self, Manifest};
use super::store::{self, Source, Store};
use crate::cpio;
use crate::lookups::Lookups;
use crate::tree::{NameError, Node, Tree};

/// Where volumes are named, for errors.
const CONFIGURATION: &str = "the configuration";

/// A root and what to run in it.
#[derive(Debug)]
pub struct Image {
    /// Its files.
    pub tree: Tree,
    /// What it says about its command.
    pub settings: Settings,
    /// Files that the guest does not get, one sentence each.
    pub warnings: Vec<String>,
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
    /// The signal that asks it to end, if not SIGTERM.
    #[serde(deserialize_with = "signal")]
    pub stop_signal: Option<SignalNumber>,
    /// Directories for data, which exist even if no layer has them.
    #[serde(deserialize_with = "or_empty")]
    pub volumes: BTreeMap<String, Empty>,
}

/// What a user says of a root's command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'a> {
    /// What comes first; an empty one is none.
    pub entrypoint: Option<&'a str>,
    /// What comes after it.
    pub arguments: &'a [String],
}

impl<'a> From<&'a [String]> for Words<'a> {
    /// Without an entry point.
    fn from(arguments: &'a [String]) -> Self {
        Self {
            entrypoint: None,
            arguments,
        }
    }
}

impl Words<'_> {
    /// The command by these words alone.
    pub fn command(self) -> Vec<String> {
        let first = self.entrypoint.filter(|word| !word.is_empty());
        let first = first.map(str::to_owned).into_iter();
        first.chain(self.arguments.iter().cloned()).collect()
    }
}

/// A value without meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Empty {}

/// A field that is missing or null.
fn or_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// A signal by name or number; none where the field is missing, null or empty.
fn signal<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<SignalNumber>, D::Error> {
    let word: String = or_empty(from)?;
    let signal = (!word.is_empty()).then(|| word.parse());
    signal.transpose().map_err(serde::de::Error::custom)
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<Settings>,
    #[serde(default)]
    rootfs: Option<RootFs>,
}

/// What an image's layers unpack to, lowest first (OCI image specification, `rootfs`).
#[derive(Default, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

impl Settings {
    /// The whole command, with the user's arguments instead of `cmd`. A user's entry point replaces both,
    /// as with docker and podman.
    pub fn command(&self, user: Words<'_>) -> Vec<String> {
        if user.entrypoint.is_some() {
            return user.command();
        }
        let rest = match user.arguments {
            [] => &self.cmd,
            arguments => arguments,
        };
        self.entrypoint.iter().chain(rest).cloned().collect()
    }
}

/// Whether a directory is an OCI layout and not simply a root.
pub fn is_layout(dir: &Path) -> bool {
    store::is_layout(dir)
}

/// Reads an image, of a directory or an archive, within limits. It is opened here and read by a
/// thread that can open nothing else.
pub fn read(place: &ImageRef, limits: Limits) -> Result<Image, ImageError> {
    let image = OpenImage::open(place)?;
    let directory = image
        .directory()
        .map(|it| it.try_clone_to_owned())
        .transpose()
        .map_err(ImageError::Spool)?;
    let below = directory.as_ref().map(|directory| directory.as_fd());
    read_confined(below, || image.read(limits))?
}

/// An image that is open, with the temporary files that reading it takes. Nothing of what
/// its author wrote has been read.
#[derive(Debug)]
struct OpenImage {
    path: PathBuf,
    name: Option<String>,
    source: Source,
    /// For an archive that is compressed as a whole.
    plain: File,
    /// For the contents of its layers.
    contents: File,
}

impl OpenImage {
    /// Opens an image.
    fn open(place: &ImageRef) -> Result<Self, ImageError> {
        let temporary = || tempfile::tempfile().map_err(ImageError::Spool);
        Ok(Self {
            path: place.path.clone(),
            name: place.name.clone(),
            source: Source::open(&place.path)?,
            plain: temporary()?,
            contents: temporary()?,
        })
    }

    /// The directory of a layout, below which reading opens files; None: an archive, and
    /// reading opens nothing.
    fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.source.directory()
    }

    /// Reads it, within limits.
    fn read(self, limits: Limits) -> Result<Image, ImageError> {
        let store = Store::of(self.source, self.plain, limits)?;
        of_store(&store, self.name.as_deref(), limits, self.contents)?
            .ok_or(ImageError::NotAnImage(self.path))
    }
}

#[cfg(any(test, feature = "fuzz"))]
/// Reads an image from an open archive; `None` if it is something else.
pub(crate) fn read_archive(file: File, limits: Limits) -> Result<Option<Image>, ImageError> {
    let contents = tempfile::tempfile().map_err(ImageError::Spool)?;
    of_store(&Store::archive(file)?, None, limits, contents)
}

/// The files of an archive that is one layer and no image, for a thread that is confined.
pub(crate) fn read_layer(
    from: impl Read,
    name: &str,
    contents: File,
    limits: Limits,
) -> Result<Tree, ImageError> {
    let budget = Budget::new(limits);
    let mut unpacker = Unpacker::new(&budget, contents);
    let mut merged = Merged::new(&budget);
    let layer = unpacker.layer(name, from, None)?;
    merged.apply(layer, name)?;
    merged.into_tree()
}

fn of_store(
    store: &Store,
    name: Option<&str>,
    limits: Limits,
    contents: File,
) -> Result<Option<Image>, ImageError> {
    let Some(manifest) = manifest::read(store, name)? else {
        return Ok(None);
    };
    if manifest.layers.len() > MAX_LAYERS {
        return Err(LimitError::Layers.into());
    }
    let (settings, diff_ids) = settings(&manifest)?;
    let budget = Budget::new(limits);
    let mut unpacker = Unpacker::new(&budget, contents);
    let mut merged = Merged::new(&budget);
    let mut checked = HashSet::new();
    for (number, layer) in manifest.layers.iter().enumerate() {
        let unpacked = match (&layer.digest, diff_ids.get(number)) {
            (Some(digest), _) => {
                // A manifest can name a layer many times.
                if checked.insert(&layer.name) {
                    store.check(digest)?;
                }
                None
            }
            (None, id) => id.map(|id| Digest::parse(id)).transpose()?,
        };
        let part = store.part(&layer.name)?;
        let read = unpacker.layer(&layer.name, part, unpacked.as_ref())?;
        merged.apply(read, &layer.name)?;
    }
    merged.make_volumes(&settings)?;
    Ok(Some(Image {
        tree: merged.into_tree()?,
        settings,
        warnings: unpacker.left_out.into_warnings(),
    }))
}

/// The settings, and digests of what layers unpack to, where the image has them.
fn settings(manifest: &Manifest) -> Result<(Settings, Vec<String>), ImageError> {
    let config: Config = manifest::parse(&manifest.config_name, &manifest.config)?;
    let platform = (config.os.as_str(), config.architecture.as_str());
    if !matches!(platform, ("linux" | "", "amd64" | "")) {
        return Err(ImageError::Platform {
            found: format!("{}/{}", config.os, config.architecture),
        });
    }
    let diff_ids = config.rootfs.unwrap_or_default().diff_ids;
    Ok((
        config.config.unwrap_or_default(),
        diff_ids.unwrap_or_default(),
    ))
}

/// Layers on each other.
struct Merged<'a> {
    tree: Tree,
    budget: &'a Budget,
    lookups: Lookups,
}

impl<'a> Merged<'a> {
    fn new(budget: &'a Budget) -> Self {
        Self {
            tree: Tree::new(),
            budget,
            lookups: budget.lookups(),
        }
    }

    /// The tree, if it packs to no more than it may.
    fn into_tree(self) -> Result<Tree, ImageError> {
        let Self { tree, budget, .. } = self;
        budget.check_tree(tree.len() as u64, cpio::archive_bytes(&tree))?;
        Ok(tree)
    }

    /// First the removals, which concern lower layers only, then the additions.
    fn apply(&mut self, layer: Layer, name: &str) -> Result<(), ImageError> {
        for gone in &layer.removed {
            let gone = self.place(gone, name)?;
            self.tree.remove(&gone);
        }
        for emptied in &layer.emptied {
            let emptied = match emptied.as_str() {
                "" => String::new(),
                emptied => self.place(emptied, name)?,
            };
            self.tree.remove_below(&emptied);
        }
        for (entry, added) in layer.added {
            self.add(&entry, added, name)?;
        }
        Ok(())
    }

    fn add(&mut self, entry: &str, added: Added, layer: &str) -> Result<(), ImageError> {
        let entry = self.place(entry, layer)?;
        let failed = |source| refused(layer, source);
        self.lookups.charge_insert(&entry).map_err(failed)?;
        match added {
            Added::Node(node) => self.tree.insert(&entry, node),
            Added::HardLink(target) => {
                let target = self.place(&target, layer)?;
                self.tree.hard_link(&target, &entry)
            }
        }
        .map_err(failed)?;
        // Directories that a name implies count as well.
        let (entries, bytes) = (self.tree.len() as u64, self.tree.name_bytes());
        Ok(self.budget.check_tree(entries, bytes)?)
    }

    fn make_volumes(&mut self, settings: &Settings) -> Result<(), ImageError> {
        for volume in settings.volumes.keys() {
            self.budget.take_entry()?;
            let name = layer::relative_name(volume, CONFIGURATION)?;
            let Some(name) = name else { continue };
            let place = self.place(&name, CONFIGURATION)?;
            if self.tree.get(&place).is_none() {
                self.add(&name, Added::Node(Node::directory()), CONFIGURATION)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, entry: &str, layer: &str) -> Result<String, ImageError> {
        let place = self.tree.resolve(entry, &mut self.lookups);
        place.map_err(|source| match source {
            NameError::Climbs(_) => ImageError::Climbs {
                layer: layer.to_owned(),
                entry: entry.to_owned(),
            },
            source => refused(layer, source),
        })
    }
}

fn refused(layer: &str, source: NameError) -> ImageError {
    match source {
        NameError::TooManySteps => LimitError::Lookups.into(),
        source => ImageError::Name {
            layer: layer.to_owned(),
            source,
        },
    }
}
