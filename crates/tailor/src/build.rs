//! The kernel, built so that the same lock gives the same bits.
//!
//! What differs between two builds of one configuration is time, user, host and
//! directories (Documentation/kbuild/reproducible-builds.rst): the first three
//! are fixed here, the last stays out of an image without debug information.
//! `make` goes on where an interrupted build ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::io::{PipeReader, Read, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use crate::objects;
use crate::output::{Lines, Watched, excerpt};
use crate::source::Tree;
use crate::starter::{Excess, Starter, end, excess_of_a_process, is_missing, is_signaled};
use crate::toolchain::Toolchain;

/// Day that every image says it was built on.
const TIMESTAMP: &str = "Thu Jan  1 00:00:00 UTC 1970";
/// Where the whole output of the build goes, in the build directory.
pub const LOG: &str = "build.log";
/// Free space that a kernel's objects need, bytes: twice those of a small one (120 to 180 MiB).
pub(crate) const SPACE_BYTES: u64 = 350 << 20;
/// Longest log, bytes; that of a kernel with everything has 3 MiB.
const LOG_BYTES: u64 = 64 << 20;

/// The images, in the build directory.
pub(crate) const BZ_IMAGE: &str = "arch/x86/boot/bzImage";
pub(crate) const VMLINUX: &str = "vmlinux";

/// A kernel that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The compressed image, for QEMU.
    pub bz_image: PathBuf,
    /// The ELF image, for Tare and Firecracker.
    pub vmlinux: PathBuf,
}

/// A build that did not end well.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The file system is full.
    #[error("no space left in {} (or, for the compiler's files, in {}): free some and run the same command again, it goes on from there", dir.display(), std::env::temp_dir().display())]
    Full {
        /// The build directory.
        dir: PathBuf,
    },
    /// The compiler or a script failed.
    #[error("the kernel did not compile: {said}; the whole output is in {}", log.display())]
    Compile {
        /// The first line that says error.
        said: String,
        /// The log.
        log: PathBuf,
    },
    /// It took too much.
    #[error("the build in {} was ended: {excess}", dir.display())]
    Excess {
        /// The build directory.
        dir: PathBuf,
        /// Of what.
        excess: Excess,
    },
    /// It was ended from outside.
    #[error("the build was interrupted: run the same command again, it goes on from there")]
    Interrupted,
    /// No `make`.
    #[error("cannot run make: install make, gcc, flex, bison, bc and libelf-dev")]
    NoMake(#[source] io::Error),
    /// A file of the build directory.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Builds the configuration in `build` with a compiler and more flags for it, as long as it `goes_on`.
/// `progress` gets each file that is made.
pub fn build(
    starter: &Starter,
    compiler: (&Toolchain, &[String]),
    tree: &Tree,
    build: &Path,
    jobs: NonZeroUsize,
    goes_on: &dyn Fn() -> bool,
    progress: impl FnMut(&str),
) -> Result<Image, BuildError> {
    let log_path = build.join(LOG);
    let file = |path: &Path, source| BuildError::File {
        path: path.to_owned(),
        source,
    };
    let log = objects::create(build, LOG).map_err(|error| file(&log_path, error))?;
    let (output, mut make) = start(make(starter, compiler, tree, build, jobs)?)?;
    let said = follow(Watched::new(output, goes_on), log, progress);
    let is_interrupted = !goes_on();
    if is_interrupted {
        end(&mut make);
    }
    let status = make.wait().map_err(|error| file(build, error))?;
    if is_interrupted {
        return Err(BuildError::Interrupted);
    }
    if !status.success() {
        let excess = starter.excess(status).or(said.excess);
        return Err(failure(build, &log_path, status, excess, said));
    }
    let image = |name: &str| {
        let path = build.join(name);
        // What the build has not made itself is not its image.
        match objects::open(build, name) {
            Ok(_) => Ok(path),
            Err(source) => Err(BuildError::File { path, source }),
        }
    };
    Ok(Image {
        bz_image: image(BZ_IMAGE)?,
        vmlinux: image(VMLINUX)?,
    })
}

/// Output and errors come by one pipe, in their order; it ends with the last
/// compiler.
fn start(mut make: Command) -> Result<(PipeReader, Child), BuildError> {
    let (output, words) = io::pipe().map_err(BuildError::NoMake)?;
    let errors = words.try_clone().map_err(BuildError::NoMake)?;
    let child = make.stdout(words).stderr(errors).spawn();
    Ok((output, child.map_err(BuildError::NoMake)?))
}

fn make(
    starter: &Starter,
    (toolchain, flags): (&Toolchain, &[String]),
    tree: &Tree,
    build: &Path,
    jobs: NonZeroUsize,
) -> Result<Command, BuildError> {
    let mut make = starter
        .make(toolchain, tree.dir(), build)
        .map_err(BuildError::NoMake)?;
    make.arg(format!("-j{jobs}"))
        .arg(format!("KCFLAGS={}", flags.join(" ")))
        .args(["LOCALVERSION=", "bzImage"])
        .env("KBUILD_BUILD_TIMESTAMP", TIMESTAMP)
        .env("KBUILD_BUILD_USER", "tare")
        .env("KBUILD_BUILD_HOST", "tare")
        .env("KBUILD_BUILD_VERSION", "1");
    Ok(make)
}

/// What a build printed.
#[derive(Debug)]
struct BuildOutput {
    /// Whether a program found no space.
    full: bool,
    /// What one of its processes took too much of.
    excess: Option<Excess>,
    /// The first line that says error.
    error: Option<String>,
    /// The last line.
    last: String,
}

/// Passes the output on until it ends, or until it is not read any more. What it said is
/// kept here: on a full disk the log may lack it.
fn follow(output: impl Read, mut log: fs::File, mut progress: impl FnMut(&str)) -> BuildOutput {
    let mut said = BuildOutput {
        full: false,
        excess: None,
        error: None,
        last: "it said nothing".to_owned(),
    };
    let mut lines = Lines::new(output);
    let mut room = Some(LOG_BYTES);
    while let Some(line) = lines.next_line() {
        let line = String::from_utf8_lossy(line);
        // A log that cannot be written does not end a build; the same full
        // disk will.
        let _ = keep(&mut log, &mut room, &line);
        if let Some(made) = made(&line) {
            progress(made);
            continue;
        }
        said.excess = said.excess.or_else(|| excess_of_a_process(&line));
        said.full |= line.contains("No space left on device");
        if said.error.is_none() && (line.contains("error:") || line.contains("Error ")) {
            said.error = Some(excerpt(&line));
        }
        said.last = excerpt(&line);
    }
    said
}

/// Adds a line to a log as long as it has room; the last line says that it had no more.
fn keep(log: &mut fs::File, room: &mut Option<u64>, line: &str) -> io::Result<()> {
    let Some(bytes) = *room else { return Ok(()) };
    *room = bytes.checked_sub(line.len() as u64 + 1);
    match room {
        Some(_) => log.write_all(format!("{line}\n").as_bytes()),
        None => log.write_all(b"(tare: the log has its largest size, the rest is left out)\n"),
    }
}

/// Bytes on the disk of what is in a build directory.
pub(crate) fn kept_bytes(build: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => kept_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    let entries = fs::read_dir(build).into_iter().flatten();
    entries.flatten().map(of).sum()
}

/// Objects of a build directory, and how many of them each option's change compiles
/// again: Kbuild keeps what an object depends on in a file beside it
/// (`scripts/basic/fixdep.c`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    objects: usize,
    of: BTreeMap<String, usize>,
}

impl Reach {
    /// What is known of a build directory; nothing where nothing was compiled.
    pub(crate) fn of(build: &Path) -> Self {
        let mut reach = Self::default();
        reach.add(build);
        reach
    }

    /// How many objects an option's change compiles again.
    pub(crate) fn objects(&self, option: &str) -> usize {
        self.of.get(option).copied().unwrap_or(0)
    }

    /// Whether it compiles few: less than a quarter.
    pub(crate) fn is_near(&self, option: &str) -> bool {
        self.objects(option) * 4 <= self.objects
    }

    fn add(&mut self, dir: &Path) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(&path);
            } else if path.to_string_lossy().ends_with(".o.cmd") {
                let text = objects::read_text(dir, entry.file_name()).unwrap_or_default();
                self.objects += 1;
                for option in options(&text) {
                    *self.of.entry(option.to_owned()).or_insert(0) += 1;
                }
            }
        }
    }
}

/// The options that an object's list of dependencies names.
fn options(list: &str) -> BTreeSet<&str> {
    let named = list.split("include/config/").skip(1);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    named
        .filter_map(|rest| rest.split(|c| !is_name(c)).next())
        .collect()
}

/// The file that a line of Kbuild's output (`  CC      fs/open.o`) says is made.
fn made(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("  ")?.split_whitespace();
    let verb = words.next()?;
    let is_verb = verb.len() <= 8 && verb.chars().all(|c| c.is_ascii_uppercase());
    is_verb.then(|| words.next_back())?
}

fn failure(
    build: &Path,
    log: &Path,
    status: ExitStatus,
    excess: Option<Excess>,
    said: BuildOutput,
) -> BuildError {
    if let Some(excess) = excess {
        let dir = build.to_owned();
        return BuildError::Excess { dir, excess };
    }
    if is_signaled(status) {
        return BuildError::Interrupted;
    }
    if is_missing(status) {
        return BuildError::NoMake(io::ErrorKind::NotFound.into());
    }
    if said.full {
        return BuildError::Full {
            dir: build.to_owned(),
        };
    }
    BuildError::Compile {
        said: said.error.unwrap_or(said.last),
        log: log.to_owned(),
    }
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
