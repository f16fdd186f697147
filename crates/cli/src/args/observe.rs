//! Watching machines and applications: `tare why`, `profile`, `top`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tare_launch::publish::Publish;

use crate::seconds::Seconds;
use crate::top::Column;

/// `tare why`.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The machine, by process ID or name [default: all on this host]
    #[arg(value_name = "PID|NAME")]
    pub(crate) target: Option<String>,
    /// Seconds to watch
    #[arg(short, long, value_name = "N", default_value = "5")]
    pub(crate) seconds: Seconds,
    /// Show only the N machines with the most CPU time
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<usize>,
    /// Costs of exits: the summary.json of a tare weigh vmexit run [default: the
    /// newest of this host in out, lab/runs, the state directory or the source tree of
    /// tare, else built-in estimates]
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Print what changed between two reports of --json
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with_all = ["target", "json"])]
    pub(crate) compare: Option<Vec<PathBuf>>,
    /// Print JSON (docs/why.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tare profile`.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ProfileVerb>,
    /// Static program to observe; the profile lists which of its calls the library OS
    /// (tare run PROGRAM) does not support. Its arguments come after --
    #[arg(value_name = "PROGRAM", group = "subject")]
    pub(crate) program: Option<PathBuf>,
    /// Command to start and observe
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// Observe a running process and its descendants
    #[arg(long, value_name = "PID", group = "subject")]
    pub(crate) pid: Option<u32>,
    /// Observe a container: its name or ID, or the path of its cgroup
    #[arg(long, value_name = "NAME|ID|CGROUP", group = "subject")]
    pub(crate) container: Option<String>,
    /// Run the command in a QEMU guest with Debian's kernel and these files: a directory
    /// or a container image
    #[arg(long, value_name = "IMAGE|DIR", group = "subject")]
    pub(crate) in_guest: Option<PathBuf>,
    /// Label for the observed phase of the application (start-up, peak)
    #[arg(
        long,
        value_name = "LABEL",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) label: String,
    /// End the command after this many seconds [default: wait until all processes end]
    #[arg(short, long, value_name = "N")]
    pub(crate) seconds: Option<Seconds>,
    /// Write the profile to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write every single call to a file: time, task, arguments, result, duration
    #[arg(long, value_name = "FILE", conflicts_with = "in_guest")]
    pub(crate) log: Option<PathBuf>,
    /// Record call graphs of these calls in the guest's kernel (read,openat), in a
    /// second run
    #[arg(
        long,
        value_name = "CALL",
        value_delimiter = ',',
        requires = "in_guest"
    )]
    pub(crate) graph: Vec<String>,
    /// Directory for the call graphs: CALL.txt, CALL.folded, CALL.svg
    #[arg(long, value_name = "DIR", default_value = ".", requires = "graph")]
    pub(crate) graph_out: PathBuf,
    /// Forward a port of the host to the guest
    #[arg(
        short,
        long = "publish",
        value_name = "[ADDR:]HOST:GUEST",
        requires = "in_guest"
    )]
    pub(crate) publish: Vec<Publish>,
    /// Print the profile as JSON; the command's output goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tare profile merge`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileVerb {
    /// Merge several profiles (start-up, peak, shutdown) into one
    Merge(MergeArgs),
}

/// `tare profile merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Profiles
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// File for the merged profile
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// `tare top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print one table and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between updates; longer if observing costs more than 2 % of a core
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub(crate) interval: Seconds,
    /// Sort by: name, pid, cpu, guest, exits, halts, irqs, steal, disk, net, faults, cause
    #[arg(
        short,
        long,
        value_name = "COLUMN",
        default_value = "cpu",
        hide_possible_values = true
    )]
    pub(crate) sort: Column,
}
