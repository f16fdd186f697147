//! The command line. Only the form of each argument is checked here; `run::plan` and the
//! verbs check what the arguments mean.

mod machines;
mod observe;
mod offered;
mod place;
mod run;
mod scaffold;
mod weigh;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit_codes;
use crate::tailor::args::TailorArgs;
pub(crate) use machines::{
    KillArgs, LogsArgs, PsArgs, ReloadArgs, RmArgs, SetArgs, StatsArgs, StopArgs, WatchSeconds,
};
pub(crate) use observe::{MergeArgs, ProfileArgs, ProfileVerb, TopArgs, WhyArgs};
pub(crate) use place::{AdviseArgs, PinArgs};
pub(crate) use run::{BlkArgs, EngineArg, IdleArg, RunArgs};
pub(crate) use scaffold::{BuildArgs, NewArgs};
pub(crate) use weigh::{CompareArgs, CompareFormat, ExperimentArgs, ReportArgs, WeighArgs};

/// Runs one application per virtual machine, and measures and cuts what that costs.
#[derive(Debug, Parser)]
#[command(
    name = "tare",
    version,
    about,
    max_term_width = 79,
    arg_required_else_help = true,
    after_help = "Exit codes: tare exit-codes. Machine-readable output: --json.\n\
                  Environment: TARE_RUN_ROOT (run directories), TARE_CACHE (kernels, packed\n\
                  roots), TARE_STATE_DIR (placements, prices of exits), TARE_IMAGES (directories\n\
                  of images), TARE_MONITOR (tare-monitor), TARE_INIT (first process of Linux\n\
                  guests)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Start a virtual machine: an appliance, a Linux program, or a Linux guest
    ///
    /// In the foreground the terminal is the guest's serial console (a program has its
    /// standard streams). Ctrl-C ends an appliance, and is a signal to a program or a
    /// Linux guest's command; Ctrl-\ ends a Linux guest. Without /dev/kvm the same image
    /// runs in QEMU, which is slower. IMAGE is a path, or a name that is looked up in $TARE_IMAGES and
    /// beside tare. A Linux guest: tare run --kernel debian --root DIR -- COMMAND.
    /// If IMAGE is a directory with an appliance's crate (tare new), tare builds the
    /// crate first.
    Run(Box<RunArgs>),
    /// Create a crate for an appliance in Rust: a web server of a few lines
    ///
    /// Writes Cargo.toml, src/main.rs with tests, and cargo's settings: cargo build
    /// builds the image, cargo t runs the tests on the host. In the crate's directory,
    /// tare run builds and boots the appliance.
    New(NewArgs),
    /// Build the image of a crate that tare new created
    ///
    /// Runs cargo build --release for the target x86_64-unknown-none, and prints the
    /// image's path and size.
    Build(BuildArgs),
    /// List machines
    Ps(PsArgs),
    /// Stop machines
    ///
    /// Sends SIGTERM to a program or a Linux guest's command, or the signal that
    /// --stop-signal or the container image names, and waits; ends other machines at
    /// once, without notifying the guest. Kills machines that do not end in time.
    Stop(StopArgs),
    /// Kill machines, or send their programs a signal
    ///
    /// Without --signal, ends each machine at once. With it, sends that signal to the
    /// machine's program, or its Linux guest's command: tare kill -s HUP NAME. In QEMU
    /// these get HUP, INT, QUIT, TERM, USR1 and USR2 only.
    Kill(KillArgs),
    /// Remove the log and exit code of machines that have ended
    Rm(RmArgs),
    /// Print a machine's console output
    Logs(LogsArgs),
    /// Show a machine's statistics
    Stats(StatsArgs),
    /// Change or list the settings of a running machine
    ///
    /// Without KEY=VALUE, lists every setting with its value and meaning. If one of
    /// several changes is invalid, none is made.
    Set(SetArgs),
    /// Replace the files of a running web server (http), without closing connections
    ///
    /// Checks and packs DIR and FILE as tare run does. The machine must have been started
    /// with --reload. It loads the new files and serves them from the next request on;
    /// responses in progress finish with the old files. If anything fails, the machine
    /// keeps serving the old files.
    Reload(ReloadArgs),
    /// Serve a disk to QEMU or Cloud Hypervisor (vhost-user-blk)
    ///
    /// The disk of tare run --disk, with its interrupt coalescing, for virtual
    /// machines of other monitors. The guest's memory must be shared. Ends on Ctrl-C,
    /// SIGTERM or tare stop. QEMU: -object memory-backend-memfd,id=m,size=1G,share=on
    /// -machine memory-backend=m -chardev socket,id=c,path=S,reconnect=1
    /// -device vhost-user-blk-pci,chardev=c. Cloud Hypervisor: --memory
    /// size=1G,shared=on --disk vhost_user=true,socket=S. Only raw disks: for qcow2
    /// use qemu-storage-daemon, for NBD the kernel's device (nbd-client, then
    /// --disk /dev/nbd0). Not supported: ublk, vduse, packed rings.
    Blk(BlkArgs),
    /// Explain where a virtual machine's CPU time goes, and how to reduce it
    ///
    /// Works for any KVM virtual machine on this host, whichever monitor runs it:
    /// observes it for some seconds and lists the causes, the largest first. Needs
    /// root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE. If a data source is
    /// unavailable, the report names it and covers the rest.
    Why(WhyArgs),
    /// Record which kernel features an application uses
    ///
    /// Counts every system call of a command and its descendants, with the
    /// arguments that select kernel features, until they end. The profile is the
    /// input of tare tailor. Needs root, or CAP_BPF, CAP_PERFMON and
    /// CAP_SYS_PTRACE. Exits with the command's status. For a static program (tare
    /// profile ./server) also lists the calls that the library OS does not support.
    #[command(args_conflicts_with_subcommands = true)]
    Profile(Box<ProfileArgs>),
    /// Watch all virtual machines: CPU, exits, halts, interrupts, causes
    Top(TopArgs),
    /// Pin the threads of a machine, container or process to CPUs, and undo it
    ///
    /// Pins each vCPU to a separate CPU, and emulator and I/O threads to the CPUs
    /// that remain; gives containers a cpuset. Pins new threads too, and reads the
    /// result back from the kernel. Saves the old placement first and restores it on
    /// --undo, at the end of --for, and on Ctrl-C. If tare pin is killed, the next tare
    /// pin or tare advise restores it.
    Pin(PinArgs),
    /// Build a minimal Linux kernel for one application, and test the application on it
    ///
    /// Selects kernel options from profiles (tare profile), builds the kernel, and
    /// tests the application on it in a guest. If the test shows that an option is
    /// missing, adds it and builds again. With the same --out, --add rebuilds
    /// incrementally in minutes. By default every option that serves security stays.
    #[command(after_help = crate::tailor::args::cuts())]
    Tailor(Box<TailorArgs>),
    /// Recommend how to run an application, with the evidence
    ///
    /// Applies rules for placement, memory and disks. Each recommendation cites its
    /// source, the measurement, the expected gain and the command to apply it. Without
    /// a target, prints the recommendations for each kind of workload on this host.
    Advise(AdviseArgs),
    /// Check this host: KVM, networking, QEMU, observability
    ///
    /// Prints a line for each feature and, if it is missing or limited, what to do
    /// about it. Tests KVM by running code in a temporary virtual machine.
    Doctor(DoctorArgs),
    /// Check a website's configuration (site.toml), as tare run --site does
    ///
    /// Prints each mistake with its line and column, and exits with 47 if there
    /// is one. The file has tables: path with match, cache_control and
    /// headers; redirect with from, to and status; errors with 404 or fallback
    /// (docs/site.md).
    Check(CheckArgs),
    /// Run benchmarks and write a report
    Weigh(WeighArgs),
    /// Compare two runs of tare weigh, figure by figure
    ///
    /// Prints the ratio of each figure with its 95 % confidence interval. A figure
    /// counts as changed if the interval excludes 1.
    Compare(CompareArgs),
    /// Regenerate the report of a run from its raw samples
    ///
    /// Writes summary.json, figures.csv, report.md and report.html into the run's
    /// directory, also after a run that was killed. With --history, writes instead a
    /// page that draws each figure of an experiment over its stored runs.
    Report(ReportArgs),
    /// Print the exit codes and their meanings
    #[command(long_about = exit_codes::long_about())]
    ExitCodes,
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for each verb
    Man(ManArgs),
}

/// `tare doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Remove what killed machines left behind: run directories, cgroups, locks on user IDs; put
    /// back what killed weighings changed
    #[arg(long, conflicts_with = "json")]
    pub(crate) clean: bool,
}

/// `tare check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
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
