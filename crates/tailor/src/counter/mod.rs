//! Instructions that a guest has executed, counted by a plugin of QEMU's
//! translator: exact, by instruction, and without slowing the guest's clock.

use std::fs::{self, File};
use std::io;
use std::ops::Sub;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use tare_launch::jailed_guest::JailedGuest;
use tare_qemu::escaped;
use tare_rootfs::Cache;
use tare_rootfs::cache::CacheError;

use crate::lock;

/// The plugin's source.
const SOURCE: &str = include_str!("counter.c");
/// Its file, in the cache.
const PLUGIN: &str = "counter.so";
/// Bytes of the file of counters: one page.
const PAGE: u64 = 4096;
/// Its name, for people.
const COUNTS: &str = "tare-counts";

/// Instructions that cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// The plugin cannot be compiled.
    #[error("the instruction counter cannot be compiled: {0}")]
    Compile(String),
    /// The cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// QEMU's jail.
    #[error("cannot start qemu-system-x86_64 in its jail")]
    Jail(#[source] io::Error),
    /// A file.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CounterError {
    let path = path.into();
    move |source| CounterError::File { path, source }
}

/// The compiled plugin.
#[derive(Debug)]
pub struct Plugin(PathBuf);

/// A file of counters that one guest's plugin adds to.
#[derive(Debug)]
pub struct Counter {
    counts: File,
    /// QEMU loads it when it starts.
    plugin: File,
}

/// How many instructions were executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Count {
    /// By programs, firmware and the kernel's decompressor.
    pub user: u64,
    /// By the kernel.
    pub kernel: u64,
    /// Iterations of string instructions with REP, by either: such an instruction counts
    /// once above. Records of before counted them above and have none.
    #[serde(default)]
    pub iterations: u64,
}

/// What a report says of a record whose counts contain iterations.
pub const ITERATIONS_INSIDE: &str = "This run counted each iteration of a string instruction \
    with REP, which with ERMS is a byte, as an instruction: zeroing and copying weigh more in it \
    than on a processor.";

/// Whether recorded counts contain the iterations of string instructions with REP: they are
/// of before these were counted apart.
pub fn contain_iterations(counts: &Value) -> bool {
    let first = counts.get(0).unwrap_or(counts);
    first.is_object() && first.get("iterations").is_none()
}

impl Count {
    /// All instructions, without iterations.
    pub fn total(self) -> u64 {
        self.user + self.kernel
    }
}

impl Sub for Count {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            kernel: self.kernel.saturating_sub(earlier.kernel),
            iterations: self.iterations.saturating_sub(earlier.iterations),
        }
    }
}

impl Plugin {
    /// Compiles it, once for each version of its source.
    pub fn compile(cache: &Cache) -> Result<Self, CounterError> {
        let hash = lock::sha256(SOURCE.as_bytes());
        let entry = cache.get_or_fill(&format!("counter/{}", &hash[..12]), |dir| {
            let source = dir.join("counter.c");
            fs::write(&source, SOURCE).map_err(file(&source))?;
            compile(&source, &dir.join(PLUGIN))
        })?;
        Ok(Self(entry.join(PLUGIN)))
    }

    /// Has a guest's instructions counted from its start on.
    pub fn count(&self, guest: &mut JailedGuest) -> Result<Counter, CounterError> {
        let counter = self.counter()?;
        let path = guest
            .readable(&counter.plugin)
            .map_err(CounterError::Jail)?;
        let counts = guest.hand(&counter.counts).map_err(CounterError::Jail)?;
        guest.line().option("-plugin", option(&path, counts));
        Ok(counter)
    }

    fn counter(&self) -> Result<Counter, CounterError> {
        let plugin = File::open(&self.0).map_err(file(&self.0))?;
        let counts = counts().map_err(file(COUNTS))?;
        Ok(Counter { counts, plugin })
    }
}

/// Counters that are all 0, in memory.
fn counts() -> io::Result<File> {
    let memory = File::from(memfd_create(COUNTS, MemfdFlags::CLOEXEC)?);
    memory.set_len(PAGE)?;
    Ok(memory)
}

/// The value of QEMU's `-plugin`, for counters that it inherits.
fn option(plugin: &Path, counts: RawFd) -> String {
    format!("{},fd={counts}", escaped(plugin))
}

impl Counter {
    /// What it has counted so far.
    pub fn read(&self) -> Result<Count, CounterError> {
        let mut bytes = [0; 4 * size_of::<u64>()];
        self.counts
            .read_exact_at(&mut bytes, 0)
            .map_err(file(COUNTS))?;
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            *word = bytes
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        }
        let [user, kernel, of_user, of_kernel] = words;
        Ok(Count {
            user,
            kernel,
            iterations: of_user + of_kernel,
        })
    }
}

fn compile(source: &Path, plugin: &Path) -> Result<(), CounterError> {
    let output = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([plugin, source])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| CounterError::Compile(format!("cc: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.contains("error"));
    Err(CounterError::Compile(
        line.unwrap_or("cc said nothing").to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use rustix::io::{FdFlags, fcntl_setfd};

    use super::*;

    /// Real-mode code at the start of a ROM of 64 KiB, which ends by a write to QEMU's
    /// exit device.
    const CODE: &[u8] = &[
        0xfc, // cld
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xc0, // mov es, ax
        0x8e, 0xd8, // mov ds, ax
        0xbf, 0x00, 0x05, // mov di, 0x500
        0xb9, 0xe8, 0x03, // mov cx, 1000
        0xf3, 0xaa, // rep stosb
        0xf3, 0xaa, // rep stosb, of no bytes
        0xbe, 0x00, 0x05, // mov si, 0x500
        0xb9, 0xf4, 0x01, // mov cx, 500
        0xf3, 0xa5, // rep movsw
        0xba, 0x03, 0x00, // mov dx, 3
        0xb9, 0x0a, 0x00, // mov cx, 10: three times from here
        0xf3, 0xaa, // rep stosb
        0x4a, // dec dx
        0x75, 0xf8, // jnz
        0xe6, 0xf4, // out 0xf4, al
    ];
    /// At the reset vector: a far jump to the code.
    const RESET: &[u8] = &[0xea, 0x00, 0x00, 0x00, 0xf0];
    const ROM_BYTES: usize = 64 << 10;
    /// The jump, 12 instructions, 3 times 4, and the last.
    const INSTRUCTIONS: u64 = 1 + 12 + 3 * 4 + 1;
    const ITERATIONS: u64 = 1000 + 500 + 3 * 10;

    #[test]
    fn a_string_instruction_counts_once_and_its_iterations_apart() {
        let dir = tempfile::tempdir().unwrap();
        let plugin = Plugin(dir.path().join(PLUGIN));
        let source = dir.path().join("counter.c");
        fs::write(&source, SOURCE).unwrap();
        if let Err(error) = compile(&source, &plugin.0) {
            tare_vmtest::lacks(error);
            return;
        }
        let mut rom = vec![0xf4; ROM_BYTES];
        rom[..CODE.len()].copy_from_slice(CODE);
        rom[ROM_BYTES - 16..][..RESET.len()].copy_from_slice(RESET);
        let bios = dir.path().join("rom");
        fs::write(&bios, rom).unwrap();
        let counter = plugin.counter().unwrap();
        // For QEMU, which has this test's user and root.
        fcntl_setfd(&counter.counts, FdFlags::empty()).unwrap();
        let argument = option(&plugin.0, counter.counts.as_raw_fd());
        let ended = Command::new(tare_qemu::PROGRAM)
            .args([
                "-machine",
                "pc,accel=tcg",
                "-nodefaults",
                "-display",
                "none",
            ])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-bios"])
            .arg(&bios)
            .args(["-plugin", &argument])
            .stdin(Stdio::null())
            .status();
        let Ok(status) = ended else {
            tare_vmtest::lacks(format!("no {}", tare_qemu::PROGRAM));
            return;
        };
        assert_eq!(status.code(), Some(1));
        let count = counter.read().unwrap();
        assert_eq!((count.user, count.kernel), (INSTRUCTIONS, 0));
        assert_eq!(count.iterations, ITERATIONS);
    }
}
