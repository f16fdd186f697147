//! The user that a machine becomes (`--user`).
//!
//! As root each machine gets its own user from a range that no account is in, and passt
//! another: what breaks out of one machine has no rights to another machine's processes,
//! and no files. A locked file in a directory of root's says that a user is taken; the lock
//! ends with the machine, however it ends, and the next `tare run`, `ps`, `stop` or `rm`
//! removes the file. No other user can take one.
//!
//! Limits: machines of containers that share the host's users and not its `/run` may get the
//! same user.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Uid, getegid, geteuid, getpriority_user};
use rustix::thread::{CapabilitySet, capabilities};
use tare_control::config::JailUser;
use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// First user of the range: above those of systemd's containers, below those that a signed
/// number cannot hold (systemd.io/UIDS-GIDS).
const FIRST: u32 = 1_900_000_000;
/// Machines in the range, each with two users.
const MACHINES: u32 = 32_768;
/// The user of kernel builds for root, always the same: objects keep their owner, and no two builds
/// see each other's processes. Above the machines' users.
const BUILDS: u32 = FIRST + 2 * MACHINES + 2;
/// A locked file for each user that is taken, by its number.
const CLAIMS: &str = "/run/tare-users";

/// `--user`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserChoice {
    /// A separate user for the machine if root starts it, else the user who starts it.
    #[default]
    Auto,
    /// The user who starts it.
    Own,
    /// This user.
    Ids {
        /// User ID.
        uid: u32,
        /// Group ID.
        gid: u32,
    },
}

/// An invalid user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use auto, self, or UID[:GID] with numbers from 1")]
pub struct BadUser;

impl FromStr for UserChoice {
    type Err = BadUser;

    fn from_str(text: &str) -> Result<Self, BadUser> {
        match text {
            "auto" => return Ok(Self::Auto),
            "self" => return Ok(Self::Own),
            _ => {}
        }
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        let id = |text: &str| match text.parse() {
            // The last number means "unchanged" to the kernel.
            Ok(id) if id != 0 && id != u32::MAX => Ok(id),
            _ => Err(BadUser),
        };
        Ok(Self::Ids {
            uid: id(uid)?,
            gid: id(gid)?,
        })
    }
}

/// A user reserved for a machine as long as this value lives.
#[derive(Debug)]
pub(crate) struct MachineUser {
    /// User ID.
    pub(crate) uid: u32,
    /// Group ID.
    pub(crate) gid: u32,
    /// User and group of the machine's passt.
    pub(crate) passt: (u32, u32),
    /// The lock that reserves it.
    pub(crate) claim: Option<OwnedFd>,
}

/// Why a machine cannot become a user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    /// Only root can become another user.
    #[error("--user {uid}: only root can run a machine as another user")]
    NotRoot {
        /// Who.
        uid: u32,
    },
    /// Every user of the range is taken.
    #[error("all {MACHINES} user IDs for machines are in use")]
    AllTaken,
    /// An error of the files that record which users are taken.
    #[error("cannot reserve a user ID for the machine in {CLAIMS}")]
    Claim(#[source] io::Error),
}

impl Explain for UserError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NotRoot { .. } => ExitCode::Usage,
            Self::AllTaken | Self::Claim(_) => ExitCode::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::AllTaken | Self::Claim(_))
            .then(|| "--user self keeps the user who starts it".to_owned())
    }
}

/// The user that a machine becomes; `None` to keep the user who starts it.
pub(crate) fn choose(choice: UserChoice) -> Result<Option<MachineUser>, UserError> {
    match choice {
        UserChoice::Own => Ok(None),
        UserChoice::Auto if may_become(FIRST + 2 * MACHINES - 1) => {
            claim(Path::new(CLAIMS), FIRST).map(Some)
        }
        UserChoice::Auto => Ok(None),
        UserChoice::Ids { uid, gid } => {
            let own = (geteuid().as_raw(), getegid().as_raw()) == (uid, gid);
            if own {
                return Ok(None);
            }
            if !may_become(uid) {
                return Err(UserError::NotRoot { uid });
            }
            Ok(Some(MachineUser {
                uid,
                gid,
                passt: (uid, gid),
                claim: None,
            }))
        }
    }
}

/// The user of builds for root; `None` for the user who starts the build.
pub(crate) fn of_builds() -> Option<JailUser> {
    may_become(BUILDS).then_some(JailUser {
        uid: BUILDS,
        gid: BUILDS,
        claim: None,
    })
}

/// Whether this is root with the capabilities for it, and the user exists in this namespace.
fn may_become(uid: u32) -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let capable = capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    let maps = ["/proc/self/uid_map", "/proc/self/gid_map"];
    let mapped = |path: &&str| fs::read_to_string(path).is_ok_and(|map| maps_id(&map, uid));
    geteuid().is_root() && capable && maps.iter().all(mapped)
}

/// Lines of a first ID here, a first ID outside and a number (`user_namespaces(7)`).
fn maps_id(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.nth(1)) else {
            return false;
        };
        (first..first + count).contains(&id.into())
    })
}

/// Removes the files of users that no machine has any more; returns how many.
pub fn sweep() -> usize {
    sweep_in(Path::new(CLAIMS))
}

/// Takes a pair of users from `first` on that neither a machine nor a process has: a child of a
/// killed machine (passt) may live longer than its lock. The search begins at a number that differs
/// between processes, so that a user is reused late.
fn claim(directory: &Path, first: u32) -> Result<MachineUser, UserError> {
    let directory = open_claims(directory).map_err(|errno| UserError::Claim(errno.into()))?;
    let begin = std::process::id();
    for step in 0..MACHINES {
        let uid = first + 2 * (begin.wrapping_add(step) % MACHINES);
        let taken = take(&directory, &uid.to_string());
        if let Some(lock) = taken.map_err(|errno| UserError::Claim(errno.into()))?
            && !is_somebody(uid)
            && !is_somebody(uid + 1)
        {
            return Ok(MachineUser {
                uid,
                gid: uid,
                passt: (uid + 1, uid + 1),
                claim: Some(lock),
            });
        }
    }
    Err(UserError::AllTaken)
}

/// Whether a process runs as that user (`getpriority(2)`: ESRCH if none does).
fn is_somebody(uid: u32) -> bool {
    getpriority_user(Uid::from_raw(uid)) != Err(Errno::SRCH)
}

/// The directory, made if it is missing. No other user may write there.
fn open_claims(path: &Path) -> Result<OwnedFd, Errno> {
    match mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(CWD, path, flags, Mode::empty())?;
    let found = fstat(&directory)?;
    let others = Mode::RWXG | Mode::RWXO;
    if found.st_uid == geteuid().as_raw() && !Mode::from_raw_mode(found.st_mode).intersects(others)
    {
        Ok(directory)
    } else {
        Err(Errno::PERM)
    }
}

/// Makes and locks a file; `None` if another machine has it.
fn take(directory: &OwnedFd, name: &str) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let file = openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        // Another process may have removed it before it was locked.
        let own = fstat(&file)?.st_ino;
        let named = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if named.is_ok_and(|named| named.st_ino == own) {
            return Ok(Some(file));
        }
    }
}

fn sweep_in(path: &Path) -> usize {
    let mut removed = 0;
    let Ok(entries) = fs::read_dir(path) else {
        return removed;
    };
    let Ok(directory) = open_claims(path) else {
        return removed;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().filter(|name| name.parse::<u32>().is_ok());
        if let Some(name) = number
            && let Ok(Some(_locked)) = take(&directory, name)
        {
            removed += usize::from(unlinkat(&directory, name, AtFlags::empty()).is_ok());
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn users_are_numbers_and_never_root() {
        let ids = |uid, gid| Ok(UserChoice::Ids { uid, gid });
        assert_eq!("auto".parse(), Ok(UserChoice::Auto));
        assert_eq!("self".parse(), Ok(UserChoice::Own));
        assert_eq!("1000".parse(), ids(1000, 1000));
        assert_eq!("1000:5".parse(), ids(1000, 5));
        for bad in ["0", "0:1", "1:0", "name", "", "-1", "4294967295", "1:2:3"] {
            assert_eq!(bad.parse::<UserChoice>(), Err(BadUser), "{bad}");
        }
    }

    #[test]
    fn no_two_machines_have_one_user() {
        let place = tempfile::tempdir().unwrap();
        let place = &place.path().join("users");
        let first = claim(place, FIRST).unwrap();
        let second = claim(place, FIRST).unwrap();
        assert_ne!(first.uid, second.uid);
        assert_ne!(first.passt.0, second.uid);
        assert!(first.passt.0 != first.uid && first.uid.is_multiple_of(2));
        let files = || fs::read_dir(place).unwrap().count();
        assert_eq!(sweep_in(place), 0, "both are taken");
        assert_eq!(files(), 2);
        let uid = first.uid;
        drop(first);
        // A process that another test starts may hold a copy of the lock until its exec.
        let begin = Instant::now();
        while sweep_in(place) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(30), "it stays taken");
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(files(), 1);
        assert_eq!(claim(place, FIRST).unwrap().uid, uid);
    }

    /// As after SIGKILL of a machine: its lock is released, and its passt still runs.
    #[test]
    fn a_user_that_a_process_still_is_belongs_to_no_other_machine() {
        if !may_become(FIRST) {
            return tare_vmtest::lacks("not root");
        }
        const APART: u32 = FIRST + 2 * MACHINES;
        let place = tempfile::tempdir().unwrap();
        let place = &place.path().join("users");
        for left in [0, 1] {
            let ended = claim(place, APART).unwrap();
            let mut passt = Command::new("sleep")
                .arg("60")
                .uid(ended.uid + left)
                .spawn()
                .unwrap();
            let taken = ended.uid;
            drop(ended);
            let next = claim(place, APART).unwrap();
            passt.kill().unwrap();
            passt.wait().unwrap();
            assert_ne!(next.uid, taken);
        }
    }

    #[test]
    fn users_are_claimed_where_no_other_user_can_claim_them() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("users");
        claim(&directory, FIRST).unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&directory, open).unwrap();
        let refused = claim(&directory, FIRST).unwrap_err();
        assert!(matches!(refused, UserError::Claim(_)), "{refused}");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert!(claim(&link, FIRST).is_err());
    }

    #[test]
    fn passt_gets_the_group_that_was_named() {
        if !may_become(6) {
            return tare_vmtest::lacks("not root");
        }
        let user = choose(UserChoice::Ids { uid: 6, gid: 5 }).unwrap().unwrap();
        assert_eq!(user.passt, (6, 5));
    }

    #[test]
    fn a_user_outside_of_the_namespace_is_not_become() {
        assert!(maps_id("         0          0 4294967295\n", FIRST));
        assert!(!maps_id("0 100000 65536\n", FIRST));
        assert!(maps_id("0 1000 1\n1 100000 65536\n", 65_536));
        assert!(!maps_id("0 1000 1\n1 100000 65536\n", 65_537));
        assert!(!maps_id("", 0));
    }
}
