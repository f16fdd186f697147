//! Where and how something runs: `tare advise`, `tare pin`.

use std::str::FromStr;

use clap::Args;

use crate::seconds::Seconds;

/// `tare advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// A planned workload by name (ffmpeg, mpi-search, wordpress, cassandra, redis,
    /// ...), or a running machine, container or process (as for tare pin)
    #[arg(value_name = "WORKLOAD|PID|VM|CONTAINER")]
    pub(crate) target: Option<String>,
    /// Seconds to watch
    #[arg(short, long, value_name = "N", default_value = "5")]
    pub(crate) seconds: Seconds,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Alternate between pinned and not pinned, compare, and keep it pinned only if that
    /// helped
    #[arg(long = "try", requires = "target", conflicts_with = "json")]
    pub(crate) try_it: bool,
}

/// `tare pin`.
#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// A machine by name or process ID (Tare, QEMU, libvirt, Firecracker, Cloud
    /// Hypervisor), a container by name, ID or cgroup (/sys/fs/cgroup/...), or a
    /// process by ID
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
    /// CPUs to use (0-3,8), or auto: selected by cores, NUMA nodes, isolated CPUs and
    /// load [default: auto]
    #[arg(long, value_name = "LIST|auto")]
    pub(crate) cpus: Option<CpuChoice>,
    /// Restore the old placement after this many seconds
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "undo")]
    pub(crate) for_seconds: Option<Seconds>,
    /// Restore the old placement now
    #[arg(long, conflicts_with_all = ["cpus", "dry_run"])]
    pub(crate) undo: bool,
    /// Print where each thread would go, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `--cpus`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CpuChoice(pub(crate) tare_pin::Choice);

impl FromStr for CpuChoice {
    type Err = tare_pin::CpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(match text {
            "auto" => tare_pin::Choice::Auto,
            list => tare_pin::Choice::Cpus(list.parse()?),
        }))
    }
}
