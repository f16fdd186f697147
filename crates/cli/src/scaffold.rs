//! `tare new` and `tare build`, and how `tare run` treats a crate's directory.

use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_host::printable::printable;
use tare_host::shell;
use tare_launch::net_choice::NetChoice;
use tare_launch::publish::{Publish, PublishError};
use tare_scaffold::{Appliance, BuildError, CreateError, ManifestError, Sources, SourcesError};

use crate::args::{BuildArgs, NewArgs, RunArgs};
use crate::failure::{CommandResult, Explain, Failure};
use crate::output::print;

/// There is nothing to run.
#[derive(Debug, thiserror::Error)]
#[error("no IMAGE given, and the current directory is not an appliance's crate")]
struct NoImage;

/// An invalid port forward in the crate's settings.
#[derive(Debug, thiserror::Error)]
#[error("{}: publish of [package.metadata.tare]", .0.display())]
struct BadPublish(PathBuf, #[source] PublishError);

impl Explain for NoImage {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn hint(&self) -> Option<String> {
        Some("see tare run --help, or make a crate with `tare new NAME`".to_owned())
    }
}

impl Explain for BadPublish {
    fn code(&self) -> ExitCode {
        ExitCode::CrateUnusable
    }
}

impl Explain for SourcesError {
    fn code(&self) -> ExitCode {
        ExitCode::CrateUnusable
    }

    fn hint(&self) -> Option<String> {
        let give = "give them as --tare DIR, or a git repository's URL";
        matches!(self, Self::NotFound | Self::Other(_)).then(|| give.to_owned())
    }
}

impl Explain for CreateError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Write(..) => ExitCode::Output,
            Self::Name(_) | Self::NoName(_) | Self::Exists(_) | Self::NoParent(_) => {
                ExitCode::CrateUnusable
            }
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::NoParent(_)).then(|| "make it first".to_owned())
    }
}

impl Explain for ManifestError {
    fn code(&self) -> ExitCode {
        ExitCode::CrateUnusable
    }

    fn hint(&self) -> Option<String> {
        let make = "make one with `tare new NAME`";
        matches!(self, Self::NoCrate(_) | Self::Other(_)).then(|| make.to_owned())
    }
}

impl Explain for BuildError {
    fn code(&self) -> ExitCode {
        ExitCode::ImageBuild
    }

    fn hint(&self) -> Option<String> {
        self.hint().map(str::to_owned)
    }
}

/// `tare new`: creates a crate and prints the next steps.
pub(crate) fn new(args: &NewArgs) -> CommandResult {
    let sources = Sources::find(args.tare.as_deref())?;
    let name = tare_scaffold::create(&args.path, &sources)?;
    let path = args.path.to_string_lossy();
    let directory = printable(&shell::quoted(&path)).into_owned();
    print(&format!(
        "{name} is an appliance that says hello over HTTP. Next:\n  \
         cd {directory}\n  \
         tare run       # build and boot it; then, elsewhere: curl localhost:8080\n  \
         cargo t        # run its tests on this host\n"
    ))
}

/// `tare build`: builds the image and prints its path.
pub(crate) fn build(args: &BuildArgs) -> CommandResult {
    let image = Appliance::open(&args.directory)?.build()?;
    let path = image.path.to_string_lossy();
    print(&format!("{}: {} bytes\n", printable(&path), image.bytes))
}

/// Adds the image of a crate to the arguments: the crate in the current directory if they name
/// nothing to run, or in the directory that they name.
pub(crate) fn with_image(mut args: RunArgs) -> Result<RunArgs, Failure> {
    let Some(appliance) = appliance(&args)? else {
        return Ok(args);
    };
    if args.publish.is_empty() && matches!(args.net, NetChoice::User(_)) {
        args.publish = forwards(&appliance)?;
    }
    args.image = Some(appliance.build()?.path);
    Ok(args)
}

fn appliance(args: &RunArgs) -> Result<Option<Appliance>, Failure> {
    match &args.image {
        Some(image) if is_directory(image) => match Appliance::open(image) {
            // Reported like any other file that is not an image.
            Err(ManifestError::NoCrate(_)) => Ok(None),
            opened => Ok(Some(opened?)),
        },
        Some(_) => Ok(None),
        None if args.kernel.is_some() || args.root.is_some() => Ok(None),
        None => match Appliance::open(Path::new(".")) {
            Err(ManifestError::NoCrate(_) | ManifestError::Other(_)) => Err(NoImage.into()),
            opened => Ok(Some(opened?)),
        },
    }
}

/// Whether IMAGE is a directory and not an image that came with Tare.
fn is_directory(image: &Path) -> bool {
    let is_known = |name| tare_launch::image::known().iter().any(|it| it == name);
    image.is_dir() && !image.to_str().is_some_and(is_known)
}

fn forwards(appliance: &Appliance) -> Result<Vec<Publish>, BadPublish> {
    let ports = appliance.publish().iter();
    let forwards: Result<_, _> = ports.map(|port| port.parse()).collect();
    forwards.map_err(|error| BadPublish(appliance.directory().join("Cargo.toml"), error))
}
