//! Experiments: `tare weigh`.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StringValueParser;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use tare_experiments::{AppsOptions, TailorOptions};
use tare_lab::kit::{Depth, Entry, Experiment, Make};
use tare_platforms_study::{ContainerEngine, Platform, PlatformOptions};
use tare_tailor::cut::Cut;

use super::offered::offered;
use crate::experiments::known;

/// `tare weigh`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Experiments",
    subcommand_value_name = "EXPERIMENT"
)]
pub(crate) struct WeighArgs {
    #[command(subcommand)]
    pub(crate) experiment: ExperimentArgs,
}

/// One of the experiments with its options: a subcommand for each that is known.
#[derive(Debug)]
pub(crate) struct ExperimentArgs {
    pub(crate) entry: Entry,
    pub(crate) shared: SharedArgs,
    pub(crate) own: Box<dyn OwnArgs>,
}

/// Options that only some experiments have.
pub(crate) trait OwnArgs: std::fmt::Debug {
    /// The experiment as they plan it.
    fn planned(self: Box<Self>, entry: &Entry, depth: Depth) -> Box<dyn Experiment>;
}

/// How such options come into a subcommand and out of it.
struct OwnParser {
    augment: fn(Command) -> Command,
    read: fn(&ArgMatches) -> Result<Box<dyn OwnArgs>, Error>,
}

impl OwnParser {
    /// That of an experiment; one that has its own options needs one more line here.
    fn of(entry: &Entry) -> Self {
        match (entry.name, entry.make) {
            ("tailor", _) => Self::with::<TailorArgs>(),
            ("apps", _) => Self::with::<AppsArgs>(),
            ("platforms", _) => Self::with::<PlatformArgs>(),
            (_, Make::OfImage(_)) => Self::with::<ImageArgs>(),
            (_, Make::Other(_)) => Self::with::<NoArgs>(),
        }
    }

    fn with<A: Args + OwnArgs + 'static>() -> Self {
        Self {
            augment: A::augment_args,
            read: |matches| Ok(Box::new(A::from_arg_matches(matches)?)),
        }
    }
}

impl FromArgMatches for ExperimentArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let missing = || -> Error { Error::new(ErrorKind::MissingSubcommand) };
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let entry = known().into_iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(missing)?;
        Ok(Self {
            entry,
            shared: SharedArgs::from_arg_matches(matches)?,
            own: (OwnParser::of(&entry).read)(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for ExperimentArgs {
    fn augment_subcommands(command: Command) -> Command {
        known().iter().fold(command, |command, entry| {
            let own = SharedArgs::augment_args(Command::new(entry.name));
            // The options' own descriptions are not the experiment's.
            let own = (OwnParser::of(entry).augment)(own).about(entry.about);
            command.subcommand(own.long_about(None::<&str>))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        known().iter().any(|entry| entry.name == name)
    }
}

/// Options of every experiment.
#[derive(Debug, Args)]
pub(crate) struct SharedArgs {
    /// Spend a few seconds on each phase: rough figures, to see whether it works
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Use the durations of the publication that the experiment repeats
    #[arg(long)]
    pub(crate) full: bool,
    /// Exit with 80 if a figure misses its goal by its whole confidence interval, with
    /// 77 if no goal could be decided
    #[arg(long)]
    pub(crate) fail_on_missed: bool,
    /// Compare with the run in this directory, like tare compare
    #[arg(long, value_name = "DIR")]
    pub(crate) against: Option<PathBuf>,
    /// With --against: exit with 80 if a figure is worse by more than PCT percent, by
    /// its whole confidence interval, with 77 if no figure has an interval in both runs
    /// or their depths differ
    #[arg(long, value_name = "PCT", requires = "against", value_parser = percent)]
    pub(crate) fail_on: Option<f64>,
    /// New or empty directory for summary.json, raw.jsonl and report.html
    /// [default: out/EXPERIMENT-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

impl SharedArgs {
    pub(crate) fn depth(&self) -> Depth {
        match (self.quick, self.full) {
            (true, _) => Depth::Quick,
            (false, true) => Depth::Full,
            (false, false) => Depth::Standard,
        }
    }
}

/// An experiment without options.
#[derive(Debug, Args)]
struct NoArgs {}

impl OwnArgs for NoArgs {
    fn planned(self: Box<Self>, entry: &Entry, depth: Depth) -> Box<dyn Experiment> {
        entry.planned(depth, None)
    }
}

/// Options of experiments that measure an image.
#[derive(Debug, Args)]
struct ImageArgs {
    /// Image to measure, by path or name as in tare run [default: the experiment's own]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
}

impl OwnArgs for ImageArgs {
    fn planned(self: Box<Self>, entry: &Entry, depth: Depth) -> Box<dyn Experiment> {
        entry.planned(depth, self.image)
    }
}

/// Options of `tare weigh tailor`.
#[derive(Debug, Args)]
struct TailorArgs {
    /// Example application: lighttpd, nginx, redis, memcached, apache,
    /// haproxy, nginx-workers, python, go, axum, postgres
    /// [default: lighttpd]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = offered(TailorOptions::applications, StringValueParser::new()),
        hide_possible_values = true
    )]
    app: Option<String>,
    /// Measure what each cut saves, or each of these cuts: count instructions with the
    /// cut alone and with all cuts but it. Builds a kernel for each, in minutes if it is
    /// not cached [default: all with --full, else none]
    #[arg(
        long,
        value_name = "NAME,...",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        value_parser = offered(cuts, |name: &str| name.parse::<Cut>()),
        hide_possible_values = true
    )]
    cuts: Option<Vec<Cut>>,
    /// Also measure a kernel with Firecracker's guest configuration, which is
    /// microvm-kernel-ci-x86_64-6.1.config in its sources. Repeatable, for versions that
    /// have PCI in pcie.config: a later file wins. Later runs use the cached kernel
    #[arg(long = "config", value_name = "FILE")]
    configs: Vec<PathBuf>,
    /// Count the CVEs of the last two years that affect a compiled file of each kernel, from
    /// the kernel's records (cve/published of vulns.git)
    #[arg(long, value_name = "DIR")]
    cves: Option<PathBuf>,
}

impl OwnArgs for TailorArgs {
    fn planned(self: Box<Self>, _: &Entry, depth: Depth) -> Box<dyn Experiment> {
        let options = TailorOptions {
            app: self.app,
            cuts: self.cuts,
            configs: self.configs,
            cves: self.cves,
        };
        options.planned(depth)
    }
}

/// Options of `tare weigh apps`.
#[derive(Debug, Args)]
struct AppsArgs {
    /// Application to measure: memcached, redis, nginx, go, axum, or the data file of
    /// another one (docs/apps.md); repeatable [default: these five]
    #[arg(
        long = "app",
        value_name = "NAME|FILE.toml",
        value_parser = offered(AppsOptions::applications, StringValueParser::new()),
        hide_possible_values = true
    )]
    apps: Vec<String>,
    /// Packaging to measure: tare, process, container, gvisor, linux, tailored, tare_tcg,
    /// linux_tcg or tailored_tcg; repeatable [default: all]
    #[arg(
        long = "packaging",
        value_name = "NAME",
        value_parser = offered(AppsOptions::packagings, StringValueParser::new()),
        hide_possible_values = true
    )]
    packagings: Vec<String>,
    /// Also measure APP in a Linux guest with a tailored kernel: FILE, or the one that
    /// tare weigh tailor --app APP built; repeatable, one for each application
    #[arg(
        long = "kernel",
        value_name = "APP[=FILE]",
        value_parser = offered(AppsOptions::applications, app_and_file),
        hide_possible_values = true
    )]
    kernels: Vec<(String, Option<PathBuf>)>,
}

impl OwnArgs for AppsArgs {
    fn planned(self: Box<Self>, _: &Entry, depth: Depth) -> Box<dyn Experiment> {
        let options = AppsOptions {
            apps: self.apps,
            packagings: self.packagings,
            kernels: self.kernels,
        };
        options.planned(depth)
    }
}

fn cuts() -> Vec<&'static str> {
    Cut::ALL.map(Cut::name).to_vec()
}

fn platforms() -> Vec<&'static str> {
    Platform::ALL.map(Platform::name).to_vec()
}

fn container_engines() -> Vec<&'static str> {
    let all = [ContainerEngine::Runc, ContainerEngine::Podman];
    all.map(ContainerEngine::name).to_vec()
}

fn experiments() -> Vec<&'static str> {
    known().iter().map(|entry| entry.name).collect()
}

/// A name, and a path if there is one.
fn app_and_file(text: &str) -> Result<(String, Option<PathBuf>), Infallible> {
    Ok(match text.split_once('=') {
        Some((app, file)) => (app.to_owned(), Some(file.into())),
        None => (text.to_owned(), None),
    })
}

/// A percentage that a figure may be worse by.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    number
        .filter(|percent| percent.is_finite() && *percent >= 0.0)
        .ok_or_else(|| "not a percentage from 0 on, such as 3".to_owned())
}

/// `tare compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Directory of the run before
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// Directory of the run after
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// Exit with 80 if a figure is worse by more than PCT percent, by its whole
    /// confidence interval, with 77 if AFTER did not complete, no figure has an
    /// interval in both runs, or their depths differ
    #[arg(long, value_name = "PCT", value_parser = percent)]
    pub(crate) fail_on: Option<f64>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: CompareFormat,
}

/// Forms of a comparison.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum CompareFormat {
    /// A table of the figures that changed
    Text,
    /// All figures, for a pull request
    Markdown,
    /// One line for each figure
    Csv,
    /// The whole comparison
    Json,
}

/// `tare report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directory with the raw.jsonl of a run; with --history, of run directories
    /// [default: out and lab/runs]
    #[arg(value_name = "DIR", required_unless_present = "history")]
    pub(crate) dir: Option<PathBuf>,
    /// Write report.html only
    #[arg(long)]
    pub(crate) page: bool,
    /// Draw the figures of an experiment over its stored runs
    #[arg(
        long,
        value_name = "EXPERIMENT",
        conflicts_with = "page",
        value_parser = offered(experiments, StringValueParser::new()),
        hide_possible_values = true
    )]
    pub(crate) history: Option<String>,
    /// With --history: draw only figures whose names begin with NAME [default: all]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        requires = "history"
    )]
    pub(crate) figure: String,
    /// With --history: file for the page [default: out/history-EXPERIMENT.html]
    #[arg(long, value_name = "FILE", requires = "history")]
    pub(crate) out: Option<PathBuf>,
}

/// Options of `tare weigh platforms`.
#[derive(Debug, Args)]
struct PlatformArgs {
    /// Workload by name or file; repeatable [default: all that --quick or --full includes]
    #[arg(
        long = "workload",
        value_name = "NAME|FILE.toml",
        value_parser = offered(Platform::workloads, StringValueParser::new()),
        hide_possible_values = true
    )]
    workloads: Vec<String>,
    /// Platform: bare, container, vm, vm-container or appliance; repeatable. Costs are relative to
    /// bare [default: all]
    #[arg(
        long = "platform",
        value_name = "NAME",
        conflicts_with = "merge",
        value_parser = offered(platforms, |name: &str| name.parse::<Platform>()),
        hide_possible_values = true
    )]
    platforms: Vec<Platform>,
    /// Sizes in CPUs [default: 1, 2, 4, ... up to all]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    sizes: Vec<u32>,
    /// Program that starts containers; podman uses runc underneath
    #[arg(
        long,
        value_name = "runc|podman",
        default_value = "runc",
        value_parser = offered(container_engines, |name: &str| name.parse::<ContainerEngine>()),
        hide_possible_values = true
    )]
    container_engine: ContainerEngine,
    /// Continue the run record in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Run only part I of N, to divide the runs among several jobs or hosts
    #[arg(long, value_name = "I/N", value_parser = tare_platforms_study::parse_shard)]
    shard: Option<(u32, u32)>,
    /// Instead of measuring, merge the run records in this directory; repeatable, for
    /// records of several hosts
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "shard"])]
    merge: Vec<PathBuf>,
    /// Seed for the random order [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Minutes to spend on runs [default: 12 with --quick, 720 with --full, else 45]
    #[arg(long, value_name = "MINUTES")]
    budget: Option<u32>,
}

impl OwnArgs for PlatformArgs {
    fn planned(self: Box<Self>, _: &Entry, depth: Depth) -> Box<dyn Experiment> {
        let minutes = |minutes: u32| Duration::from_secs(u64::from(minutes) * 60);
        let options = PlatformOptions {
            workloads: self.workloads,
            platforms: self.platforms,
            sizes: self.sizes,
            container_engine: self.container_engine,
            resume: self.resume,
            shard: self.shard,
            merge: self.merge,
            seed: self.seed,
            budget: self.budget.map(minutes),
        };
        options.planned(depth)
    }
}
