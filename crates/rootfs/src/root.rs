//! The root of a Linux guest as a user names it (`--root`): a directory, or a container image, one
//! of several in its file behind a colon.

use std::path::{Path, PathBuf};

use tare_host::signal_number::SignalNumber;

use crate::oci::{self, Image, ImageError, ImageRef, Limits, Words};
use crate::walk::{Links, Listing, WalkError, walk};
use crate::{Task, Tree};

/// A root's files and how its command runs.
#[derive(Debug, Default)]
pub struct RootFiles {
    /// Its files.
    pub tree: Tree,
    /// The command, empty where neither the user nor an image names one, with an image's environment
    /// and user.
    pub task: Task,
    /// The signal that asks the command to end, if an image names one.
    pub stop_signal: Option<SignalNumber>,
    /// What was skipped, one sentence each.
    pub warnings: Vec<String>,
}

/// A root that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadRootError {
    /// A directory.
    #[error(transparent)]
    Directory(#[from] WalkError),
    /// A container image.
    #[error("cannot use the image {}", path.display())]
    Image {
        /// Its file or directory, without a name behind it.
        path: PathBuf,
        /// Why.
        source: ImageError,
    },
}

/// Whether a root is a container image, which has its own command.
pub fn is_image(from: &Path) -> bool {
    is_image_at(&ImageRef::of(from))
}

fn is_image_at(place: &ImageRef) -> bool {
    place.path.is_file() || oci::is_layout(&place.path)
}

/// Lists a root of at most `limit_bytes`. Without an entry point of the user's, an image's comes before the
/// user's arguments.
pub fn read(from: &Path, words: Words<'_>, limit_bytes: u64) -> Result<RootFiles, ReadRootError> {
    let place = ImageRef::of(from);
    if is_image_at(&place) {
        of_image(&place, words, limit_bytes)
    } else {
        of_directory(from, words, limit_bytes)
    }
}

fn of_directory(
    path: &Path,
    words: Words<'_>,
    limit_bytes: u64,
) -> Result<RootFiles, ReadRootError> {
    let Listing { tree, warnings, .. } = walk(path, Links::Kept, limit_bytes)?;
    let task = Task {
        command: words.command(),
        ..Task::default()
    };
    Ok(RootFiles {
        tree,
        task,
        stop_signal: None,
        warnings,
    })
}

fn of_image(
    place: &ImageRef,
    words: Words<'_>,
    limit_bytes: u64,
) -> Result<RootFiles, ReadRootError> {
    let image = oci::read(place, Limits::of_bytes(limit_bytes));
    let Image {
        tree,
        settings,
        warnings,
    } = image.map_err(|source| ReadRootError::Image {
        path: place.path.clone(),
        source,
    })?;
    let task = Task {
        command: settings.command(words),
        environment: settings.env,
        working_directory: settings.working_dir,
        user: settings.user,
        ..Task::default()
    };
    Ok(RootFiles {
        tree,
        task,
        stop_signal: settings.stop_signal,
        warnings,
    })
}
