//! The command line as it is written. Nothing is checked here beyond the form
//! of each word; `run::plan` and the verbs check what the words mean.

mod machines;
mod observe;
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
    LogsArgs, PsArgs, ReloadArgs, RmArgs, SetArgs, StatsArgs, StopArgs, WatchSeconds,
};
pub(crate) use observe::{MergeArgs, ProfileArgs, ProfileVerb, TopArgs, WhyArgs};
pub(crate) use place::{AdviseArgs, PinArgs};
pub(crate) use run::{BlkArgs, EngineArg, IdleArg, RunArgs};
pub(crate) use scaffold::{BuildArgs, NewArgs};
pub(crate) use weigh::{
    CompareArgs, CompareFormat, ExperimentArgs, OwnArgs, PlatformArgs, ReportArgs, WeighArgs,
};

/// Runs one application per virtual machine, and measures and cuts what that costs.
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
    /// Start a virtual machine: an appliance or a Linux guest
    ///
    /// In the foreground the terminal is the guest's serial console, and Ctrl-C
    /// ends the machine. Without /dev/kvm the same image runs in QEMU, which is
    /// slower. IMAGE is a path, or a name that is looked up in $TARE_IMAGES and
    /// beside tare. A Linux guest: tare run --kernel debian --root DIR -- COMMAND.
    /// Without IMAGE, or with a directory, builds the crate there (tare new).
    Run(Box<RunArgs>),
    /// Make a crate for an appliance of your own: a web server of a few lines
    ///
    /// Writes Cargo.toml, src/main.rs with tests, and the settings by which cargo
    /// build makes an image and cargo t runs the tests on this computer. In its
    /// directory, tare run builds and boots it.
    New(NewArgs),
    /// Build the image of a crate that tare new made
    ///
    /// Runs cargo build --release for the target x86_64-unknown-none, and prints the
    /// image's path and size.
    Build(BuildArgs),
    /// List machines
    Ps(PsArgs),
    /// Stop machines
    ///
    /// Requests a shutdown, waits, and kills machines that do not end in time.
    Stop(StopArgs),
    /// Remove the log and exit code of machines that have ended
    Rm(RmArgs),
    /// Print a machine's console output
    Logs(LogsArgs),
    /// Show a machine's statistics
    Stats(StatsArgs),
    /// Change or list the settings of a running machine
    ///
    /// Without KEY=VALUE, lists every setting with its value and meaning. Several
    /// changes are made together or not at all.
    Set(SetArgs),
    /// Give a running http another root, without ending a connection
    ///
    /// Packs and checks DIR and FILE as tare run does. The machine, which was started with
    /// --reload, loads them beside the root that it serves, and serves them from the
    /// next request on. Answers that are being sent end with their files. Whatever is
    /// wrong leaves the root before in its place.
    Reload(ReloadArgs),
    /// Serve a disk to QEMU or Cloud Hypervisor (vhost-user-blk)
    ///
    /// The disk of tare run --disk, with its interrupt coalescing, for virtual
    /// machines of other programs. Their memory must be shared. Ends with Ctrl-C,
    /// SIGTERM or tare stop. QEMU: -object memory-backend-memfd,id=m,size=1G,share=on
    /// -machine memory-backend=m -chardev socket,id=c,path=S,reconnect=1
    /// -device vhost-user-blk-pci,chardev=c. Cloud Hypervisor: --memory
    /// size=1G,shared=on --disk vhost_user=true,socket=S. Disks are raw: for qcow2
    /// use qemu-storage-daemon, for NBD the kernel's device (nbd-client, then
    /// --disk /dev/nbd0). No ublk, no vduse, no packed rings.
    Blk(BlkArgs),
    /// Explain where a virtual machine's CPU time goes, and how to reduce it
    ///
    /// Works for any KVM virtual machine of this host, Tare's or not: observes it
    /// for some seconds and lists the causes, the largest first. Needs root, or
    /// CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE. Sources that are unavailable are
    /// listed, and the rest is reported.
    Why(WhyArgs),
    /// Record which kernel features an application uses
    ///
    /// Counts every system call of a command and its descendants, with the
    /// arguments that select kernel features, until they end. The profile is the
    /// input of tare tailor. Needs root, or CAP_BPF, CAP_PERFMON and
    /// CAP_SYS_PTRACE. Exits with the command's status. With a static program, as in
    /// tare profile ./server, also lists what the library OS lacks for it.
    #[command(args_conflicts_with_subcommands = true)]
    Profile(Box<ProfileArgs>),
    /// Watch all virtual machines: CPU, exits, halts, interrupts, causes
    Top(TopArgs),
    /// Pin the threads of a machine, container or process to CPUs, and undo it
    ///
    /// Each vCPU gets a CPU of its own, and emulator and I/O threads get other
    /// CPUs if there are any; containers get a cpuset. New threads are pinned as
    /// well, and the result is read back from the kernel. The old placement is
    /// saved first. It is restored by --undo, at the end of --for, by Ctrl-C, and
    /// after a kill by the next tare pin or tare advise.
    Pin(PinArgs),
    /// Build a Linux kernel cut to one application, and test the application on it
    ///
    /// Selects kernel options from profiles (tare profile), builds the kernel, and
    /// tests the application on it in a guest; options that the test shows to be
    /// missing are added. With the same --out, --add rebuilds incrementally in
    /// minutes. The default keeps every option that serves security.
    #[command(after_help = crate::tailor::args::cuts())]
    Tailor(Box<TailorArgs>),
    /// Recommend how to run an application, with the evidence
    ///
    /// Applies rules for placement, memory and disks. Each recommendation cites
    /// its source, what was measured, the expected gain and the command. Without
    /// a target, lists what each kind of workload should get on this host.
    Advise(AdviseArgs),
    /// Check this host: KVM, networking, QEMU, observability
    ///
    /// Prints a line for each feature, with the remedy where one is missing or
    /// limited. KVM is tested by running code in a temporary virtual machine.
    Doctor(DoctorArgs),
    /// Check a site's file (site.toml), as tare run --site does
    ///
    /// Prints each mistake with its line and column, and exits with 47 if there
    /// is one. The file has tables: path with match, cache_control and
    /// headers; redirect with from, to and status; errors with 404 or fallback.
    Check(CheckArgs),
    /// Run benchmarks and write a report
    Weigh(WeighArgs),
    /// Compare two runs of tare weigh, figure by figure
    ///
    /// Prints the ratio of each figure with its 95 % interval. A figure has
    /// changed where that interval excludes 1.
    Compare(CompareArgs),
    /// Make the report of a run again from its raw samples
    ///
    /// Writes summary.json, figures.csv, report.md and report.html into the run's
    /// directory, also where the run was killed. With --history, writes a page with
    /// each figure of an experiment over its stored runs instead.
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
    /// Remove what killed machines left: run directories, control groups, users' locks
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
