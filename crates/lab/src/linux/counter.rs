//! Instructions that a guest has executed, counted by a plugin of QEMU's
//! translator: exact, by instruction, and without slowing the guest's clock.

use std::fs::{self, File};
use std::ops::Sub;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_rootfs::Cache;

use super::LinuxError;

/// The plugin's source.
const SOURCE: &str = include_str!("counter.c");
/// Its file, in the cache.
const PLUGIN: &str = "counter.so";
/// Bytes of the file of counters: one page.
const PAGE: u64 = 4096;

/// The compiled plugin.
pub(crate) struct Plugin(PathBuf);

/// A file of counters that one guest's plugin adds to.
#[derive(Debug)]
pub(crate) struct Counter {
    file: File,
    path: PathBuf,
}

/// How many instructions were executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Count {
    /// By programs, firmware and the kernel's decompressor.
    pub(crate) user: u64,
    /// By the kernel.
    pub(crate) kernel: u64,
}

impl Count {
    /// All of them.
    pub(crate) fn total(self) -> u64 {
        self.user + self.kernel
    }
}

impl Sub for Count {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            kernel: self.kernel.saturating_sub(earlier.kernel),
        }
    }
}

impl Plugin {
    /// Compiles it, once for each version of its source.
    pub(crate) fn compile(cache: &Cache) -> Result<Self, LinuxError> {
        let hash = tare_tailor::lock::sha256(SOURCE.as_bytes());
        let entry = cache.get_or_fill(&format!("counter/{}", &hash[..12]), |dir| {
            let source = dir.join("counter.c");
            fs::write(&source, SOURCE).map_err(LinuxError::file(&source))?;
            compile(&source, &dir.join(PLUGIN))
        })?;
        Ok(Self(entry.join(PLUGIN)))
    }

    /// Counters at `path`, and the words that make QEMU use them.
    pub(crate) fn counter(&self, path: &Path) -> Result<(Counter, [String; 2]), LinuxError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(LinuxError::file(path))?;
        file.set_len(PAGE).map_err(LinuxError::file(path))?;
        let option = format!("{},into={}", self.0.display(), path.display());
        let path = path.to_owned();
        Ok((Counter { file, path }, ["-plugin".to_owned(), option]))
    }
}

impl Counter {
    /// What it has counted so far.
    pub(crate) fn read(&self) -> Result<Count, LinuxError> {
        let mut bytes = [0; 16];
        self.file
            .read_exact_at(&mut bytes, 0)
            .map_err(LinuxError::file(&self.path))?;
        let both = u128::from_le_bytes(bytes);
        Ok(Count {
            user: both as u64,
            kernel: (both >> 64) as u64,
        })
    }
}

fn compile(source: &Path, plugin: &Path) -> Result<(), LinuxError> {
    let output = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([plugin, source])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| LinuxError::Counter(format!("cc: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.contains("error"));
    Err(LinuxError::Counter(
        line.unwrap_or("cc said nothing").to_owned(),
    ))
}
