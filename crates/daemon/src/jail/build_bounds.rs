//! What a build may take: time, memory of all its processes, and space for what it makes.
//!
//! The process outside of the build's jail looks, since no limit of the kernel's counts a directory or
//! several processes for an ordinary user. What one process may take is the kernel's to hold
//! ([`tare_confine::enter_build`]).
//!
//! Limits: what a build writes, or takes of memory, between two looks comes on top. A file that it has deleted
//! and keeps open is not counted in the directory; the space that has to stay free holds that. Memory of a fork
//! counts in both processes, and none counts where `/proc` hides it or does not list children
//! (CONFIG_PROC_CHILDREN).

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstatvfs, openat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tare_host::process;

/// Deepest directory that is counted; the kernel's have ten levels.
const DEPTH_MAX: usize = 64;
/// An entry counts at least this many bytes: an empty file takes an inode.
const ENTRY_BYTES: u64 = 4096;
/// How long a count stays valid while the file system does not become fuller: others may delete
/// files meanwhile.
const COUNT_HOLDS: Duration = Duration::from_secs(30);
/// How long a sum of the processes' memory holds.
const MEMORY_HOLDS: Duration = Duration::from_millis(50);
/// Most processes whose memory is summed: more than a user may have in a build.
const PROCESSES: usize = 1 << 13;

/// The bounds of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildBounds {
    /// How long it may last.
    pub time: Duration,
    /// Bytes of memory of all its processes.
    pub memory: u64,
    /// Bytes of the directory that it changes.
    pub bytes: u64,
    /// Bytes that must stay free on the file system of that directory.
    pub free_bytes: u64,
}

/// The bound that a build exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Time.
    Time,
    /// Memory.
    Memory,
    /// Space: its directory is larger, deeper, or cannot be counted.
    Space,
    /// Free space of the file system.
    Free,
}

/// Checks the bounds of a build.
#[derive(Debug)]
pub(super) struct Watch {
    objects: OwnedFd,
    bounds: BuildBounds,
    began: Instant,
    counted: Counted,
    summed: Option<Instant>,
}

/// What was in the directory once.
#[derive(Clone, Copy, Debug)]
struct Counted {
    bytes: u64,
    /// What was free then.
    free_bytes: u64,
    at: Instant,
}

impl Watch {
    /// For a build in this directory that begins now.
    pub(super) fn begin(objects: &OwnedFd, bounds: BuildBounds) -> io::Result<Self> {
        let objects = objects.try_clone()?;
        let counted = Counted::in_directory(&objects)?;
        Ok(Self {
            objects,
            bounds,
            began: Instant::now(),
            counted,
            summed: None,
        })
    }

    /// The bound that the build exceeds now.
    pub(super) fn excess(&mut self) -> Option<Excess> {
        if self.began.elapsed() >= self.bounds.time {
            return Some(Excess::Time);
        }
        if self.summed.is_none_or(|at| at.elapsed() >= MEMORY_HOLDS) {
            if memory_below(std::process::id()) > self.bounds.memory {
                return Some(Excess::Memory);
            }
            self.summed = Some(Instant::now());
        }
        // Asked of an open directory, which does not fail.
        let free_bytes = free_bytes(&self.objects).unwrap_or(u64::MAX);
        if free_bytes < self.bounds.free_bytes {
            return Some(Excess::Free);
        }
        let taken = self.counted.free_bytes.saturating_sub(free_bytes);
        let may_exceed = taken > 0 && self.counted.bytes.saturating_add(taken) > self.bounds.bytes;
        if may_exceed || self.counted.at.elapsed() >= COUNT_HOLDS {
            match Counted::in_directory(&self.objects) {
                Ok(counted) => self.counted = counted,
                Err(_) => return Some(Excess::Space),
            }
        }
        (self.counted.bytes > self.bounds.bytes).then_some(Excess::Space)
    }
}

impl Counted {
    fn in_directory(directory: &OwnedFd) -> io::Result<Self> {
        Ok(Self {
            bytes: bytes_below(directory, DEPTH_MAX)?,
            free_bytes: free_bytes(directory)?,
            at: Instant::now(),
        })
    }
}

/// Opens the directory of a build to be watched. Before the build begins, since that changes the
/// root of this process (`pivot_root(2)`).
pub(super) fn open(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, directory, flags, Mode::empty())?)
}

/// Free bytes for users other than root.
fn free_bytes(directory: impl AsFd) -> io::Result<u64> {
    let there = fstatvfs(directory)?;
    Ok(there.f_bavail.saturating_mul(there.f_frsize))
}

/// Bytes on the disk below a directory that changes meanwhile. Follows no link.
fn bytes_below(directory: &OwnedFd, depth: usize) -> io::Result<u64> {
    let mut sum = 0;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            sum += missing_is_nothing(bytes_of(directory, name, depth))?;
        }
    }
    Ok(sum)
}

fn bytes_of(directory: &OwnedFd, name: &CStr, depth: usize) -> io::Result<u64> {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let own = on_disk(&found).max(ENTRY_BYTES);
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Ok(own);
    }
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = openat(directory, name, flags, Mode::empty())?;
    Ok(own + bytes_below(&below, depth)?)
}

fn on_disk(found: &Stat) -> u64 {
    u64::try_from(found.st_blocks).unwrap_or_default() * 512
}

/// Memory of what descends from a process, bytes. What it is not allowed to see, or has ended, has none.
fn memory_below(pid: u32) -> u64 {
    let mut found = process::children(pid);
    let mut next = 0;
    let mut sum: u64 = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        if found.len() < PROCESSES {
            found.extend(process::children(pid));
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        sum = sum.saturating_add(memory_of(&status.unwrap_or_default()));
    }
    sum
}

/// Of a process's memory what no file holds: in use, shared, and swapped out (`proc_pid_status(5)`).
fn memory_of(status: &str) -> u64 {
    let kib = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let counts = ["RssAnon", "RssShmem", "VmSwap"].contains(&name);
        let value = counts.then(|| value.trim().strip_suffix(" kB"))??;
        value.parse::<u64>().ok()
    };
    status.lines().filter_map(kib).sum::<u64>() << 10
}

/// What was deleted, or replaced by a link, since it was listed.
fn missing_is_nothing(counted: io::Result<u64>) -> io::Result<u64> {
    match counted {
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(0),
            _ => Err(error),
        },
        counted => counted,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const BOUNDS: BuildBounds = BuildBounds {
        time: Duration::from_secs(3600),
        memory: u64::MAX,
        bytes: 1 << 20,
        free_bytes: 0,
    };

    #[test]
    fn what_a_directory_takes_is_bounded_in_bytes_entries_and_depth() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a.o"), vec![7; 100_000]).unwrap();
        // Neither the targets of links nor holes count.
        symlink("/usr", place.path().join("source")).unwrap();
        let hole = fs::File::create(place.path().join("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let excess = |bounds| {
            Watch::begin(&open(place.path()).unwrap(), bounds)
                .unwrap()
                .excess()
        };
        assert_eq!(excess(BOUNDS), None);
        let fewer = BuildBounds {
            bytes: 50_000,
            ..BOUNDS
        };
        assert_eq!(excess(fewer), Some(Excess::Space));
        for number in 0..300 {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(excess(BOUNDS), Some(Excess::Space), "empty files");
        let deep = "d/".repeat(DEPTH_MAX + 1);
        fs::create_dir_all(place.path().join(deep)).unwrap();
        assert!(Watch::begin(&open(place.path()).unwrap(), BOUNDS).is_err());
    }

    #[test]
    fn time_and_what_is_left_free_are_bounded() {
        let place = tempfile::tempdir().unwrap();
        let excess = |bounds| {
            Watch::begin(&open(place.path()).unwrap(), bounds)
                .unwrap()
                .excess()
        };
        let at_once = BuildBounds {
            time: Duration::ZERO,
            ..BOUNDS
        };
        assert_eq!(excess(at_once), Some(Excess::Time));
        let all = BuildBounds {
            free_bytes: u64::MAX,
            ..BOUNDS
        };
        assert_eq!(excess(all), Some(Excess::Free));
    }

    #[test]
    fn memory_of_all_that_a_process_started_is_summed() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};

        // A grandchild that has 8 MiB in a variable; it says when.
        let holds = "x=$(head -c 8388608 /dev/zero | tr '\\0' x); echo ready; read end";
        let mut parent = Command::new("bash")
            .args(["-c", "bash -c \"$0\"; true", holds])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = parent.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let below = memory_below(parent.id());
        drop(parent.stdin.take());
        parent.wait().unwrap();
        assert!(below >= 8 << 20, "{below}");
        assert_eq!(memory_below(parent.id()), 0, "it has ended");
    }

    #[test]
    fn what_files_hold_is_not_a_builds_memory() {
        let status = "VmRSS:\t  900 kB\nRssAnon:\t  100 kB\nRssFile:\t  700 kB\n\
                      RssShmem:\t  100 kB\nVmSwap:\t  56 kB\nThreads:\t4\n";
        assert_eq!(memory_of(status), 256 << 10);
        assert_eq!(memory_of("RssAnon:\t-1 kB\nVmSwap: x"), 0);
    }

    #[test]
    fn what_is_written_later_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let mut watch = Watch::begin(&open(place.path()).unwrap(), BOUNDS).unwrap();
        assert_eq!(watch.excess(), None);
        fs::write(place.path().join("a.o"), vec![7; 3 << 20]).unwrap();
        // As if that had made the file system fuller.
        watch.counted.free_bytes = u64::MAX;
        assert_eq!(watch.excess(), Some(Excess::Space));
    }
}
