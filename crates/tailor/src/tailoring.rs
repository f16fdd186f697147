//! From a spec to a proven kernel: build, prove, and where the proof fails
//! find what is missing, add it, and go round again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use tare_init::Logging;
use tare_qemu::MachineType;
use tare_rootfs::modules::Module;

use crate::build::Reach;
use crate::choose::choose;
use crate::kconfig::{Config, KconfigError};
use crate::kernel::{Kernel, KernelBuilder, MakeError};
use crate::mapping::Symbol;
use crate::prove::{Proof, ProofConfig, ProveError, prove};
use crate::root::Application;
use crate::spec::KernelSpec;
use crate::{machine, missing, refused, search};

/// Console of the proof on Debian's kernel, among the logs.
pub const CONTROL_LOG: &str = "proof-debian.log";
/// Configurations of candidates, in the kernel's directory.
const CANDIDATES: &str = "candidates";
/// Proofs after which a guest's messages, or what it is refused, are no longer
/// followed.
const FOLLOWED: usize = 4;
/// Where options come from that a refused system call points at.
const REFUSED: &str = "what only this kernel refuses";

/// A tailoring to be done.
#[derive(Debug)]
pub struct Tailoring<'a> {
    /// Sources and compilers.
    pub builder: &'a KernelBuilder,
    /// The application.
    pub application: &'a Application,
    /// How it is proven.
    pub terms: &'a ProofConfig,
    /// Debian's kernel: what an application may have had where it worked.
    pub debian: Option<Control<'a>>,
    /// Where the kernel is made.
    pub dir: &'a Path,
    /// Where the consoles of the proofs go.
    pub logs: &'a Path,
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
    /// Another of several applications is next, by its place.
    Application(usize),
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
    /// The application does not pass on Debian's kernel either.
    #[error("the application does not work on Debian's kernel either: {why}; no kernel was built; the console is in {}", console.display())]
    Control {
        /// How the proof failed.
        why: String,
        /// The console's log.
        console: PathBuf,
    },
    /// No more time.
    #[error("no working kernel found within {} min; the consoles are in {}", limit.as_secs() / 60, logs.display())]
    OutOfTime {
        /// How long it was.
        limit: Duration,
        /// The logs.
        logs: PathBuf,
    },
}

/// Options, each with why it is needed or may be.
type Reasons = BTreeMap<Symbol, String>;

/// What was found to be refused.
#[derive(Debug, Default)]
struct Refused {
    /// Options that it points at.
    suspects: Reasons,
    /// What is refused still, as a sentence has it.
    told: String,
}

/// The loop's state.
struct Round<'a, P> {
    tailoring: &'a Tailoring<'a>,
    spec: KernelSpec,
    added: Vec<Added>,
    kernels: usize,
    build_time: Duration,
    begin: Instant,
    progress: P,
}

impl Tailoring<'_> {
    /// Does it, until its proof's terms are interrupted.
    pub fn run(
        &self,
        spec: KernelSpec,
        progress: impl FnMut(Step<'_>),
    ) -> Result<Tailored, TailorError> {
        let mut round = Round {
            tailoring: self,
            spec,
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

impl<P: FnMut(Step<'_>)> Round<'_, P> {
    /// Follows what the guests say, then searches.
    fn until_proven(&mut self) -> Result<(Kernel, Proof), TailorError> {
        // Seconds, where a kernel takes minutes.
        self.check_on_debians_kernel()?;
        let (mut kernel, mut proof) = self.build_and_prove()?;
        for _ in 0..FOLLOWED {
            let Some(failure) = &proof.failure else {
                return Ok((kernel, proof));
            };
            (self.progress)(Step::Failed(failure));
            let console = machine::console(&proof.console);
            let suspects = self.not_yet_added(missing::suspects(
                &console,
                &kernel.config,
                self.spec.series,
            ));
            if suspects.is_empty() {
                break;
            }
            (self.progress)(Step::Trying(suspects.len(), "the guest's messages"));
            self.add(suspects);
            (kernel, proof) = self.build_and_prove()?;
        }
        if proof.failure.is_none() {
            return Ok((kernel, proof));
        }
        let refused = self.follow_refusals(&kernel)?;
        let (kernel, mut proof) = self.search(kernel, proof, refused.suspects)?;
        if let Some(failure) = &mut proof.failure
            && !refused.told.is_empty()
        {
            let told = format!("; only this kernel refuses {}", refused.told);
            failure.push_str(&told);
        }
        Ok((kernel, proof))
    }

    /// Fails if the application does not work on Debian's kernel either, which has
    /// every option that could be added.
    fn check_on_debians_kernel(&mut self) -> Result<(), TailorError> {
        let Some(proof) = self.control(CONTROL_LOG, Logging::Off)? else {
            return Ok(());
        };
        match proof.failure {
            None => Ok(()),
            Some(why) => Err(TailorError::Control {
                why,
                console: proof.console,
            }),
        }
    }

    /// The same proof on Debian's kernel, where that is at hand.
    fn control(&mut self, log: &str, refusals: Logging) -> Result<Option<Proof>, TailorError> {
        let Tailoring {
            application,
            terms,
            debian,
            logs,
            ..
        } = self.tailoring;
        let Some(debian) = debian else {
            return Ok(None);
        };
        (self.progress)(Step::Control);
        let pc = ProofConfig {
            machine_type: MachineType::Q35,
            refusals,
            ..(*terms).clone()
        };
        let console = logs.join(log);
        let proof = prove(debian.image, debian.modules, application, &pc, &console)?;
        Ok(Some(proof))
    }

    /// What this kernel refuses the application and Debian's does not, round by
    /// round: a program that ended by the first refusal meets the next one later.
    fn follow_refusals(&mut self, kernel: &Kernel) -> Result<Refused, TailorError> {
        let mut refused = Refused::default();
        let Some(there) = self.control("refusals-debian.log", Logging::On)? else {
            return Ok(refused);
        };
        let there = machine::console(&there.console);
        let before = self.spec.add.clone();
        let telling = ProofConfig {
            refusals: Logging::On,
            ..self.tailoring.terms.clone()
        };
        let mut kernel = kernel.clone();
        for round in 1..=FOLLOWED {
            let log = format!("refusals-{round}.log");
            let proof = self.prove(&kernel, &telling, &log)?;
            let only_here = refused::only_here(&machine::console(&proof.console), &there);
            refused.told = refused::listed(&only_here);
            if proof.passed() {
                break;
            }
            let suspects = refused::suspects(&only_here, &self.spec, &kernel.config);
            let suspects = self.grantable(suspects)?;
            if suspects.is_empty() {
                break;
            }
            (self.progress)(Step::Trying(suspects.len(), REFUSED));
            self.spec.add.extend(suspects.clone());
            refused.suspects.extend(suspects);
            kernel = self.build()?;
        }
        self.spec.add = before;
        Ok(refused)
    }

    /// Bisection over what is refused, over what the profile only looked at, then
    /// over what the mapping knows and Debian's kernel has: first over what compiles
    /// little again, since most of the options that a call needs compile all of it.
    fn search(
        &mut self,
        kernel: Kernel,
        proof: Proof,
        refused: Reasons,
    ) -> Result<(Kernel, Proof), TailorError> {
        let optional: BTreeSet<Symbol> = choose(&self.spec).optional.into_keys().collect();
        let known = self.tailoring.debian;
        let known = known
            .map(|debian| missing::known(&kernel.config, debian.config, self.spec.series))
            .unwrap_or_default();
        let objects = kernel.image.vmlinux.parent();
        let reach = objects.map(Reach::of).unwrap_or_default();
        let near = known
            .iter()
            .filter(|symbol| reach.is_near(symbol.name()))
            .cloned()
            .collect();
        let guesses = [
            ("what the profile only looked at", optional),
            (
                "what Debian's kernel has and little of the kernel knows of",
                near,
            ),
            ("what Debian's kernel has", known),
        ]
        .map(|(what, set)| {
            let why = format!("the proof fails without it (bisection over {what})");
            let set = set.into_iter().map(|symbol| (symbol, why.clone()));
            (what, set.collect())
        });
        let kernels = self.kernels;
        for (what, set) in std::iter::once((REFUSED, refused)).chain(guesses) {
            if let Some(found) = self.needed_of(what, set, &reach)? {
                self.add(found);
                break;
            }
        }
        if self.kernels == kernels {
            Ok((kernel, proof))
        } else {
            // The directory has the last one tried: the one that is reported is made.
            self.build_and_prove()
        }
    }

    /// What of a set the proof needs; `None` if all of it does not help.
    fn needed_of(
        &mut self,
        what: &str,
        set: Reasons,
        reach: &Reach,
    ) -> Result<Option<Reasons>, TailorError> {
        let mut candidates: Vec<_> = self.grantable(set)?.into_iter().collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        candidates.sort_by_key(|(symbol, _)| reach.objects(symbol.name()));
        (self.progress)(Step::Trying(candidates.len(), what));
        let before = self.spec.add.clone();
        let found = search::needed(&candidates, |set| {
            self.spec.add = before.clone();
            self.spec.add.extend(set.iter().cloned());
            self.proves()
        });
        self.spec.add = before;
        Ok(found?.map(|all| all.into_iter().collect()))
    }

    /// Whether the spec's kernel is proven. Options without what they depend on
    /// make none.
    fn proves(&mut self) -> Result<bool, TailorError> {
        match self.build_and_prove() {
            Ok((_, proof)) => Ok(proof.passed()),
            Err(TailorError::Make(MakeError::Kconfig(KconfigError::NotGranted(_)))) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Those of the options that the kernel's scripts grant with all of the others.
    fn grantable(&self, mut set: Reasons) -> Result<Reasons, TailorError> {
        let Tailoring {
            builder,
            dir,
            terms,
            ..
        } = self.tailoring;
        let mut spec = self.spec.clone();
        while !set.is_empty() {
            spec.add.clone_from(&self.spec.add);
            spec.add.extend(set.clone());
            let goes_on = || terms.may_go_on();
            let solved = builder.configure(&spec, &dir.join(CANDIDATES), &goes_on);
            let Err(MakeError::Kconfig(KconfigError::NotGranted(missing))) = solved else {
                solved?;
                break;
            };
            let count = set.len();
            set.retain(|symbol, _| !missing.iter().any(|it| it.symbol == *symbol));
            if set.len() == count {
                return Err(MakeError::from(KconfigError::NotGranted(missing)).into());
            }
        }
        Ok(set)
    }

    fn not_yet_added(&self, suspects: Reasons) -> Reasons {
        let all = suspects.into_iter();
        all.filter(|(symbol, _)| !self.spec.add.contains_key(symbol))
            .collect()
    }

    fn add(&mut self, symbols: Reasons) {
        for (symbol, why) in symbols {
            self.spec.add.insert(symbol.clone(), why.clone());
            self.added.push(Added { symbol, why });
        }
    }

    fn build_and_prove(&mut self) -> Result<(Kernel, Proof), TailorError> {
        let kernel = self.build()?;
        let log = format!("proof-{}.log", self.kernels);
        let proof = self.prove(&kernel, self.tailoring.terms, &log)?;
        Ok((kernel, proof))
    }

    /// A proof on a kernel; its console is in a log of this name.
    fn prove(
        &mut self,
        kernel: &Kernel,
        terms: &ProofConfig,
        log: &str,
    ) -> Result<Proof, TailorError> {
        let Tailoring {
            application, logs, ..
        } = self.tailoring;
        (self.progress)(Step::Proving);
        let (image, console) = (&kernel.image.bz_image, logs.join(log));
        Ok(prove(image, &[], application, terms, &console)?)
    }

    fn build(&mut self) -> Result<Kernel, TailorError> {
        let Tailoring {
            builder,
            dir,
            logs,
            limit,
            terms,
            ..
        } = self.tailoring;
        if self.begin.elapsed() > *limit {
            let (limit, logs) = (*limit, logs.to_path_buf());
            return Err(TailorError::OutOfTime { limit, logs });
        }
        let progress = &mut self.progress;
        let goes_on = || terms.may_go_on();
        let made = |file: &str| progress(Step::Made(file));
        let kernel = builder.make(&self.spec, dir, &goes_on, made)?;
        self.kernels += 1;
        self.build_time += kernel.build_time;
        Ok(kernel)
    }
}
