//! What a kernel is made for: an application's profile, a machine, and cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use tare_profile::Profile;

use crate::counts::ExecutionCounts;
use crate::cut::Cut;
use crate::mapping::Symbol;
use crate::source::Series;
use crate::target::{Part, Target};

/// What a kernel is made for, and how.
#[derive(Clone, Debug)]
pub struct KernelSpec {
    /// The application's use of the kernel.
    pub profile: Profile,
    /// What the sources are a version of.
    pub series: Series,
    /// The machine.
    pub target: Target,
    /// The machine's parts.
    pub parts: BTreeSet<Part>,
    /// Cuts that are taken.
    pub cuts: BTreeSet<Cut>,
    /// Symbols that are added, each with the reason.
    pub add: BTreeMap<Symbol, String>,
    /// Optional symbols that are built all the same.
    pub keep: BTreeSet<Symbol>,
    /// Parameters that it boots with, before those of its machine: words of
    /// [`crate::tuning::settings`].
    pub parameters: Vec<String>,
    /// What the compiler optimizes by.
    pub counted: Option<Counted>,
}

/// Execution counts of sources, by whose path gcc finds them.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The counts.
    pub counts: Arc<ExecutionCounts>,
    /// The directory of the sources, with their patches, of the instrumented kernel.
    pub sources: PathBuf,
}

/// What an instrumented kernel has besides (Documentation/dev-tools/gcov.rst).
const INSTRUMENTED: [&str; 3] = ["DEBUG_FS", "GCOV_KERNEL", "GCOV_PROFILE_ALL"];

impl KernelSpec {
    /// A spec for a profile with the default cuts and the parts that it shows.
    pub fn new(profile: Profile, target: Target) -> Self {
        let inet = |family: &str| matches!(family, "AF_INET" | "AF_INET6");
        let mut sockets = profile.features.sockets.iter();
        let uses_network = sockets.any(|socket| inet(&socket.family));
        Self {
            profile,
            series: Series::default(),
            target,
            parts: uses_network.then_some(Part::Network).into_iter().collect(),
            cuts: Cut::by_default(),
            add: BTreeMap::new(),
            keep: BTreeSet::new(),
            parameters: Vec::new(),
            counted: None,
        }
    }

    /// The same kernel with counters in its code, which counts what the application executes.
    #[must_use]
    pub fn instrumented(&self) -> Self {
        let mut spec = Self {
            counted: None,
            ..self.clone()
        };
        for symbol in INSTRUMENTED.into_iter().filter_map(Symbol::new) {
            spec.add.insert(symbol, "execution counts".to_owned());
        }
        spec
    }

    /// The same for sources of another series.
    #[must_use]
    pub fn on(&self, series: Series) -> Self {
        Self {
            series,
            ..self.clone()
        }
    }
}
