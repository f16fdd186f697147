//! Container images as roots: an OCI layout (a directory or its archive, as
//! `skopeo copy ... oci-archive:` writes it) or what `docker save` writes.
//!
//! ```text
//! store    blobs by name: files of a directory, parts of an archive
//! manifest from index.json or manifest.json to configuration and layers
//! place    where an image lies; choice: which one of several
//! layer    a layer's entries and whiteouts, unpacked within bounds
//! zstd     layers compressed by zstd
//! image    layers on each other: a tree, and what to run in it
//! ```
//!
//! Images are hostile: digests are checked, names that climb out of the root are
//! refused, what is unpacked is bounded. Extended attributes are left out.
//! References: OCI image specification 1.1 (`layer.md`, `config.md`); moby
//! `image/spec`.

mod choice;
mod image;
mod layer;
mod manifest;
mod place;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod zstd;

use std::io;
use std::path::PathBuf;

use crate::tree::NameError;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use image::read_archive;
pub use image::{Image, Settings, is_layout, read};
pub use place::Place;

/// An image that cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The archive or directory cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "{} is no container image: it has neither index.json (OCI) nor manifest.json (docker save)",
        .0.display()
    )]
    NotAnImage(PathBuf),
    /// A part that others name is not there.
    #[error("the image is damaged: it has no {0}")]
    Missing(String),
    /// A part cannot be read to its end.
    #[error("the image is damaged: {part} cannot be read")]
    Damaged {
        /// The part.
        part: String,
        /// Why.
        source: io::Error,
    },
    /// A part is not what its digest says.
    #[error("the image is damaged: {0} is not what its digest says")]
    Digest(String),
    /// A document that is not understood.
    #[error("the image is damaged: {part} is not understood")]
    Document {
        /// The part.
        part: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A digest that is none, or not by SHA-256.
    #[error("the image names {0:?}, which is no SHA-256 digest")]
    BadDigest(String),
    /// More than one image, and none was chosen.
    #[error("there are several images: {}", known.join(", "))]
    Several {
        /// What they are called.
        known: Vec<String>,
    },
    /// No image is called so.
    #[error("no image is called {name}; there {} {}", are(known), known.join(", "))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Documents that name each other without end.
    #[error("the image's index is nested too deeply")]
    Nested,
    /// For another machine.
    #[error("the image is for {found}, not for linux/amd64")]
    Platform {
        /// What it is for.
        found: String,
    },
    /// A name that leads out of the root.
    #[error("{entry:?} in the layer {layer} climbs out of the root")]
    Climbs {
        /// The layer.
        layer: String,
        /// The entry's name or target.
        entry: String,
    },
    /// A name that no file can have.
    #[error("the layer {layer} is damaged")]
    Name {
        /// The layer.
        layer: String,
        /// Why.
        source: NameError,
    },
    /// More than there is room for.
    #[error("the image unpacks to more than the {} MiB that there is room for", limit_bytes >> 20)]
    TooLarge {
        /// Most bytes.
        limit_bytes: u64,
    },
    /// No place to unpack to.
    #[error("cannot unpack the image into a temporary file")]
    Spool(#[source] io::Error),
}

fn are(known: &[String]) -> &'static str {
    match known.len() {
        1 => "is",
        _ => "are",
    }
}
