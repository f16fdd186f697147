//! The command line as it is written. Nothing is checked here beyond the form
//! of each word; `run::plan` and the verbs check what the words mean.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tare_control::halt::HaltPolicy;

use crate::exit_codes;
use crate::run::disk_choice::DiskChoice;
use crate::run::machine_size;
use crate::run::memory_size::MemorySize;
use crate::run::net_choice::NetChoice;
use crate::run::publish::Publish;
use crate::seconds::Seconds;
use crate::tailor::args::TailorArgs;
use crate::top::Column;

/// Runs one application per virtual machine, and weighs what that costs.
#[derive(Debug, Parser)]
#[command(
    name = "tare",
    version,
    about,
    max_term_width = 79,
    arg_required_else_help = true,
    after_help = "Exit codes: tare exit-codes. Machine-readable output: --json."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Boot an appliance
    ///
    /// In the foreground the guest's serial console is the terminal, and Ctrl-C
    /// ends the run. Without /dev/kvm the same image runs in QEMU, which is
    /// slower. IMAGE is looked up in $TARE_IMAGES and beside tare, or is a path. A
    /// Linux guest: tare run --kernel debian --root DIR -- COMMAND.
    Run(Box<RunArgs>),
    /// List the running machines
    Ps(PsArgs),
    /// Stop machines
    ///
    /// Asks, waits, and kills what does not end in time.
    Stop(StopArgs),
    /// Print what a machine wrote to its console
    Logs(LogsArgs),
    /// Show a machine's statistics
    Stats(StatsArgs),
    /// Change settings of a machine while it runs, or list them
    ///
    /// Without KEY=VALUE every setting is listed with its value and meaning. All
    /// of a change is made, or nothing.
    Set(SetArgs),
    /// Serve a disk to QEMU or Cloud Hypervisor (vhost-user-blk)
    ///
    /// The device of tare run --disk, with its coalescing, for virtual machines
    /// of others; their memory must be shared. Ends with Ctrl-C, SIGTERM or tare
    /// stop. QEMU: -object memory-backend-memfd,id=m,size=1G,share=on
    /// -machine memory-backend=m -chardev socket,id=c,path=S,reconnect=1
    /// -device vhost-user-blk-pci,chardev=c. Cloud Hypervisor: --memory
    /// size=1G,shared=on --disk vhost_user=true,socket=S.
    Blk(BlkArgs),
    /// Say what burns a virtual machine's CPU time, and the remedy
    ///
    /// Any KVM virtual machine of this host, Tare's or not: watches it for a
    /// while and names the causes, the largest first. Observing needs root, or
    /// CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; what is missing is named, and the
    /// rest is told.
    Why(WhyArgs),
    /// Say what an application asks of its kernel
    ///
    /// Counts every system call of a command and of all that descends from it,
    /// with the arguments that select features of a kernel, until they end. The
    /// profile is a file for tare tailor. Observing needs root, or CAP_BPF,
    /// CAP_PERFMON and CAP_SYS_PTRACE. The command's status is passed on.
    #[command(args_conflicts_with_subcommands = true)]
    Profile(Box<ProfileArgs>),
    /// Watch all virtual machines: CPU, exits, halts, interrupts, causes
    Top(TopArgs),
    /// Put all threads of a machine, container or process onto CPUs, and back
    ///
    /// vCPUs get a CPU each, emulator and I/O threads others where there are any;
    /// containers get a cpuset. Threads that begin meanwhile are caught, and what
    /// the kernel took is read back. The old placement is written down first: it
    /// comes back with --undo, at the end of --for, with Ctrl-C, and after a kill
    /// with the next tare pin or tare advise.
    Pin(PinArgs),
    /// Cut a Linux kernel to one application and prove that it works
    ///
    /// From profiles (tare profile) to options, from options to a kernel, whose
    /// application is then checked in a guest; what the proof shows to be missing is
    /// added. With the same --out a kernel grows again by --add in a few minutes. The
    /// default takes no cut that gives up safety.
    #[command(after_help = crate::tailor::args::cuts())]
    Tailor(Box<TailorArgs>),
    /// Say what to change about how an application runs, with the evidence
    ///
    /// The second talk's best practices and what came since, as rules: each names
    /// its slide or run, what was measured, the gain to expect and the command.
    /// Without a target: what each kind of work should get on this computer.
    Advise(AdviseArgs),
    /// Say what this computer offers to Tare
    ///
    /// One line for each thing, with the remedy where something is missing or
    /// limited. KVM is judged by running code in a throw-away machine.
    Doctor(DoctorArgs),
    /// Run an experiment and write its figures and report
    Weigh(WeighArgs),
    /// Print the exit codes and their meanings
    #[command(long_about = exit_codes::long_about())]
    ExitCodes,
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for each verb
    Man(ManArgs),
}

/// `tare run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Image: a path, or the name of an image that came with Tare (http)
    #[arg(
        value_name = "IMAGE",
        required_unless_present = "kernel",
        conflicts_with = "kernel"
    )]
    pub(crate) image: Option<PathBuf>,
    /// Linux kernel instead of an image: a bzImage or vmlinux, or debian for
    /// Debian's cloud kernel (downloaded once)
    #[arg(long, value_name = "FILE|debian")]
    pub(crate) kernel: Option<PathBuf>,
    /// Command of a Linux guest [default: the root image's]; its status becomes
    /// the exit code
    #[arg(value_name = "COMMAND", last = true, requires = "kernel")]
    pub(crate) command: Vec<String>,
    /// Name of the machine [default: the image's name and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// CPUs of the machine, 1 to 16
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = machine_size::cpus_written,
        allow_negative_numbers = true
    )]
    pub(crate) cpus: u32,
    /// Memory: MiB, or with a unit (512M, 1G) [default: 64M, for Linux 512M]
    #[arg(short, long, value_name = "SIZE", allow_negative_numbers = true)]
    pub(crate) memory: Option<MemorySize>,
    /// Directory that the guest gets as its files (packed when starting); for
    /// Linux also a container image (OCI layout, or its archive, or docker save;
    /// of several there, TAR:NAME)
    #[arg(long, value_name = "DIR|TAR", conflicts_with = "initrd")]
    pub(crate) root: Option<PathBuf>,
    /// Put the files of --root on an ext4 disk of that size instead of in memory
    /// (Linux; made when starting, and gone with the machine)
    #[arg(long, value_name = "SIZE", requires = "root", requires = "kernel")]
    pub(crate) root_disk: Option<MemorySize>,
    /// Initramfs file, given to the guest as it is
    #[arg(long, value_name = "FILE")]
    pub(crate) initrd: Option<PathBuf>,
    /// Words for the guest's command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) cmdline: String,
    /// Forward a port of the host to the guest
    #[arg(
        short,
        long = "publish",
        value_name = "[ADDR:]HOST:GUEST[/udp]",
        long_help = "Forward a port of the host to the guest: [ADDR:]HOST:GUEST[/tcp|/udp]; \
                     ADDR is 127.0.0.1 unless given"
    )]
    pub(crate) publish: Vec<Publish>,
    /// Network: user (through passt, no privileges), none, or tap=NAME
    #[arg(long, value_name = "NET", default_value = "user")]
    pub(crate) net: NetChoice,
    /// Give the guest a disk: a raw file or block device. After FILE: ro,
    /// cache=writeback|writethrough, serial=TEXT, queues=N, coalesce=auto|off|A/B,
    /// latency_us=N
    #[arg(
        long = "disk",
        value_name = "FILE[,...]",
        long_help = "Give the guest a disk: a raw file or block device. After FILE, \
                     with commas: ro (read only), cache=writeback (a flush makes \
                     writes durable) or writethrough, serial=TEXT, queues=N [as many \
                     as CPUs], coalesce=auto (as few interrupts as the queue's depth \
                     needs), off, or A/B (A interrupts for B completions), \
                     latency_us=N (each request takes at least so long, as on slower \
                     storage)"
    )]
    pub(crate) disks: Vec<DiskChoice>,
    /// How the library OS waits: block, poller or spin [default: block]
    #[arg(long, value_name = "HOW")]
    pub(crate) idle: Option<IdleArg>,
    /// How a halted CPU waits on the host: budget=PCT (polls as long as saves
    /// most within that share of a CPU), never (scheduled out at once), kernel
    /// (as the host is set), poll=NS, dedicated [default: budget=1]
    #[arg(
        long,
        value_name = "HOW",
        long_help = "How a halted CPU waits on the host. budget=PCT: polls as long as \
                     saves the most wake-up time within that share of a CPU, chosen \
                     anew as the load changes; never: is scheduled out at once; \
                     kernel: as the host is set; poll=NS: polls for up to NS \
                     nanoseconds; dedicated: has a CPU of the host alone and halts \
                     without leaving it [default: budget=1, and in QEMU kernel]"
    )]
    pub(crate) halt: Option<HaltPolicy>,
    /// Run in the background and print the machine's name
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// What executes the guest: auto (tare, or qemu where there is no KVM),
    /// tare, qemu (translated, without KVM), qemu-kvm
    #[arg(
        long,
        value_name = "ENGINE",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub(crate) engine: EngineArg,
}

/// `tare blk`.
#[derive(Debug, Args)]
pub(crate) struct BlkArgs {
    /// UNIX socket to make; front-ends connect to it, one at a time
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: PathBuf,
    /// Disk: a raw file or block device. After FILE: ro,
    /// cache=writeback|writethrough, serial=TEXT, queues=N, coalesce=auto|off|A/B,
    /// latency_us=N
    #[arg(long, value_name = "FILE[,...]")]
    pub(crate) disk: DiskChoice,
    /// Name for tare ps, stats, set and stop [default: blk and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// `--idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IdleArg {
    /// Threads sleep until an interrupt; cores halt
    Block,
    /// Device threads poll and declare idle turns; the core halts after 200 ms
    Poller,
    /// Pollers that never let the core halt
    Spin,
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    /// Tare's monitor, or QEMU where there is no KVM
    Auto,
    /// Tare's monitor
    Tare,
    /// QEMU's translator, without KVM
    Qemu,
    /// QEMU with KVM
    QemuKvm,
}

/// `tare ps`.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
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

/// `tare logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The machine
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Go on until the machine ends
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `tare stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The machine
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Watch the disks: IOPS, requests in flight, R and interrupts per I/O at
    /// each interval of so many seconds, and R's distribution
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1"
    )]
    pub(crate) watch: Option<WatchSeconds>,
    /// End after so many intervals
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

/// `tare why`.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The machine: its process, or its name [default: all of this host]
    #[arg(value_name = "PID|NAME")]
    pub(crate) target: Option<String>,
    /// Seconds to watch
    #[arg(short, long, value_name = "N", default_value = "5")]
    pub(crate) seconds: Seconds,
    /// Prices of exits: the summary.json of a tare weigh vmexit [default: the newest
    /// of this computer in out or lab/runs, else built-in estimates]
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Print JSON (docs/why.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tare profile`.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ProfileVerb>,
    /// Command to start and observe
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// Observe a process that runs, with its descendants
    #[arg(long, value_name = "PID", group = "subject")]
    pub(crate) pid: Option<u32>,
    /// Observe a container: its name or ID, or the path of its cgroup
    #[arg(long, value_name = "NAME|ID|CGROUP", group = "subject")]
    pub(crate) container: Option<String>,
    /// Run the command in a guest with Debian's kernel, in QEMU; its files are a
    /// directory or a container image
    #[arg(long, value_name = "IMAGE|DIR", group = "subject")]
    pub(crate) in_guest: Option<PathBuf>,
    /// Your name for what the application does meanwhile (start-up, peak)
    #[arg(
        long,
        value_name = "LABEL",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) label: String,
    /// End after so many seconds, and end the command [default: when all ended]
    #[arg(short, long, value_name = "N")]
    pub(crate) seconds: Option<Seconds>,
    /// Write the profile to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write each single call to a file: time, task, arguments, result, length
    #[arg(long, value_name = "FILE", conflicts_with = "in_guest")]
    pub(crate) log: Option<PathBuf>,
    /// Call graphs of these calls in the guest's kernel (read,openat), from a
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
    /// Print the profile as JSON; what the command prints goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tare profile merge`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileVerb {
    /// Make one profile of several: start-up, peak, shutdown
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
    /// Seconds between two looks
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub(crate) interval: Seconds,
    /// Sort by: name, pid, cpu, guest, exits, halts, irqs, steal, cause
    #[arg(
        short,
        long,
        value_name = "COLUMN",
        default_value = "cpu",
        hide_possible_values = true
    )]
    pub(crate) sort: Column,
}

/// `tare advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// A workload that is planned (ffmpeg, mpi-search, wordpress, cassandra,
    /// redis, ...), or what runs: see tare pin
    #[arg(value_name = "WORKLOAD|PID|VM|CONTAINER")]
    pub(crate) target: Option<String>,
    /// Seconds to watch
    #[arg(short, long, value_name = "N", default_value = "5")]
    pub(crate) seconds: Seconds,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Pin it for some windows of time and not for others, and keep it pinned only
    /// if that helped
    #[arg(long = "try", requires = "target", conflicts_with = "json")]
    pub(crate) try_it: bool,
}

/// `tare pin`.
#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// A machine by name or process (Tare, QEMU, libvirt, Firecracker, Cloud
    /// Hypervisor), a container by name, ID or cgroup (/sys/fs/cgroup/...), a
    /// process by ID
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
    /// CPUs to use (0-3,8), or auto: by cores, NUMA nodes, isolated CPUs and load
    /// [default: auto]
    #[arg(long, value_name = "LIST|auto")]
    pub(crate) cpus: Option<CpuChoice>,
    /// Put the old placement back after so many seconds
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "undo")]
    pub(crate) for_seconds: Option<Seconds>,
    /// Put the old placement back now
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

/// `tare doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tare weigh`.
#[derive(Debug, Args)]
#[command(after_help = crate::weigh::list(), arg_required_else_help = true)]
pub(crate) struct WeighArgs {
    /// The experiment
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiment: String,
    /// A few seconds for each phase: does it work, roughly
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// The durations of the talk that the experiment comes from
    #[arg(long)]
    pub(crate) full: bool,
    /// Directory for summary.json, raw.jsonl and report.html; new or empty
    /// [default: out/EXPERIMENT-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Image to weigh, as tare run takes it [default: the experiment's own]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Example application for tailor: lighttpd, nginx, redis, memcached
    /// [default: lighttpd]
    #[arg(long, value_name = "NAME", conflicts_with = "image")]
    pub(crate) app: Option<String>,
    #[command(flatten)]
    pub(crate) platforms: PlatformArgs,
}

/// `tare weigh platforms`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of platforms")]
pub(crate) struct PlatformArgs {
    /// Workload by name or file, again for several [default: all of the form]
    #[arg(long = "workload", value_name = "NAME|FILE.toml")]
    pub(crate) workloads: Vec<String>,
    /// Sizes in CPUs [default: 1, 2, 4, ... up to all]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) sizes: Vec<u32>,
    /// Continue the run record in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub(crate) resume: Option<PathBuf>,
    /// Do the I-th of N parts, as one of several jobs or hosts
    #[arg(long, value_name = "I/N", value_parser = tare_lab::parse_shard)]
    pub(crate) shard: Option<(u32, u32)>,
    /// Read run records instead of measuring, of one host or several; again for
    /// each directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "shard"])]
    pub(crate) merge: Vec<PathBuf>,
    /// Seed of the random order [default: the time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Minutes to spend on runs [default: 12 with --quick, 720 with --full, else 45]
    #[arg(long, value_name = "MINUTES")]
    pub(crate) budget: Option<u32>,
}

/// `tare completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `tare man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write tare.1, tare-run.1, ... into
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
