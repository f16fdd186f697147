//! Directories of the host that a Linux guest shares while it runs: `--volume HOST:GUEST[:ro]`, as
//! podman and docker write them.
//!
//! What is checked here changes nothing; `virtiofsd` serves them
//! ([ADR 66](../../../docs/adr/0066-directories-shared-with-linux-guests.md)).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{Mode, OFlags, open};
use tare_control::config::GuestKind;
use tare_control::exit::ExitCode;
use tare_daemon::jail::SharedAccess;
use tare_init::Share;
use tare_rootfs::tree::EntryKind;
use tare_rootfs::{Task, Tree};

use crate::failure::Explain;
use crate::virtiofsd::{self, Program};

/// Most directories of a machine: each takes a process and a slot of the bus.
const MOST: usize = 8;
/// The guest's file system, and its module if it is one.
pub(crate) const FILE_SYSTEM: &str = "virtiofs";
/// Directories of the guest that hold its kernel's files and ours.
const KEPT: &[&str] = &["/proc", "/sys", "/dev", "/.tare"];

/// `--volume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The directory of the host.
    pub host: PathBuf,
    /// Its place in the guest: absolute, without `.`, `..` and a `/` at the end.
    pub guest: String,
    /// What the guest may do.
    pub access: SharedAccess,
}

/// A volume that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVolume {
    /// Wrong parts.
    #[error("use HOST:GUEST or HOST:GUEST:ro, such as ./data:/data")]
    Form,
    /// No directory of the host.
    #[error("the part before the first colon is empty: write the host's directory")]
    NoHost,
    /// Options of other tools, or none.
    #[error("unknown option {0:?} (use ro or rw)")]
    Option(String),
    /// A relative place.
    #[error("the guest's directory {0:?} must begin with /")]
    Relative(String),
    /// A place that leads elsewhere.
    #[error("the guest's directory {0:?} must not contain ..")]
    Climbs(String),
    /// Where the guest cannot do without what is there.
    #[error("the guest's directory cannot be {0}: the guest needs what is there")]
    Kept(String),
}

impl FromStr for Volume {
    type Err = BadVolume;

    fn from_str(text: &str) -> Result<Self, BadVolume> {
        let mut parts = text.split(':');
        let (Some(host), Some(guest)) = (parts.next(), parts.next()) else {
            return Err(BadVolume::Form);
        };
        let access = match (parts.next(), parts.next()) {
            (None | Some("rw"), None) => SharedAccess::Change,
            (Some("ro"), None) => SharedAccess::Read,
            (Some(other), None) => return Err(BadVolume::Option(other.to_owned())),
            _ => return Err(BadVolume::Form),
        };
        if host.is_empty() {
            return Err(BadVolume::NoHost);
        }
        Ok(Self {
            host: host.into(),
            guest: place(guest)?,
            access,
        })
    }
}

/// The guest's directory without what does not change it.
fn place(guest: &str) -> Result<String, BadVolume> {
    if !guest.starts_with('/') {
        return Err(BadVolume::Relative(guest.to_owned()));
    }
    let mut place = String::new();
    for component in Path::new(guest).components() {
        match component {
            Component::Normal(name) => {
                place.push('/');
                place.push_str(&name.to_string_lossy());
            }
            Component::ParentDir => return Err(BadVolume::Climbs(guest.to_owned())),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let is_in = |kept: &&&str| Path::new(&place).starts_with(kept);
    if place.is_empty() {
        return Err(BadVolume::Kept("/".to_owned()));
    }
    match KEPT.iter().find(is_in) {
        Some(_) => Err(BadVolume::Kept(place)),
        None => Ok(place),
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host.display(), self.guest)
    }
}

/// Volumes that cannot be shared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// The machine's first process is not ours, which mounts it.
    #[error("--volume needs a Linux guest and its files: tare run --kernel debian --root DIR")]
    NoLinux,
    /// No directory.
    #[error("cannot share {}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two at one place.
    #[error("--volume: two directories at {0} in the guest")]
    Twice(String),
    /// Too many.
    #[error("{0} directories to share (at most {MOST})")]
    TooMany(usize),
    /// A file of the root is there.
    #[error("--volume {volume}: {file} in the root is a file, not a directory")]
    File {
        /// The volume.
        volume: Volume,
        /// The file.
        file: String,
    },
    /// The server.
    #[error("virtiofsd is not installed")]
    NoServer,
}

impl Explain for VolumeError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoLinux | Self::Twice(_) | Self::TooMany(_) => ExitCode::Usage,
            Self::Open { .. } | Self::File { .. } => ExitCode::VolumeUnusable,
            Self::NoServer => ExitCode::Virtiofsd,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoServer => {
                Some("install it (Debian 12: qemu-system-common, later: virtiofsd)".to_owned())
            }
            _ => None,
        }
    }
}

/// The program that serves directories, if it is installed.
pub fn server() -> Option<PathBuf> {
    virtiofsd::find().map(Program::into_path)
}

/// A directory that is open, and who serves it.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    /// Its name for the guest's kernel.
    pub(crate) tag: String,
    /// The directory.
    pub(crate) directory: OwnedFd,
    /// What the guest may do.
    pub(crate) access: SharedAccess,
    /// The server.
    pub(crate) program: Program,
}

/// Whether a machine can have these volumes; before anything is read.
pub(crate) fn check(
    volumes: &[Volume],
    guest: GuestKind,
    has_root: bool,
) -> Result<(), VolumeError> {
    if volumes.is_empty() {
        return Ok(());
    }
    if guest != GuestKind::Linux || !has_root {
        return Err(VolumeError::NoLinux);
    }
    if volumes.len() > MOST {
        return Err(VolumeError::TooMany(volumes.len()));
    }
    let mut places: Vec<&str> = volumes.iter().map(|it| it.guest.as_str()).collect();
    places.sort_unstable();
    match places.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(VolumeError::Twice(two[0].to_owned())),
        None => Ok(()),
    }
}

/// Opens the directories.
pub(crate) fn open_all(volumes: &[Volume]) -> Result<Vec<OpenVolume>, VolumeError> {
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let program = virtiofsd::find().ok_or(VolumeError::NoServer)?;
    let one = |(number, volume): (usize, &Volume)| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(&volume.host, flags, Mode::empty());
        Ok(OpenVolume {
            tag: tag(number),
            directory: directory.map_err(|errno| VolumeError::Open {
                path: volume.host.clone(),
                source: errno.into(),
            })?,
            access: volume.access,
            program: program.clone(),
        })
    };
    volumes.iter().enumerate().map(one).collect()
}

fn tag(number: usize) -> String {
    format!("tare{number}")
}

/// Tells the first process to mount them, those above others first.
pub(crate) fn add(task: &mut Task, tree: &Tree, volumes: &[Volume]) -> Result<(), VolumeError> {
    for volume in volumes {
        check_place(tree, volume)?;
    }
    let share = |(number, volume): (usize, &Volume)| Share {
        tag: tag(number),
        path: volume.guest.clone(),
        is_read_only: volume.access == SharedAccess::Read,
    };
    task.shares = volumes.iter().enumerate().map(share).collect();
    task.shares.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

/// Links are the guest's to follow.
fn check_place(tree: &Tree, volume: &Volume) -> Result<(), VolumeError> {
    let ancestors = Path::new(&volume.guest).ancestors();
    let names = ancestors.filter_map(|it| it.strip_prefix("/").ok()?.to_str());
    for name in names.filter(|name| !name.is_empty()) {
        let kind = tree.get(name).map(|node| &node.kind);
        match kind {
            None | Some(EntryKind::Directory | EntryKind::Link(_)) => {}
            Some(_) => {
                return Err(VolumeError::File {
                    volume: volume.clone(),
                    file: format!("/{name}"),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tare_rootfs::tree::Node;

    use super::*;

    fn volume(text: &str) -> Result<Volume, BadVolume> {
        text.parse()
    }

    #[test]
    fn volumes_are_written_as_for_podman() {
        let data = volume("./a b:/srv//data/./x/").unwrap();
        assert_eq!(data.host, Path::new("./a b"));
        assert_eq!(
            (&*data.guest, data.access),
            ("/srv/data/x", SharedAccess::Change)
        );
        assert_eq!(volume("d:/d:rw").unwrap().access, SharedAccess::Change);
        assert_eq!(volume("d:/d:ro").unwrap().access, SharedAccess::Read);
        for (text, error) in [
            ("", BadVolume::Form),
            ("/data", BadVolume::Form),
            ("a:/b:ro:rw", BadVolume::Form),
            (":/data", BadVolume::NoHost),
            ("a:/data:z", BadVolume::Option("z".to_owned())),
            ("a:/data:", BadVolume::Option(String::new())),
            ("a:", BadVolume::Relative(String::new())),
            ("a:data", BadVolume::Relative("data".to_owned())),
            ("a:/x/../y", BadVolume::Climbs("/x/../y".to_owned())),
            ("a:/", BadVolume::Kept("/".to_owned())),
            ("a://./", BadVolume::Kept("/".to_owned())),
            ("a:/proc", BadVolume::Kept("/proc".to_owned())),
            ("a:/dev/x", BadVolume::Kept("/dev/x".to_owned())),
            ("a:/.tare/x", BadVolume::Kept("/.tare/x".to_owned())),
        ] {
            assert_eq!(volume(text), Err(error), "{text}");
        }
        assert!(volume("a:/device").is_ok());
    }

    #[test]
    fn a_guest_mounts_outer_directories_first_and_none_over_a_file() {
        let volumes = ["a:/d/x/y", "b:/d:ro", "c:/link/x"].map(|text| text.parse().unwrap());
        let mut tree = Tree::new();
        tree.insert("d", Node::directory()).unwrap();
        tree.insert("link", Node::link("d")).unwrap();
        let mut task = Task::default();
        add(&mut task, &tree, &volumes).unwrap();
        let mounted: Vec<_> = task
            .shares
            .iter()
            .map(|it| (&*it.tag, &*it.path, it.is_read_only))
            .collect();
        assert_eq!(
            mounted,
            [
                ("tare1", "/d", true),
                ("tare0", "/d/x/y", false),
                ("tare2", "/link/x", false)
            ]
        );
        tree.insert("d/x", Node::bytes(*b"x", 0o644)).unwrap();
        let error = add(&mut task, &tree, &volumes).unwrap_err();
        assert!(
            error.to_string().contains("/d/x in the root is a file"),
            "{error}"
        );
    }

    #[test]
    fn volumes_that_a_machine_cannot_have_are_refused() {
        let two = ["a:/d", "b:/d"].map(|text| text.parse().unwrap());
        let linux = |volumes: &[Volume]| check(volumes, GuestKind::Linux, true);
        assert!(matches!(linux(&two), Err(VolumeError::Twice(place)) if place == "/d"));
        assert!(linux(&two[..1]).is_ok());
        assert!(check(&[], GuestKind::Program, false).is_ok());
        for (guest, has_root) in [
            (GuestKind::Linux, false),
            (GuestKind::Program, true),
            (GuestKind::LibraryOs, true),
        ] {
            let refused = check(&two[..1], guest, has_root);
            assert!(matches!(refused, Err(VolumeError::NoLinux)));
        }
        let many: Vec<Volume> = (0..=MOST)
            .map(|it| format!("a:/{it}").parse().unwrap())
            .collect();
        assert!(matches!(linux(&many), Err(VolumeError::TooMany(9))));
    }
}
