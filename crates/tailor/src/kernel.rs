//! A kernel from its specification: patches, configuration, image and lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tare_host::owned_directory;
use tare_rootfs::Cache;

use crate::build::{BuildError, Image};
use crate::choose::{Choice, choose};
use crate::counts::{self, COUNTS, CountsError, ExecutionCounts};
use crate::cut::Cut;
use crate::kconfig::{Config, GivenConfig, GivenError, KconfigError};
use crate::lock::{Lock, LockError, LockedCounts, Patch};
use crate::mapping::Symbol;
use crate::source::{
    ObtainError, PatchError, Series, Source, SourceError, Sources, Tree, patched, switched,
};
use crate::spec::KernelSpec;
use crate::starter::Starter;
use crate::toolchain::{NoLlvm, Toolchain};
use crate::{build, kconfig, lock, objects};

/// Objects of the build, in the kernel's directory.
pub const OBJECTS: &str = "build";
/// The lock, in the kernel's directory.
pub const LOCK: &str = "kernel.lock";
/// Held while a kernel is made in its directory.
const HELD: &str = ".held";

/// A kernel and what it was made of.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The images.
    pub image: Image,
    /// The configuration.
    pub config: Config,
    /// Where its sources are, with their patches.
    pub sources: PathBuf,
    /// What was chosen and why; empty for a kernel made again from its lock.
    pub choice: Choice,
    /// What it was made of.
    pub lock: Lock,
    /// How long the compiler took.
    pub build_time: Duration,
    /// Files that it made.
    pub files_made: usize,
}

impl Kernel {
    /// The directory of its objects.
    pub fn objects(&self) -> &Path {
        self.image.vmlinux.parent().unwrap_or(Path::new("/"))
    }
}

/// A kernel that was not made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// Its sources.
    #[error(transparent)]
    Obtain(#[from] ObtainError),
    /// A tree.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A patch.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// The configuration.
    #[error(transparent)]
    Kconfig(#[from] KconfigError),
    /// The build.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The lock.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Another is being made there.
    #[error("another tare tailor builds a kernel in {}", .0.display())]
    Busy(PathBuf),
    /// The directory.
    #[error("cannot use {}", path.display())]
    Dir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No room for the objects.
    #[error("{} has {} MiB left, a kernel's objects need {}: free some, or name another directory with --out", dir.display(), free_bytes >> 20, needed_bytes >> 20)]
    Space {
        /// The directory.
        dir: PathBuf,
        /// Free there, bytes.
        free_bytes: u64,
        /// What the objects that are not there yet need, bytes.
        needed_bytes: u64,
    },
    /// No compiler for its cuts.
    #[error(transparent)]
    NoLlvm(#[from] NoLlvm),
    /// The lock is of other sources.
    #[error(
        "the lock names sources with the hash {locked}, but these have {found}: give the right ones with --source"
    )]
    OtherSources {
        /// The lock's.
        locked: String,
        /// What is here.
        found: String,
    },
    /// The lock is of a patch that this version has otherwise.
    #[error("the lock's patch {0} differs from the one in this version of Tare")]
    OtherPatch(String),
    /// The lock has flags for the compiler that none of its cuts adds.
    #[error("the lock has compiler flags that none of its cuts adds")]
    OtherFlags,
    /// Execution counts.
    #[error(transparent)]
    Counts(#[from] CountsError),
    /// A kernel that is optimized by counts, without them.
    #[error(
        "the kernel of this lock is optimized by execution counts: put its kernel.counts beside the lock"
    )]
    NoCounts,
    /// Other counts than the lock's.
    #[error(
        "the execution counts are not those of the lock: it names the hash {locked}, these have {found}"
    )]
    OtherCounts {
        /// The lock's.
        locked: String,
        /// What is here.
        found: String,
    },
    /// Counts of sources elsewhere.
    #[error("the execution counts are of sources in {}, and gcc finds a function's counts by the path of its file; these sources are in {}", counted.display(), found.display())]
    CountsOfOtherPlace {
        /// Where they were.
        counted: PathBuf,
        /// Where they are.
        found: PathBuf,
    },
    /// The lock's configuration.
    #[error("the lock's configuration is invalid")]
    LockConfig(#[source] GivenError),
}

/// Where and with what kernels are made.
#[derive(Clone, Debug)]
pub struct KernelBuilder {
    /// Trees and packages.
    pub cache: Cache,
    /// The sources.
    pub source: Source,
    /// Compilers at once.
    pub jobs: NonZeroUsize,
    /// Trees with patches.
    pub patching: Patching,
    /// Who starts what the sources execute.
    pub starter: Starter,
}

/// Where patches go: a build from another directory compiles everything again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patching {
    /// Into trees of the cache, one for each set of patches.
    #[default]
    Cached,
    /// Into one tree in the kernel's directory, for many kernels one after the
    /// other there: they compile only files that patches change.
    InPlace,
}

/// Patches of cuts in the source of a series, by name and text.
fn patches(cuts: &BTreeSet<Cut>, series: Series) -> Vec<(&'static str, &'static str)> {
    let all = cuts.iter();
    all.filter_map(|cut| Some((cut.name(), cut.patch(series)?)))
        .collect()
}

/// What cuts, and execution counts, add to the compiler's command line. Where the counts are comes with
/// [`ExecutionCounts::give`].
fn flags(cuts: &BTreeSet<Cut>, are_counted: bool) -> Vec<String> {
    let flags = cuts.iter().filter_map(|cut| cut.flag());
    let of_counts = counts::FLAGS.into_iter().filter(|_| are_counted);
    flags.chain(of_counts).map(str::to_owned).collect()
}

impl KernelBuilder {
    /// Makes a kernel in `dir`, as long as it `goes_on`; what is there of an earlier one is used.
    /// `progress` gets each file that is made.
    pub fn make(
        &self,
        spec: &KernelSpec,
        dir: &Path,
        goes_on: &dyn Fn() -> bool,
        progress: impl FnMut(&str),
    ) -> Result<Kernel, MakeError> {
        let sources = self.source.obtain(&self.cache)?;
        let choice = choose(&spec.on(sources.tree.series()));
        let recipe = Recipe {
            sources: &sources,
            cuts: &spec.cuts,
            toolchain: Toolchain::of(&spec.cuts)?,
            flags: flags(&spec.cuts, spec.counted.is_some()),
            added: &spec.add,
            counted: spec.counted.as_ref().map(|it| (&*it.counts, &*it.sources)),
        };
        let solve = |tree: &Tree, build: &Path| {
            let toolchain = &recipe.toolchain;
            kconfig::solve(&self.starter, toolchain, tree, build, &choice, goes_on)
        };
        let mut kernel = self.build(&recipe, dir, solve, goes_on, progress)?;
        kernel.choice = choice;
        Ok(kernel)
    }

    /// Makes a kernel of someone else's configuration on these sources.
    pub fn make_given(
        &self,
        given: &GivenConfig,
        dir: &Path,
        goes_on: &dyn Fn() -> bool,
        progress: impl FnMut(&str),
    ) -> Result<Kernel, MakeError> {
        let sources = self.source.obtain(&self.cache)?;
        let recipe = Recipe {
            sources: &sources,
            cuts: &BTreeSet::new(),
            toolchain: Toolchain::Gnu,
            flags: Vec::new(),
            added: &BTreeMap::new(),
            counted: None,
        };
        let solve = |tree: &Tree, build: &Path| {
            kconfig::solve_given(&self.starter, tree, build, given, goes_on)
        };
        self.build(&recipe, dir, solve, goes_on, progress)
    }

    /// Makes the kernel of a lock again, by its execution counts if it has any. [`Lock::differences`] says what
    /// came out otherwise. A lock may be someone else's: nothing of it is a command.
    pub fn make_again(
        &self,
        lock: &Lock,
        counts: Option<&ExecutionCounts>,
        dir: &Path,
        goes_on: &dyn Fn() -> bool,
        progress: impl FnMut(&str),
    ) -> Result<Kernel, MakeError> {
        let sources = self.source.obtain(&self.cache)?;
        if sources.sha256 != lock.source_sha256 {
            return Err(MakeError::OtherSources {
                locked: lock.source_sha256.clone(),
                found: sources.sha256,
            });
        }
        let flags = flags(&lock.cuts, lock.counts.is_some());
        if flags != lock.flags {
            return Err(MakeError::OtherFlags);
        }
        let counted = match &lock.counts {
            None => None,
            Some(locked) => {
                let counts = counts.ok_or(MakeError::NoCounts)?;
                let found = counts.sha256();
                if found != locked.sha256 {
                    let locked = locked.sha256.clone();
                    return Err(MakeError::OtherCounts { locked, found });
                }
                Some((counts, Path::new(&locked.sources)))
            }
        };
        let recipe = Recipe {
            sources: &sources,
            cuts: &lock.cuts,
            toolchain: Toolchain::of(&lock.cuts)?,
            flags,
            added: &lock.added,
            counted,
        };
        let lines = lock.config.iter().map(String::as_str);
        let lines = GivenConfig::of_lines(lines)
            .map_err(MakeError::LockConfig)?
            .text();
        let solve = |tree: &Tree, build: &Path| {
            let toolchain = &recipe.toolchain;
            kconfig::solve_lines(&self.starter, toolchain, tree, build, &lines, goes_on)
        };
        let ours = patches(&lock.cuts, sources.tree.series());
        for patch in &lock.patches {
            let same = ours.iter().any(|(name, text)| {
                *name == patch.name && lock::sha256(text.as_bytes()) == patch.sha256
            });
            if !same {
                return Err(MakeError::OtherPatch(patch.name.clone()));
            }
        }
        self.build(&recipe, dir, solve, goes_on, progress)
    }

    /// The configuration of a spec, without building it.
    pub fn configure(
        &self,
        spec: &KernelSpec,
        dir: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Config, MakeError> {
        let tree = self.source.tree(&self.cache)?;
        Ok(kconfig::solve(
            &self.starter,
            &Toolchain::of(&spec.cuts)?,
            &tree,
            dir,
            &choose(&spec.on(tree.series())),
            goes_on,
        )?)
    }

    fn build(
        &self,
        recipe: &Recipe<'_>,
        dir: &Path,
        solve: impl FnOnce(&Tree, &Path) -> Result<Config, KconfigError>,
        goes_on: &dyn Fn() -> bool,
        mut progress: impl FnMut(&str),
    ) -> Result<Kernel, MakeError> {
        let patches = patches(recipe.cuts, recipe.sources.tree.series());
        // Sources that do not fit leave no directory behind.
        let cached = match self.patching {
            Patching::Cached => Some(patched(recipe.sources, &patches, &self.cache)?),
            Patching::InPlace => None,
        };
        let is_new = owned_directory::create(dir).is_ok();
        let _held = hold(dir)?;
        let prepared = prepare(recipe.sources, cached, &patches, dir, solve);
        if is_new && prepared.is_err() {
            // Nothing was compiled: the next try needs nothing of it.
            let _ = owned_directory::remove(dir);
        } else if is_new {
            let _ = owned_directory::keep(dir);
        }
        let Prepared {
            objects,
            tree,
            patches,
            config,
        } = prepared?;
        let begin = Instant::now();
        let mut files_made = 0;
        let (starter, toolchain) = (&self.starter, &recipe.toolchain);
        let (flags, counts) = recipe.give_counts(&tree, &objects)?;
        let compiler = (toolchain, flags.as_slice());
        let count = |file: &str| {
            files_made += 1;
            progress(file);
        };
        let image = build::build(
            starter, compiler, &tree, &objects, self.jobs, goes_on, count,
        )?;
        let packed = objects::open(&objects, build::BZ_IMAGE).map_err(failed(&image.bz_image))?;
        let lock = Lock {
            schema: lock::SCHEMA.to_owned(),
            tare_version: env!("CARGO_PKG_VERSION").to_owned(),
            linux_version: tree.version().to_string(),
            source_sha256: recipe.sources.sha256.clone(),
            patches,
            cuts: recipe.cuts.clone(),
            flags: recipe.flags.clone(),
            tools: toolchain.versions(),
            config: config.lines(),
            added: recipe.added.clone(),
            counts,
            image_bytes: packed.metadata().map_err(failed(&image.bz_image))?.len(),
            image_sha256: lock::sha256_of(packed).map_err(failed(&image.bz_image))?,
        };
        if let Some((counts, _)) = recipe.counted {
            counts.write(&dir.join(COUNTS))?;
        }
        lock.write(&dir.join(LOCK))?;
        Ok(Kernel {
            image,
            config,
            sources: tree.dir().to_owned(),
            choice: Choice::default(),
            lock,
            build_time: begin.elapsed(),
            files_made,
        })
    }
}

/// What a build is made of besides its configuration.
struct Recipe<'a> {
    sources: &'a Sources,
    cuts: &'a BTreeSet<Cut>,
    toolchain: Toolchain,
    flags: Vec<String>,
    /// Options that were added, each with why.
    added: &'a BTreeMap<Symbol, String>,
    /// Counts that the compiler optimizes by, and the directory of the sources of which they are.
    counted: Option<(&'a ExecutionCounts, &'a Path)>,
}

impl Recipe<'_> {
    /// Puts the counts where the compilers find them: flags for these, and what the lock says of
    /// the counts.
    fn give_counts(
        &self,
        tree: &Tree,
        objects: &Path,
    ) -> Result<(Vec<String>, Option<LockedCounts>), MakeError> {
        let mut flags = self.flags.clone();
        let Some((counts, counted)) = self.counted else {
            return Ok((flags, None));
        };
        if counted != tree.dir() {
            return Err(MakeError::CountsOfOtherPlace {
                counted: counted.to_owned(),
                found: tree.dir().to_owned(),
            });
        }
        flags.extend(counts.give(objects)?);
        let sha256 = counts.sha256();
        let sources = counted.display().to_string();
        Ok((flags, Some(LockedCounts { sha256, sources })))
    }
}

/// No other process makes a kernel there while the file is open.
fn hold(dir: &Path) -> Result<fs::File, MakeError> {
    fs::create_dir_all(dir).map_err(failed(dir))?;
    let path = dir.join(HELD);
    let file = fs::File::create(&path).map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(MakeError::Busy(dir.to_owned())),
        Err(fs::TryLockError::Error(source)) => Err(MakeError::Dir { path, source }),
    }
}

/// What the compiler starts from.
struct Prepared {
    objects: PathBuf,
    tree: Tree,
    patches: Vec<Patch>,
    config: Config,
}

/// Room, tree and configuration of a build; `cached` is a tree with its patches.
fn prepare(
    sources: &Sources,
    cached: Option<(Tree, Vec<Patch>)>,
    patches: &[(&str, &str)],
    dir: &Path,
    solve: impl FnOnce(&Tree, &Path) -> Result<Config, KconfigError>,
) -> Result<Prepared, MakeError> {
    let objects = dir.join(OBJECTS);
    let objects = fs::create_dir_all(&objects)
        .and_then(|()| objects.canonicalize())
        .map_err(failed(&objects))?;
    check_space(&objects)?;
    let (tree, patches) = match cached {
        Some(cached) => cached,
        None => switched(sources, patches, dir)?,
    };
    let config = solve(&tree, &objects)?;
    Ok(Prepared {
        objects,
        tree,
        patches,
        config,
    })
}

/// Whether what is not there yet has room.
fn check_space(objects: &Path) -> Result<(), MakeError> {
    if objects.join("vmlinux").exists() {
        return Ok(());
    }
    let Ok(there) = rustix::fs::statvfs(objects) else {
        return Ok(());
    };
    let free_bytes = there.f_bavail.saturating_mul(there.f_frsize);
    let needed_bytes = build::SPACE_BYTES.saturating_sub(build::kept_bytes(objects));
    if free_bytes < needed_bytes {
        Err(MakeError::Space {
            dir: objects.to_owned(),
            free_bytes,
            needed_bytes,
        })
    } else {
        Ok(())
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> MakeError {
    let path = path.to_owned();
    move |source| MakeError::Dir { path, source }
}

#[cfg(test)]
mod tests;
