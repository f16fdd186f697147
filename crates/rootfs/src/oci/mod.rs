//! Container images as roots: an OCI layout (a directory or its archive, as
//! `skopeo copy ... oci-archive:` writes it) or what `docker save` writes.
//!
//! ```text
//! store    blobs by name: files of a directory, parts of an archive
//! manifest from index.json or manifest.json to configuration and layers
//! place    where an image lies; choice: which one of several
//! digest   the checksum of a part
//! limits   what unpacking may cost
//! layer    a layer's entries and whiteouts, unpacked within the limits
//! zstd     layers compressed by zstd
//! image    layers on each other: a tree, and what to run in it
//! ```
//!
//! Images are hostile: digests are checked, names that climb out of the root are
//! refused, and bytes, entries, headers and look-ups are limited. Devices and extended
//! attributes besides capabilities are left out, with a warning.
//! References: OCI image specification 1.1 (`layer.md`, `config.md`); moby
//! `image/spec`.

#[cfg(test)]
mod bombs;
mod choice;
pub(crate) mod digest;
mod image;
mod image_ref;
mod layer;
mod limits;
mod manifest;
mod sparse;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod zstd;

use std::io;
use std::path::PathBuf;

use tare_confine::ConfineError;

use crate::quote::{escaped, quoted};
use crate::tree::NameError;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use image::read_archive;
pub(crate) use image::read_layer;
pub use image::{Image, Settings, Words, is_layout, read};
pub use image_ref::ImageRef;
pub use limits::{LimitError, Limits};

/// Why an image cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The archive or directory cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "{} is not a container image: it has neither index.json (OCI) nor manifest.json (docker save)",
        .0.display()
    )]
    NotAnImage(PathBuf),
    /// A part that is referred to does not exist.
    #[error("damaged: {} is missing", escaped(.0))]
    Missing(String),
    /// A part cannot be read to its end.
    #[error("damaged: cannot read {}", escaped(part))]
    Damaged {
        /// The part.
        part: String,
        /// Why.
        source: DamageError,
    },
    /// A part does not match its digest.
    #[error("damaged: {} does not match its digest", escaped(.0))]
    Digest(String),
    /// A document that is not valid.
    #[error("damaged: {} is not a valid document", escaped(part))]
    Document {
        /// The part.
        part: String,
        /// Why.
        source: DamageError,
    },
    /// A digest that is invalid or of an unknown algorithm.
    #[error("unsupported digest {} (supported: sha256, sha512)", quoted(.0))]
    BadDigest(String),
    /// More than one image, and none was chosen.
    #[error("there are several images: {}", list(known))]
    Several {
        /// Their names.
        known: Vec<String>,
    },
    /// No image has this name.
    #[error(
        "there is no image named {}; available: {}",
        escaped(name),
        list(known)
    )]
    Unknown {
        /// The name that was requested.
        name: String,
        /// The images' names.
        known: Vec<String>,
    },
    /// Documents that refer to each other without end.
    #[error(
        "the image's index is nested too deeply (limit: {} levels)",
        limits::MAX_NESTING
    )]
    Nested,
    /// For another machine.
    #[error("the image is for {}, not for linux/amd64", escaped(found))]
    Platform {
        /// What it is for.
        found: String,
    },
    /// A name that leads out of the root.
    #[error(
        "{} of {} leads out of the root directory",
        quoted(entry),
        escaped(layer)
    )]
    Climbs {
        /// The layer.
        layer: String,
        /// The entry's name or target.
        entry: String,
    },
    /// A name that no file can have.
    #[error("damaged: invalid entry in {}", escaped(layer))]
    Name {
        /// The layer.
        layer: String,
        /// Why.
        source: NameError,
    },
    /// It exceeds a limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The temporary file cannot be written.
    #[error("cannot unpack into a temporary file")]
    Spool(#[source] io::Error),
    /// The thread that reads it cannot be confined.
    #[error("cannot confine the thread that unpacks")]
    Confine(#[from] ConfineError),
}

/// What a reader of foreign bytes says, which may quote them.
#[derive(Debug, thiserror::Error)]
#[error("{}", escaped(.0))]
pub struct DamageError(String);

impl From<io::Error> for DamageError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<serde_json::Error> for DamageError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

fn list(names: &[String]) -> String {
    escaped(&names.join(", "))
}
