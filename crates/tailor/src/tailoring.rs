//! From an order to a proven kernel: build, prove, and where the proof fails
//! find what is missing, add it, and go round again.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;

use tare_rootfs::modules::Module;

use crate::{
    build::Reach,
    kconfig::{Config, KconfigError},
    kernel::{Kernel, MakeError, Order, Workshop},
    machine::Board,
    mapping::Symbol,
    missing,
    prove::{Proof, ProveError, Terms, prove},
    root::Application,
    search,
};

/// Consoles of the proofs, in the kernel's directory.
const LOGS: &str = "logs";
/// Configurations of candidates, in the kernel's directory.
const CANDIDATES: &str = "candidates";
/// Proofs after which a guest's messages are no longer followed.
const FOLLOWED: usize = 4;

/// A tailoring to be done.
#[derive(Debug)]
pub struct Tailoring<'a> {
    /// Sources and compilers.
    pub workshop: &'a Workshop,
    /// The application.
    pub application: &'a Application,
    /// How it is proven.
    pub terms: &'a Terms,
    /// Debian's kernel: what an application may have had where it worked.
    pub debian: Option<Control<'a>>,
    /// Where the kernel is made.
    pub dir: &'a Path,
    /// How long all of it may take.
    pub limit: Duration,
}

/// A kernel that has everything: what does not work there lacks no option.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    /// The compressed image.
    pub image: &'a Path,
    /// Modules that the proof's machine needs.
    pub modules: &'a [Module],
    /// Its configuration.
    pub config: &'a Config,
}

/// A kernel and how it was proven.
#[derive(Debug)]
pub struct Tailored {
    /// The last kernel that was built.
    pub kernel: Kernel,
    /// Its proof.
    pub proof: Proof,
    /// Options that the proof showed to be missing, with why.
    pub added: Vec<Added>,
    /// Kernels that were built on the way, the last one included.
    pub kernels: usize,
    /// Time that compilers took.
    pub build_time: Duration,
}

/// An option that was found to be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Added {
    /// The option.
    pub symbol: Symbol,
    /// Why.
    pub why: String,
}

/// What a tailoring tells of its way.
#[derive(Debug)]
pub enum Step<'a> {
    /// A file was made.
    Made(&'a str),
    /// A kernel is booted.
    Proving,
    /// The proof failed, and why.
    Failed(&'a str),
    /// Debian's kernel is booted: does the application work there?
    Control,
    /// Options are tried, and why.
    Trying(usize, &'a str),
}

/// A tailoring that did not come to an end.
#[derive(Debug, thiserror::Error)]
pub enum TailorError {
    /// The kernel.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The proof.
    #[error(transparent)]
    Prove(#[from] ProveError),
    /// No more time.
    #[error("the time is over ({} min) and what is missing is not found; the consoles are in {}", limit.as_secs() / 60, logs.display())]
    OutOfTime {
        /// How long it was.
        limit: Duration,
        /// The logs.
        logs: PathBuf,
    },
}

/// The loop's state.
struct Round<'a, P> {
    tailoring: &'a Tailoring<'a>,
    order: Order,
    added: Vec<Added>,
    kernels: usize,
    build_time: Duration,
    begin: Instant,
    progress: P,
}

impl Tailoring<'_> {
    /// Does it. `progress` may end a build by `false`.
    pub fn run(
        &self,
        order: Order,
        progress: impl FnMut(Step<'_>) -> bool,
    ) -> Result<Tailored, TailorError> {
        let mut round = Round {
            tailoring: self,
            order,
            added: Vec::new(),
            kernels: 0,
            build_time: Duration::ZERO,
            begin: Instant::now(),
            progress,
        };
        let (kernel, proof) = round.until_proven()?;
        Ok(Tailored {
            kernel,
            proof,
            added: round.added,
            kernels: round.kernels,
            build_time: round.build_time,
        })
    }
}

impl<P: FnMut(Step<'_>) -> bool> Round<'_, P> {
    /// Follows what the guests say, then searches.
    fn until_proven(&mut self) -> Result<(Kernel, Proof), TailorError> {
        let (mut kernel, mut proof) = self.build_and_prove()?;
        for _ in 0..FOLLOWED {
            let Some(failure) = &proof.failure else {
                return Ok((kernel, proof));
            };
            (self.progress)(Step::Failed(failure));
            let console = std::fs::read(&proof.console).unwrap_or_default();
            let console = String::from_utf8_lossy(&console).into_owned();
            let suspects = self.not_yet_added(missing::suspects(&console, &kernel.config));
            if suspects.is_empty() {
                break;
            }
            (self.progress)(Step::Trying(suspects.len(), "the guest's messages"));
            self.add(suspects);
            (kernel, proof) = self.build_and_prove()?;
        }
        let Some(failure) = &mut proof.failure else {
            return Ok((kernel, proof));
        };
        if let Some(why) = self.fails_with_everything()? {
            failure.push_str(&why);
            (self.progress)(Step::Failed(failure));
            return Ok((kernel, proof));
        }
        self.search(kernel, proof)
    }

    /// What is to be said if the application does not work on Debian's kernel
    /// either: then no option is looked for, which would take many builds.
    fn fails_with_everything(&mut self) -> Result<Option<String>, TailorError> {
        let Tailoring {
            application,
            terms,
            debian,
            dir,
            ..
        } = self.tailoring;
        let Some(debian) = debian else {
            return Ok(None);
        };
        (self.progress)(Step::Control);
        let pc = Terms {
            board: Board::Q35,
            ..(*terms).clone()
        };
        let console = dir.join(LOGS).join("proof-debian.log");
        let proof = prove(debian.image, debian.modules, application, &pc, &console)?;
        let console = console.display();
        let told = |why| {
            format!(
                "; Debian's kernel does not pass either ({why}; {console}), so no option is looked for"
            )
        };
        Ok(proof.failure.map(told))
    }

    /// Bisection over what the profile only looked at, then over what the
    /// mapping knows and Debian's kernel has: first over what compiles little
    /// again, since most of the options that a call needs compile all of it.
    fn search(&mut self, kernel: Kernel, proof: Proof) -> Result<(Kernel, Proof), TailorError> {
        let optional = self.order.choice().optional.into_keys();
        let known = self.tailoring.debian;
        let known = known.map(|debian| missing::known(&kernel.config, debian.config));
        let known = known.unwrap_or_default();
        let objects = kernel.image.vmlinux.parent();
        let reach = objects.map(Reach::of).unwrap_or_default();
        let near = known.iter().filter(|symbol| reach.is_near(symbol.name()));
        let sets: [(&str, BTreeSet<Symbol>); 3] = [
            ("what the profile only looked at", optional.collect()),
            (
                "what Debian's kernel has and little of the kernel knows of",
                near.cloned().collect(),
            ),
            ("what Debian's kernel has", known),
        ];
        let kernels = self.kernels;
        for (what, set) in sets {
            if let Some(found) = self.needed_of(what, set, &reach)? {
                self.add(found);
                break;
            }
        }
        match self.kernels == kernels {
            true => Ok((kernel, proof)),
            // The directory has the last one tried: the one that is reported is made.
            false => self.build_and_prove(),
        }
    }

    /// What of a set the proof needs, and why; `None` if all of it does not help.
    fn needed_of(
        &mut self,
        what: &str,
        set: BTreeSet<Symbol>,
        reach: &Reach,
    ) -> Result<Option<BTreeMap<Symbol, String>>, TailorError> {
        let mut candidates = self.grantable(set)?;
        if candidates.is_empty() {
            return Ok(None);
        }
        candidates.sort_by_key(|symbol| reach.objects(symbol.name()));
        (self.progress)(Step::Trying(candidates.len(), what));
        let why = format!("the proof fails without it (bisection over {what})");
        let before = self.order.add.clone();
        let found = search::needed(&candidates, |set| {
            self.order.add = with(&before, set, &why);
            self.proves()
        });
        self.order.add = before;
        let found = found?.map(|all| all.into_iter().map(|it| (it, why.clone())).collect());
        Ok(found)
    }

    /// Whether the order's kernel is proven. Options without what they depend on
    /// make none.
    fn proves(&mut self) -> Result<bool, TailorError> {
        match self.build_and_prove() {
            Ok((_, proof)) => Ok(proof.passed()),
            Err(TailorError::Make(MakeError::Kconfig(KconfigError::NotGranted(_)))) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Those of the options that the kernel's scripts grant with all of the others.
    fn grantable(&self, mut set: BTreeSet<Symbol>) -> Result<Vec<Symbol>, TailorError> {
        let Tailoring { workshop, dir, .. } = self.tailoring;
        let mut order = self.order.clone();
        loop {
            let candidates: Vec<Symbol> = set.iter().cloned().collect();
            if candidates.is_empty() {
                return Ok(candidates);
            }
            order.add = with(&self.order.add, &candidates, "a candidate");
            let solved = workshop.configure(&order, &dir.join(CANDIDATES));
            let Err(MakeError::Kconfig(KconfigError::NotGranted(missing))) = solved else {
                return solved.map(|_| candidates).map_err(TailorError::from);
            };
            set.retain(|symbol| !missing.iter().any(|it| it.symbol == *symbol));
            if set.len() == candidates.len() {
                return Err(MakeError::from(KconfigError::NotGranted(missing)).into());
            }
        }
    }

    fn not_yet_added(&self, suspects: BTreeMap<Symbol, String>) -> BTreeMap<Symbol, String> {
        let all = suspects.into_iter();
        all.filter(|(symbol, _)| !self.order.add.contains_key(symbol))
            .collect()
    }

    fn add(&mut self, symbols: BTreeMap<Symbol, String>) {
        for (symbol, why) in symbols {
            self.order.add.insert(symbol.clone(), why.clone());
            self.added.push(Added { symbol, why });
        }
    }

    fn build_and_prove(&mut self) -> Result<(Kernel, Proof), TailorError> {
        let Tailoring {
            workshop,
            application,
            terms,
            dir,
            limit,
            ..
        } = self.tailoring;
        let logs = dir.join(LOGS);
        if self.begin.elapsed() > *limit {
            let limit = *limit;
            return Err(TailorError::OutOfTime { limit, logs });
        }
        let progress = &mut self.progress;
        let kernel = workshop.make(&self.order, dir, |file| progress(Step::Made(file)))?;
        self.kernels += 1;
        self.build_time += kernel.build_time;
        progress(Step::Proving);
        let console = logs.join(format!("proof-{}.log", self.kernels));
        let proof = prove(&kernel.image.bz_image, &[], application, terms, &console)?;
        Ok((kernel, proof))
    }
}

fn with(before: &BTreeMap<Symbol, String>, set: &[Symbol], why: &str) -> BTreeMap<Symbol, String> {
    let more = set.iter().map(|symbol| (symbol.clone(), why.to_owned()));
    before.clone().into_iter().chain(more).collect()
}
