//! The command line as it is written. Nothing is checked here beyond the form
//! of each word; `run::plan` and the verbs check what the words mean.

mod machines;
mod observe;
mod place;
mod run;
mod weigh;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit_codes;
use crate::tailor::args::TailorArgs;
pub(crate) use machines::{LogsArgs, PsArgs, RmArgs, SetArgs, StatsArgs, StopArgs, WatchSeconds};
pub(crate) use observe::{MergeArgs, ProfileArgs, ProfileVerb, TopArgs, WhyArgs};
pub(crate) use place::{AdviseArgs, PinArgs};
pub(crate) use run::{BlkArgs, EngineArg, IdleArg, RunArgs};
pub(crate) use weigh::WeighArgs;

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
    /// Remove what machines that have ended left: log and exit code
    Rm(RmArgs),
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

/// `tare doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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
