//! The run directory of a machine that is being started: removed again unless
//! the machine takes it over.

use std::fs::File;
use std::io;

use tare_control::exit::ExitCode;
use tare_control::rundir::{ROOT_VARIABLE, Removal, Run, RunDir, RunDirError, RunRoot, RunState};

use crate::failure::Explain;

/// A machine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// As the user chose it.
    Given(String),
    /// A stem and the first free number.
    Numbered(String),
}

/// Most machines with numbers for one stem.
const MOST: u32 = 10_000;

impl Explain for RunDirError {
    fn code(&self) -> ExitCode {
        match self {
            Self::InUse(_) => ExitCode::NameInUse,
            Self::NotRunning(_) => ExitCode::NoSuchMachine,
            Self::BadName(_) | Self::PathTooLong(_) => ExitCode::Usage,
            Self::NotADirectory(_) | Self::NotOurs(_) | Self::WritableByOthers { .. } => {
                ExitCode::RunRootUnsafe
            }
            Self::Foreign(_) => ExitCode::RunDirForeign,
            Self::Io { .. } => ExitCode::Output,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::InUse(name) => Some(format!("stop it (tare stop {name}), or give another name")),
            Self::NotRunning(_) => Some("tare ps -a lists all machines".to_owned()),
            Self::NotADirectory(_) | Self::NotOurs(_) | Self::WritableByOthers { .. } => Some(
                format!("set {ROOT_VARIABLE} to a directory of mode 0700 of yours"),
            ),
            Self::Foreign(_) => Some("give another name, or move it away".to_owned()),
            Self::Io { source, .. } if is_unusable(source.kind()) => Some(format!(
                "set {ROOT_VARIABLE} to a directory of mode 0700 of yours"
            )),
            _ => None,
        }
    }
}

/// Errors of a place where this user makes no directories.
fn is_unusable(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(kind, NotFound | PermissionDenied | ReadOnlyFilesystem)
}

/// Ended machines of one stem that are kept for `tare logs`. The next machine takes the name of the
/// oldest.
const KEPT_ENDED: usize = 10;

/// A claimed name.
#[derive(Debug)]
pub struct RunDirGuard {
    dir: RunDir,
    lock: File,
    /// Opened before this process may be confined.
    removal: Option<Removal>,
    at_end: AtEnd,
}

/// What happens to the directory when the guard is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtEnd {
    Remove,
    Keep,
}

impl RunDirGuard {
    /// Takes the name, or the first free number after it.
    pub fn take(root: &RunRoot, name: &Name) -> Result<Self, RunDirError> {
        let (dir, lock) = match name {
            Name::Given(name) => root.create(name)?,
            Name::Numbered(stem) => first_free(root, stem)?,
        };
        Ok(Self {
            removal: dir.removal()?,
            dir,
            lock,
            at_end: AtEnd::Remove,
        })
    }

    /// A directory that exists and that a keeper removes.
    pub(crate) fn keep(dir: RunDir, lock: File) -> Self {
        Self {
            dir,
            lock,
            removal: None,
            at_end: AtEnd::Keep,
        }
    }

    /// The directory.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// The held lock.
    pub(crate) fn lock(&self) -> &File {
        &self.lock
    }

    /// The machine holds the lock now, and owns the directory.
    pub(crate) fn hand_over(mut self) -> RunDir {
        self.at_end = AtEnd::Keep;
        self.dir.clone()
    }
}

impl Drop for RunDirGuard {
    fn drop(&mut self) {
        if let (AtEnd::Remove, Some(removal)) = (self.at_end, &self.removal) {
            let _ = removal.remove();
        }
    }
}

fn first_free(root: &RunRoot, stem: &str) -> Result<(RunDir, File), RunDirError> {
    let mut last = RunDirError::InUse(stem.to_owned());
    let mut ended = Vec::new();
    for number in 1..=MOST {
        let name = format!("{stem}-{number}");
        match root.look_up(&name) {
            Ok(Run {
                state: RunState::Ended(end),
                ..
            }) => ended.push((end.map_or(0, |end| end.ended_s), name)),
            Ok(_) | Err(RunDirError::Foreign(_)) => last = RunDirError::InUse(name),
            Err(_) => match root.create(&name) {
                Err(error @ RunDirError::InUse(_)) => last = error,
                other => return other,
            },
        }
        if ended.len() == KEPT_ENDED {
            ended.sort();
            // Another start may take the oldest first.
            for (_, name) in ended.drain(..) {
                match root.create(&name) {
                    Err(error @ RunDirError::InUse(_)) => last = error,
                    other => return other,
                }
            }
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_up_and_are_free_again() {
        let keep = tempfile::tempdir().unwrap();
        let root = RunRoot::open(keep.path().join("tare")).unwrap();
        let numbered = Name::Numbered("http".to_owned());
        let first = RunDirGuard::take(&root, &numbered).unwrap();
        let second = RunDirGuard::take(&root, &numbered).unwrap();
        assert_eq!(first.dir().name(), "http-1");
        assert_eq!(second.dir().name(), "http-2");
        drop(first);
        let third = RunDirGuard::take(&root, &numbered).unwrap();
        assert_eq!(third.dir().name(), "http-1");
    }

    #[test]
    fn ended_machines_keep_their_numbers_up_to_a_limit() {
        let keep = tempfile::tempdir().unwrap();
        let root = RunRoot::open(keep.path().join("tare")).unwrap();
        let numbered = Name::Numbered("http".to_owned());
        for number in 1..=KEPT_ENDED {
            let guard = RunDirGuard::take(&root, &numbered).unwrap();
            assert_eq!(guard.hand_over().name(), format!("http-{number}"));
        }
        let next = RunDirGuard::take(&root, &numbered).unwrap();
        assert!(root.look_up(next.dir().name()).is_ok());
        assert_eq!(root.list().unwrap().runs.len(), KEPT_ENDED);
    }

    /// All find the same oldest one that has ended.
    #[test]
    fn starts_at_once_get_different_numbers_of_ended_machines() {
        const STARTS: usize = 8;
        for _ in 0..20 {
            let keep = tempfile::tempdir().unwrap();
            let root = RunRoot::open(keep.path().join("tare")).unwrap();
            let numbered = Name::Numbered("http".to_owned());
            for _ in 0..KEPT_ENDED {
                RunDirGuard::take(&root, &numbered).unwrap().hand_over();
            }
            let barrier = std::sync::Barrier::new(STARTS);
            let start = || {
                barrier.wait();
                RunDirGuard::take(&root, &numbered).unwrap()
            };
            let guards: Vec<RunDirGuard> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..STARTS).map(|_| scope.spawn(start)).collect();
                all.into_iter().map(|it| it.join().unwrap()).collect()
            });
            let names: std::collections::BTreeSet<_> =
                guards.iter().map(|guard| guard.dir().name()).collect();
            assert_eq!(names.len(), STARTS);
        }
    }

    #[test]
    fn a_root_that_cannot_be_made_is_an_error_that_names_the_variable() {
        let root = RunRoot::open("/proc/tare").unwrap();
        let error = RunDirGuard::take(&root, &Name::Given("web".to_owned())).unwrap_err();
        assert_eq!(error.code(), ExitCode::Output);
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains(ROOT_VARIABLE))
        );
    }

    #[test]
    fn a_given_name_in_use_is_refused() {
        let keep = tempfile::tempdir().unwrap();
        let root = RunRoot::open(keep.path().join("tare")).unwrap();
        let name = Name::Given("web".to_owned());
        let _held = RunDirGuard::take(&root, &name).unwrap();
        let error = RunDirGuard::take(&root, &name).unwrap_err();
        assert_eq!(error.code(), ExitCode::NameInUse);
    }
}
