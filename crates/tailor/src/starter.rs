//! Starts what kernel sources execute: `make`, and through it their scripts and the compilers.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tare_host::child::ended_within;
use tare_launch::building;
pub use tare_launch::building::Bounds;

use crate::toolchain::Toolchain;

/// What a build may take unless its caller says otherwise: a kernel with debug information and all
/// that its configuration builds in takes some 3 GiB. Of memory it may take three quarters of the host's, if
/// that is less.
pub fn bounds() -> Bounds {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let host = memory_of_host(&meminfo).map_or(u64::MAX, |bytes| bytes / 4 * 3);
    Bounds {
        memory: BOUNDS.memory.min(host),
        ..BOUNDS
    }
}

const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(3 * 3600),
    memory: 16 << 30,
    bytes: 8 << 30,
    free_bytes: 64 << 20,
};

/// Bytes (`proc_meminfo(5)`).
fn memory_of_host(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// How long `make` may take to end on request: it removes what it has half made.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Who starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Starter {
    /// This program `tare`, in a jail ([`building`]), and within these bounds.
    Tare(PathBuf, Bounds),
    /// The test, whose sources are its own.
    #[cfg(test)]
    Test,
}

impl Starter {
    /// `make` for sources with these compilers, which writes below `objects` only.
    pub(crate) fn make(
        &self,
        toolchain: &Toolchain,
        sources: &Path,
        objects: &Path,
    ) -> io::Result<Command> {
        let mut make = match self {
            Self::Tare(tare, bounds) => building::command(tare, sources, objects, *bounds, "make")?,
            #[cfg(test)]
            Self::Test => Command::new("make"),
        };
        make.arg("-C")
            .arg(sources)
            .arg(format!("O={}", objects.display()))
            .arg("ARCH=x86_64")
            .args(toolchain.words())
            .env("LC_ALL", "C")
            .env_remove("MAKEFLAGS")
            .stdin(std::process::Stdio::null())
            // What it starts ends with it.
            .process_group(0);
        Ok(make)
    }
}

/// Ends `make` on request, and one that does not heed it.
pub(crate) fn end(make: &mut Child) {
    let Some(group) = i32::try_from(make.id()).ok().and_then(Pid::from_raw) else {
        return;
    };
    let _ = kill_process_group(group, Signal::TERM);
    if ended_within(make, SHUTDOWN_TIMEOUT).is_none() {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// What a build took too much of, and was ended for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Time.
    #[error("it took longer than {} min", .0.as_secs().div_ceil(60))]
    Time(Duration),
    /// Memory of its processes.
    #[error("its processes took more than {} MiB of memory together", .0 >> 20)]
    Memory(u64),
    /// Space of its directory.
    #[error("what it made takes more than {} MiB", .0 >> 20)]
    Space(u64),
    /// The file system's free space.
    #[error("it left less than {} MiB of the file system free", .0 >> 20)]
    Free(u64),
    /// One file.
    #[error("one of its files would be larger than {} MiB", .0 >> 20)]
    File(u64),
    /// CPU time of one process.
    #[error("one of its processes took more than {} min of CPU time", .0 / 60)]
    Cpu(u64),
}

impl Starter {
    /// What a status says that the build took too much of.
    pub(crate) fn excess(&self, status: ExitStatus) -> Option<Excess> {
        let bounds = match self {
            Self::Tare(_, bounds) => bounds,
            #[cfg(test)]
            Self::Test => &BOUNDS,
        };
        match status.code()? {
            building::TOO_LONG => Some(Excess::Time(bounds.time)),
            building::TOO_MUCH_MEMORY => Some(Excess::Memory(bounds.memory)),
            building::TOO_LARGE => Some(Excess::Space(bounds.bytes)),
            building::TOO_FULL => Some(Excess::Free(bounds.free_bytes)),
            _ => None,
        }
    }
}

/// What a line that a build printed says of the limits of its processes: shells and `make` name the
/// signal in these words (`LC_ALL=C`), programs that handle it the error.
pub(crate) fn excess_of_a_process(line: &str) -> Option<Excess> {
    let says = |words: &[&str]| words.iter().any(|word| line.contains(word));
    if says(&["File size limit exceeded", "File too large"]) {
        Some(Excess::File(building::FILE_BYTES))
    } else if says(&["CPU time limit exceeded"]) {
        Some(Excess::Cpu(building::CPU_SECONDS))
    } else {
        None
    }
}

/// Whether a status says that `make` is missing.
pub(crate) fn is_missing(status: ExitStatus) -> bool {
    status.code() == Some(building::MISSING)
}

/// Whether a signal ended `make`, or what started it.
pub(crate) fn is_signaled(status: ExitStatus) -> bool {
    status.code().is_none_or(|code| code > 128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_gets_the_compilers_that_are_not_its_own() {
        let words = |toolchain| {
            let make = Starter::Test.make(&toolchain, Path::new("/s"), Path::new("/o"));
            let make = make.unwrap();
            let words = make
                .get_args()
                .map(|word| word.to_str().unwrap().to_owned());
            words.collect::<Vec<_>>()
        };
        let gnu = words(Toolchain::Gnu);
        assert_eq!(gnu, ["-C", "/s", "O=/o", "ARCH=x86_64"]);
        let llvm = words(Toolchain::Llvm("-19".to_owned()));
        assert_eq!(llvm[..4], gnu);
        assert_eq!(llvm[4], "LLVM=-19");
    }

    #[test]
    fn a_build_leaves_the_host_a_quarter_of_its_memory() {
        let meminfo = "MemTotal:        8000000 kB\nMemFree:          100 kB\n";
        assert_eq!(memory_of_host(meminfo), Some(8_000_000 << 10));
        assert_eq!(memory_of_host("MemFree: 1 kB\n"), None);
        assert!(bounds().memory <= BOUNDS.memory && bounds().memory > 0);
    }
}
