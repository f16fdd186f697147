//! From words to an order: profiles read and merged, cuts, options, place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_profile::{MAX_BYTES, Profile, ProfileError, Way};
use tare_tailor::check::Check;
use tare_tailor::choose::Part;
use tare_tailor::cut::Cut;
use tare_tailor::kernel::Order;

use super::args::{Keep, TailorArgs};
use crate::failure::Explain;

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// No such file.
    #[error("cannot read the profile {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is none.
    #[error("cannot use the profile {}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ProfileError,
    },
}

impl Explain for ReadError {
    fn code(&self) -> ExitCode {
        ExitCode::ProfileUnusable
    }
}

/// All profiles as one.
pub(super) fn profile(paths: &[PathBuf]) -> Result<Profile, ReadError> {
    let mut all = Profile::empty();
    for path in paths {
        let read = |source| ReadError::File {
            path: path.clone(),
            source,
        };
        let length = fs::metadata(path).map_err(read)?.len();
        if length > MAX_BYTES as u64 {
            let error = ProfileError::TooLarge {
                bytes: usize::try_from(length).unwrap_or(usize::MAX),
                limit: MAX_BYTES,
            };
            return Err(unusable(path)(error));
        }
        let bytes = fs::read(path).map_err(read)?;
        all.merge(&Profile::read(&bytes).map_err(unusable(path))?);
    }
    Ok(all)
}

fn unusable(path: &Path) -> impl FnOnce(ProfileError) -> ReadError {
    let path = path.to_owned();
    move |source| ReadError::Profile { path, source }
}

/// The order that the words mean.
pub(super) fn order(profile: Profile, args: &TailorArgs) -> Order {
    let mut order = Order::new(profile, args.target.into());
    order
        .parts
        .extend(args.parts.iter().map(|part| Part::from(*part)));
    if args.check.as_ref().and_then(Check::port).is_some() {
        order.parts.insert(Part::Network);
    }
    if args.trusting {
        order.cuts.extend(Cut::trusting());
    }
    if order.parts.contains(&Part::SeveralCpus) {
        order.cuts.remove(&Cut::Smp);
    }
    order.cuts.extend(&args.cut);
    for keep in &args.keep {
        match keep {
            Keep::Cut(cut) => drop(order.cuts.remove(cut)),
            Keep::Option(symbol) => drop(order.keep.insert(symbol.clone())),
        }
    }
    for symbol in &args.add {
        let why = "added by the user".to_owned();
        order.add.insert(symbol.clone(), why);
    }
    order
}

/// Where the kernel is made.
pub(super) fn place(args: &TailorArgs, profile: &Profile) -> PathBuf {
    args.out
        .clone()
        .unwrap_or_else(|| Path::new("out").join(format!("kernel-{}", name(profile))))
}

/// The application's name: of its command, else of its profile's first task.
fn name(profile: &Profile) -> String {
    let command = profile
        .phases
        .iter()
        .find_map(|phase| match &phase.taken.way {
            Way::Command(words) => words.first().map(String::as_str),
            _ => None,
        });
    let task = || profile.tasks.first().map(|task| task.name.as_str());
    let name = command.or_else(task).unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
    match name.chars().filter(plain).take(40).collect::<String>() {
        name if name.is_empty() => "application".to_owned(),
        name => name,
    }
}
