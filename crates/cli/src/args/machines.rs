//! Machines: `tare ps`, `stop`, `kill`, `rm`, `logs`, `stats`, `set`, `reload`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use tare_host::signal_number::SignalNumber;

/// `tare ps`.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Also list machines that have ended, with their exit codes
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tare stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Machines to stop
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Seconds to wait before a machine is killed
    #[arg(short, long, value_name = "SECONDS", default_value_t = 5)]
    pub(crate) time: u32,
}

/// `tare kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Machines to kill or signal
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Signal, by name or number: HUP, SIGUSR1, 15
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL")]
    pub(crate) signal: SignalNumber,
}

/// `tare rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Machines to remove
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

/// `tare logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The machine
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print escape sequences unchanged (a terminal executes them)
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print new output until the machine ends
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `tare stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The machine
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Watch the disks: IOPS, requests in flight, delivery ratio R (interrupts per
    /// completion) and its distribution, in each interval of this many seconds
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1"
    )]
    pub(crate) watch: Option<WatchSeconds>,
    /// End after this many intervals
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An interval between samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WatchSeconds(pub(crate) Duration);

impl FromStr for WatchSeconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(seconds) if (0.05..=3600.0).contains(&seconds) => {
                Ok(Self(Duration::from_secs_f64(seconds)))
            }
            _ => Err("an interval is 0.05 to 3600 seconds"),
        }
    }
}

/// `tare set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The machine
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What to change, such as disk0.coalesce=4/5
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tare reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// The machine
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Directory with the new files
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// Website configuration (site.toml), as for tare run --site; required if the
    /// machine was started with --site
    #[arg(long, value_name = "FILE")]
    pub(crate) site: Option<PathBuf>,
    /// Seconds to wait until the machine serves the new files
    #[arg(short, long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) time: u32,
}
