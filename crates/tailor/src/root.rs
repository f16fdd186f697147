//! The application's files: of a directory or an image, or of this computer as
//! the profile saw them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tare_profile::{Asked, Profile};
use tare_rootfs::root::{ReadRootError, is_image, read};
use tare_rootfs::tree::{EntryKind, Node};
use tare_rootfs::{Task, Tree, host, is_public_directory, is_seen_by_all};

use crate::check::Check;
use crate::cut::Cut;

mod found;
mod host_files;
#[cfg(test)]
mod tests;

pub use host_files::HostFilesError;
use host_files::{HostFiles, is_kernels};

/// Most bytes of an application's files.
const LIMIT_BYTES: u64 = 512 << 20;
/// Most files and directories named in a note.
const MOST_NAMED: usize = 12;
/// Directories of programs: those that the profile saw are named by its tasks.
const PROGRAMS: &[&str] = &["bin", "sbin", "usr/bin", "usr/sbin"];
/// Directories that a profile of this computer names and whose content is not
/// the application's: programs and libraries come by themselves.
const OTHERS: &[&str] = &[
    "/",
    "/bin",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/root",
    "/sbin",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/sbin",
    "/var",
];
/// Directories that programs write to: they are there, and empty.
const WRITTEN: &[&str] = &[
    "/var/log",
    "/var/cache",
    "/var/lib",
    "/var/tmp",
    "/run",
    "/tmp",
];
/// Files of `/etc` that any program may read.
const ETC: &[&str] = &[
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "protocols",
    "services",
];
/// File systems whose files are the kernel's.
const KERNELS: &[&str] = &[
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "mqueue",
    "securityfs",
    "bpf",
];

/// Where an application's files are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RootFrom {
    /// On this computer: those that the profile saw.
    #[default]
    Profile,
    /// In a directory, or a container image, as `tare run --root` has it.
    Path(PathBuf),
}

/// Who chose a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    /// The user, who may read what is named.
    User,
    /// The profile's author, who is not trusted.
    Profile,
}

impl RootFrom {
    /// Whether it is a container image, which has its own command.
    pub fn is_image(&self) -> bool {
        matches!(self, Self::Path(path) if is_image(path))
    }
}

/// An application, to be run in a guest.
#[derive(Clone, Debug)]
pub struct Application {
    /// Its files.
    pub tree: Tree,
    /// Its command, environment, user.
    pub task: Task,
    /// What was left out, one sentence each.
    pub notes: Vec<String>,
}

/// An application whose files cannot be gathered.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// Neither the profile nor the user names a command.
    #[error(
        "neither the profile nor the root names a command: profile a command (tare profile -- CMD), or give one after --"
    )]
    NoCommand,
    /// The check is a command that is not among the files.
    #[error("the root has no program {0}, which the check starts: add it, or name another --check")]
    NoCheck(String),
    /// The profile's command is a file that its author may not be able to read.
    #[error("{}, the profile's command, is not readable by all users: to use it, name it after --", .0.display())]
    NotPublic(PathBuf),
    /// A program or file of this computer, or all of them.
    #[error(transparent)]
    Host(#[from] HostFilesError),
    /// The directory or the image.
    #[error(transparent)]
    Root(#[from] ReadRootError),
}

/// Gathers an application's files, and the program of a check that is a command.
/// `command` stands before the profile's; to an image it is what it is to `tare run`.
pub fn gather(
    from: &RootFrom,
    profile: &Profile,
    command: &[String],
    check: &Check,
    cuts: &BTreeSet<Cut>,
) -> Result<Application, RootError> {
    let check = match check {
        Check::Command(words) => words.first().map(String::as_str),
        _ => None,
    };
    let profiled = profile.command().unwrap_or_default().to_vec();
    let mut application = match from {
        RootFrom::Profile if command.is_empty() => {
            return of_profile(profile, profiled, Author::Profile, check);
        }
        RootFrom::Profile => {
            return of_profile(profile, command.to_vec(), Author::User, check);
        }
        RootFrom::Path(path) => of_root(path, command, profiled)?,
    };
    if application.task.command.is_empty() {
        return Err(RootError::NoCommand);
    }
    let check = check
        .map(|program| place_of(&application, program))
        .transpose()?;
    if cuts.contains(&Cut::Packages) {
        cut_packages(&mut application, profile, check);
    }
    Ok(application)
}

fn of_root(
    path: &Path,
    command: &[String],
    profiled: Vec<String>,
) -> Result<Application, RootError> {
    let mut files = read(path, command.into(), LIMIT_BYTES)?;
    if files.task.command.is_empty() {
        // The user names none, and an image neither.
        files.task.command = profiled;
    }
    Ok(Application {
        tree: files.tree,
        task: files.task,
        notes: files.warnings,
    })
}

fn task(command: Vec<String>) -> Task {
    Task {
        command,
        ..Task::default()
    }
}

/// The place that a path leads to by all of its links, the last one included.
fn to_the_end(tree: &Tree, path: &str) -> Option<String> {
    tree.through_all_links(path.trim_start_matches('/')).ok()
}

/// Where the guest finds a program in its files.
fn place_of(application: &Application, program: &str) -> Result<String, RootError> {
    let Application { tree, task, .. } = application;
    let places = task.places_of(program);
    let mut places = places.iter().filter_map(|it| to_the_end(tree, it));
    let found = places.find(|place| tree.get(place).is_some());
    found.ok_or_else(|| RootError::NoCheck(program.to_owned()))
}

fn of_profile(
    profile: &Profile,
    mut command: Vec<String>,
    author: Author,
    check: Option<&str>,
) -> Result<Application, RootError> {
    let Some(program) = command.first_mut() else {
        return Err(RootError::NoCommand);
    };
    let mut files = HostFiles::new(LIMIT_BYTES);
    let path = match author {
        Author::User => files.program(program)?,
        Author::Profile => {
            let path = host::find(program).map_err(HostFilesError::from)?;
            if !files.public_program(&path)? {
                return Err(RootError::NotPublic(path));
            }
            path
        }
    };
    *program = path.to_string_lossy().into_owned();
    if let Some(program) = check {
        files.program(program)?;
    }
    for program in programs(profile) {
        if !Path::new(program).is_file() {
            continue;
        }
        files.public_program(Path::new(program))?;
    }
    for name in ETC {
        let path = Path::new("/etc").join(name);
        if path.is_file() {
            files.file(&path)?;
        }
    }
    for dir in directories(profile) {
        add_directory(&mut files, Path::new(dir))?;
    }
    let missing = found::add(&mut files, profile)?;
    let mut notes = notes(&files.tree, &files.refused);
    notes.extend(found::note(&missing));
    Ok(Application {
        tree: files.tree,
        task: task(command),
        notes,
    })
}

/// What the guest gets of this computer, by directory, and what it does not get.
fn notes(tree: &Tree, refused: &BTreeSet<String>) -> Vec<String> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, node) in tree.entries() {
        if matches!(node.kind, EntryKind::File(_)) {
            let (dir, _) = name.rsplit_once('/').unwrap_or(("", name));
            *counts.entry(dir).or_default() += 1;
        }
    }
    let dirs: Vec<String> = counts
        .iter()
        .map(|(dir, files)| format!("/{dir} ({files})"))
        .collect();
    let files: u32 = counts.values().sum();
    let given = format!(
        "{files} files of this computer go into the guest: {}",
        short(&dirs)
    );
    let withheld = (!refused.is_empty()).then(|| {
        let refused: Vec<String> = refused.iter().cloned().collect();
        format!(
            "{} files that the profile names are left out, for not every user may read them: {}; \
             give them with --root if they belong to the application",
            refused.len(),
            short(&refused)
        )
    });
    [given].into_iter().chain(withheld).collect()
}

/// The first of these, and how many more there are.
fn short(names: &[String]) -> String {
    let named: String = names[..names.len().min(MOST_NAMED)]
        .join(", ")
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    match names.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Programs of the tasks.
fn programs(profile: &Profile) -> BTreeSet<&str> {
    let tasks = profile.tasks.iter().map(|task| task.program.as_str());
    tasks.filter(|program| program.starts_with('/')).collect()
}

/// Directories of files that were opened and do not belong to the kernel.
fn directories(profile: &Profile) -> BTreeSet<&str> {
    let files = profile.features.files.iter();
    files
        .filter(|file| !KERNELS.contains(&file.file_system.as_str()))
        .map(|file| file.path.as_str())
        .filter(|path| path.starts_with('/') && !path.starts_with("/dev/"))
        .collect()
}

/// The files in a directory of this computer, not what is below it; libraries
/// with what they need.
fn add_directory(files: &mut HostFiles, dir: &Path) -> Result<(), HostFilesError> {
    let is = |all: &[&str]| all.iter().any(|one| Path::new(one) == dir);
    if is(OTHERS) || !dir.is_dir() || is_kernels(dir) {
        return Ok(());
    }
    if !is_seen_by_all(dir) {
        files.refuse(dir);
        return Ok(());
    }
    files.insert(dir, Node::directory())?;
    if WRITTEN.iter().any(|written| dir.starts_with(written)) && !holds_data(dir) {
        return Ok(());
    }
    if !is_public_directory(dir) {
        files.refuse(dir);
        return Ok(());
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if !path.is_file() {
            continue;
        }
        if is_library(&path) {
            files.public_plugin(&path)?;
        } else {
            files.public(&path)?;
        }
    }
    Ok(())
}

/// What programs write is left out, what lies below `/tmp` was put there.
fn holds_data(dir: &Path) -> bool {
    dir.starts_with("/tmp") && dir != Path::new("/tmp")
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.ends_with(".so") || name.contains(".so."))
}

/// Takes files away that the profile did not see: programs that no task ran,
/// and what lies in directories of which nothing was opened.
fn cut_packages(application: &mut Application, profile: &Profile, check: Option<String>) {
    let tree = &application.tree;
    let through = |path: &str| to_the_end(tree, path);
    let command = application.task.command.first();
    let programs: BTreeSet<String> = programs(profile)
        .into_iter()
        .filter_map(through)
        .chain(command.and_then(|program| place_of(application, program).ok()))
        .chain(check)
        .collect();
    let found: BTreeSet<String> = profile
        .paths
        .keys()
        .filter_map(|path| through(path))
        .collect();
    let listed: BTreeSet<String> = profile
        .paths
        .iter()
        .filter(|(_, asked)| asked.contains(&Asked::List))
        .filter_map(|(path, _)| through(path))
        .collect();
    let dirs: BTreeSet<String> = directories(profile)
        .into_iter()
        .filter_map(through)
        .collect();
    if !programs.iter().any(|program| tree.get(program).is_some()) || dirs.is_empty() {
        let why = "the profile names none of the root's programs: all of its files are kept";
        application.notes.push(why.to_owned());
        return;
    }
    let unseen: Vec<(String, u64)> = tree
        .entries()
        .filter_map(|(name, node)| {
            let EntryKind::File(content) = &node.kind else {
                return None;
            };
            let (dir, _) = name.rsplit_once('/').unwrap_or(("", name));
            let is_program = PROGRAMS.contains(&dir);
            let seen = listed.contains(dir) || found.contains(name);
            let kept = if is_program {
                programs.contains(name)
            } else {
                dirs.contains(dir) || dir == "etc" || is_library(Path::new(name))
            };
            (!kept && !seen && !programs.contains(name)).then(|| (name.to_owned(), content.len()))
        })
        .collect();
    let bytes: u64 = unseen.iter().map(|(_, bytes)| bytes).sum();
    application.notes.push(format!(
        "cut packages: {} files that the profile did not see, {} KiB",
        unseen.len(),
        bytes / 1024
    ));
    for (name, _) in unseen {
        application.tree.remove(&name);
    }
}
