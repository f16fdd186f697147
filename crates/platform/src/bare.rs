//! Bare metal: a chroot in its own namespaces for mounts and the host's name, and
//! nothing else. Both go with its last process, however that ends.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::cgroup::Groups;
use crate::output::{OutputReader, Report, Watch};
use crate::step::{PATH, Step, StepError};

/// Makes the mounts, changes to the root.
/// `TREE SCRATCH ro|rw|host COMMAND...`
const ENTER: &str = r#"
set -e
tree=$1 scratch=$2 access=$3; shift 3
hostname tare
mount --bind "$tree" "$tree"
[ "$access" != host ] || mount --rbind / "$tree/tare/host"
[ "$access" = rw ] || mount -o remount,bind,ro "$tree"
mount -t proc proc "$tree/proc"
mount --rbind /sys "$tree/sys"
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/tmp"
mount -t tmpfs tmpfs "$tree/run"
mount --bind "$scratch" "$tree/scratch"
exec chroot "$tree" "$@"
"#;

/// Whether the root may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For what is measured.
    Read,
    /// For installing.
    Write,
    /// For what starts a program of the host, which is below `/tare/host` then.
    Host,
}

/// A command in the root, not yet started.
pub fn command(tree: &Path, scratch: &Path, access: Access, groups: &Groups) -> Command {
    let mut command = groups.command("unshare");
    command
        .args([
            "--mount",
            "--uts",
            "--propagation",
            "private",
            "/bin/sh",
            "-c",
            ENTER,
            "tare",
        ])
        .args([tree, scratch])
        .arg(match access {
            Access::Read => "ro",
            Access::Write => "rw",
            Access::Host => "host",
        });
    command
}

/// Runs a step on the bare machine, within `groups`.
pub fn run(
    tree: &Path,
    scratch: &Path,
    groups: &Groups,
    step: &Step,
    watch: &mut dyn Watch,
) -> Result<Report, StepError> {
    let command = command(tree, scratch, Access::Read, groups);
    run_step(command, "the chroot", scratch, groups, step, watch)
}

/// Runs a step by a command that enters a root, within `groups`.
pub(crate) fn run_step(
    mut command: Command,
    what: &str,
    scratch: &Path,
    groups: &Groups,
    step: &Step,
    watch: &mut dyn Watch,
) -> Result<Report, StepError> {
    ask(scratch, step)?;
    command.args(["/bin/bash", "/tare/step", "@/scratch/request"]);
    // As in containers and machines: a library of MPI, for one, uses what a batch
    // system said to whoever started the weighing.
    command.env_clear().env("PATH", PATH);
    let result = heard(&mut command, what, step, watch);
    groups.empty();
    result
}

/// Lays the request where the step finds it.
pub(crate) fn ask(scratch: &Path, step: &Step) -> Result<(), StepError> {
    let path = scratch.join("request");
    fs::write(&path, step.document()).map_err(|source| StepError::Start {
        what: path.display().to_string(),
        source,
    })
}

/// Starts a command and follows its step; the command is over afterwards.
pub(crate) fn heard(
    command: &mut Command,
    what: &str,
    step: &Step,
    watch: &mut dyn Watch,
) -> Result<Report, StepError> {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = KilledOnDrop(child.map_err(|source| StepError::Start {
        what: what.to_owned(),
        source,
    })?);
    let (Some(stdin), Some(stdout)) = (child.0.stdin.take(), child.0.stdout.take()) else {
        return Err(StepError::GivenUp);
    };
    let result = OutputReader::on(stdout, what).follow(step, &mut Held { watch, stdin });
    if result.is_ok() {
        let _ = child.0.wait();
    }
    if let Err(StepError::Ended { what, last }) = result {
        let last = format!("{last} {}", child.last_output());
        return Err(StepError::Ended { what, last });
    }
    result
}

/// A step waits for a line before it begins, so that what a watch does to begin takes
/// no CPU from the run.
struct Held<'a> {
    watch: &'a mut dyn Watch,
    stdin: ChildStdin,
}

impl Watch for Held<'_> {
    fn begin(&mut self) {
        self.watch.begin();
        // A step that is gone says so by its end.
        let _ = self.stdin.write_all(b"\n");
    }

    fn end(&mut self) {
        self.watch.end();
    }

    fn stop(&self) -> bool {
        self.watch.stop()
    }
}

/// A child that does not outlive this.
struct KilledOnDrop(Child);

impl KilledOnDrop {
    fn last_output(&mut self) -> String {
        use std::io::Read as _;
        let mut text = String::new();
        if let Some(stderr) = self.0.stderr.take() {
            let _ = stderr.take(4096).read_to_string(&mut text);
        }
        text.trim().replace('\n', " | ")
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
