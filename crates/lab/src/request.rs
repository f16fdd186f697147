//! What `tare weigh` is to run.

use std::path::PathBuf;

use tare_tailor::cut::Cut;

/// How long an experiment may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Depth {
    /// `--quick`: does it work, roughly; intervals are wide.
    Quick,
    /// Enough to decide the experiment's goals on a quiet machine: minutes.
    #[default]
    Standard,
    /// `--full`: the durations of the experiment's source (docs/background.md).
    Full,
}

impl Depth {
    /// The depth of a name in a record; the standard one for any other.
    pub fn named(name: &str) -> Self {
        let all = [Self::Quick, Self::Standard, Self::Full];
        let mut named = all.into_iter().filter(|depth| depth.name() == name);
        named.next().unwrap_or_default()
    }

    /// What is for this depth, of what is for quick, standard and full.
    pub const fn of<T: Copy>(self, [quick, standard, full]: [T; 3]) -> T {
        match self {
            Self::Quick => quick,
            Self::Standard => standard,
            Self::Full => full,
        }
    }

    /// The name as written in records and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}

/// A request to weigh something.
#[derive(Clone, Debug)]
pub struct WeighRequest {
    /// Name of the experiment, one of the registry (`crate::experiments`).
    pub experiment: String,
    /// How long it may take.
    pub depth: Depth,
    /// Where the results go; `None` makes `out/EXPERIMENT-DATE-TIME` here. A
    /// directory that exists must be empty.
    pub out: Option<PathBuf>,
    /// The `tare` executable that starts machines; `None` is this process's own.
    pub tare: Option<PathBuf>,
    /// Image name or path, as `tare run` takes it; `None` is the experiment's own.
    pub image: Option<String>,
    /// Whether a missed goal fails the run.
    pub fail_on_missed: bool,
    /// A run record to be continued, of an experiment that can.
    pub resume: Option<PathBuf>,
    /// The example application of `tailor`; `None` is lighttpd.
    pub app: Option<String>,
    /// Cuts that `tailor` weighs one by one; empty is all, `None` is as the depth says.
    pub cuts: Option<Vec<Cut>>,
    /// Files of Firecracker's configuration of a guest's kernel, for `tailor`, of which a later
    /// one wins; empty is the configuration of an earlier run, if there was one.
    pub configs: Vec<PathBuf>,
    /// Directory of CVE records that `tailor` counts.
    pub cves: Option<PathBuf>,
    /// Kernels of Linux guests for `apps`: name of an application, file; `None` is the one that
    /// `tailor` built for it.
    pub kernels: Vec<(String, Option<PathBuf>)>,
    /// The earlier run, or its `summary.json`, that the page has beside the new one.
    pub against: Option<PathBuf>,
    /// Revision of the source that this program was built from.
    pub revision: String,
    /// The command as it was typed, recorded in `command.txt`.
    pub command: Vec<String>,
}

impl WeighRequest {
    /// A request for `experiment` with everything else as by default.
    pub fn new(experiment: impl Into<String>) -> Self {
        Self {
            experiment: experiment.into(),
            depth: Depth::default(),
            out: None,
            tare: None,
            image: None,
            app: None,
            cuts: None,
            configs: Vec::new(),
            cves: None,
            kernels: Vec::new(),
            fail_on_missed: false,
            resume: None,
            against: None,
            revision: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            command: std::env::args().collect(),
        }
    }
}
