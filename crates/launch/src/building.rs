//! Executes what the sources of a kernel run (their Makefile, scripts, and the compilers that those
//! call) in a separate jail (ADR 65).
//!
//! `tare` starts itself for it ([`command`]). That process makes the namespaces and waits. Its
//! child becomes the user of the build, confines itself ([`confine::enter_build`]) and starts the
//! program. Processes that the program leaves behind end with the child.
//!
//! The waiting process ends a build that exceeds its [`Bounds`].
//!
//! Limits: where the kernel grants no namespaces, and without Landlock, the jail is weaker; the
//! build's log says so.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, wait};
use serde::{Deserialize, Serialize};
use tare_control::config::{Jail, JailUser};
pub use tare_daemon::confine::{CPU_SECONDS, FILE_BYTES};
pub use tare_daemon::jail::BuildBounds as Bounds;
use tare_daemon::jail::{Build, BuildEnd, Excess, Forked};
use tare_daemon::{confine, jail};
use tare_host::child::{ends_with_us, keeps_only};
use tare_host::signals::hold_back;
use tare_host::stderr;

use crate::attempt::read_task;
use crate::user;

/// First argument of such a command line; no verb begins like this.
pub(crate) const WORD: &str = "--build-jailed";
/// Exit status of a program that is missing, as a shell's.
pub const MISSING: i32 = 127;
/// Exit status where the jail cannot be made.
pub const NO_JAIL: i32 = 126;
/// Exit status where a build's processes took more memory than they may.
pub const TOO_MUCH_MEMORY: i32 = 121;
/// Exit status where a build took more space than it may; `make`'s own is 2 at most.
pub const TOO_LARGE: i32 = 122;
/// Exit status of a build that left less than the required space free.
pub const TOO_FULL: i32 = 123;
/// Exit status of a build that exceeded its time.
pub const TOO_LONG: i32 = 124;
/// Environment variables that locate programs and libraries. Others may hold secrets, or the
/// socket of ssh-agent.
const KEPT: &[&str] = &[
    "PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    "COMPILER_PATH",
];
/// Prefix of the variables of Nix's compilers.
const KEPT_PREFIX: &str = "NIX_";

/// The build and its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Building {
    build: Build,
    user: Option<JailUser>,
    bounds: Bounds,
}

/// A program that builds `sources` into `objects`, both directories, killed when this thread ends.
/// The caller adds its arguments and streams. It has its own process group.
///
/// Its exit status is the program's, or [`MISSING`], [`NO_JAIL`], [`TOO_MUCH_MEMORY`],
/// [`TOO_LARGE`], [`TOO_FULL`], [`TOO_LONG`], or
/// 128 and the number of the signal that ended it.
pub fn command(
    tare: &Path,
    sources: &Path,
    objects: &Path,
    bounds: Bounds,
    program: &str,
) -> io::Result<Command> {
    let build = Build {
        sources: sources.canonicalize()?,
        objects: objects.canonicalize()?,
        programs: programs(env::var_os("PATH").as_deref()),
    };
    let temporary = build.temporary();
    let task = Building {
        build,
        user: user::of_builds(),
        bounds,
    };
    let mut command = Command::new(tare);
    keeps_only(ends_with_us(&mut command, Signal::KILL), Vec::new())
        .arg(WORD)
        .arg(serde_json::to_string(&task)?)
        .arg(program)
        .env_clear()
        .envs(env::vars_os().filter(|(name, _)| is_kept(name)))
        .env("TMPDIR", temporary)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .process_group(0);
    Ok(command)
}

fn is_kept(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    KEPT.contains(&&*name) || name.starts_with(KEPT_PREFIX)
}

/// Directories to search for programs, beyond those where programs are installed.
fn programs(path: Option<&OsStr>) -> Vec<PathBuf> {
    let listed = path.map(env::split_paths).into_iter().flatten();
    let absolute = listed.filter(|directory| directory.is_absolute());
    let is_installed = |directory: &Path| {
        confine::INSTALLED
            .iter()
            .any(|it| directory.starts_with(it))
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for directory in absolute.filter_map(|directory| directory.canonicalize().ok()) {
        let is_root = directory.parent().is_none();
        if !is_root && !is_installed(&directory) && !found.contains(&directory) {
            found.push(directory);
        }
    }
    found
}

/// Executes the build that an argument describes, and ends this process with the program's status.
/// Returns only if the jail fails. To be called by a process of one thread.
pub(crate) fn build(
    word: Option<OsString>,
    mut args: impl Iterator<Item = OsString>,
) -> io::Result<()> {
    let task: Building = read_task(word)?;
    let program = args.next().ok_or(io::ErrorKind::InvalidInput)?;
    // The program ends by itself, and this process after it.
    hold_back()?;
    let jail = Jail {
        namespaces: true,
        user: task.user,
    };
    match jail::fork_into_build(&task.build, &jail) {
        Ok(Forked::Parent(child)) => {
            let end = child.wait(task.bounds)?;
            exit(status_of_end(end))
        }
        Ok(Forked::Child) => {
            let status = run(&task.build, &program, args).unwrap_or_else(|error| {
                stderr::line(format_args!("tare: error: cannot build: {error}"));
                NO_JAIL
            });
            exit(status)
        }
        Err(error) => {
            let error = io::Error::other(error);
            stderr::line(format_args!("tare: error: {error}"));
            exit(NO_JAIL)
        }
    }
}

fn status_of_end(end: BuildEnd) -> i32 {
    match end {
        BuildEnd::Status(status) => status,
        BuildEnd::Excess(Excess::Time) => TOO_LONG,
        BuildEnd::Excess(Excess::Memory) => TOO_MUCH_MEMORY,
        BuildEnd::Excess(Excess::Space) => TOO_LARGE,
        BuildEnd::Excess(Excess::Free) => TOO_FULL,
    }
}

/// Runs the program, and reaps all orphans that become children of the first process of a
/// namespace.
fn run(build: &Build, program: &OsStr, args: impl Iterator<Item = OsString>) -> io::Result<i32> {
    let makefile = build.sources.join("Makefile");
    File::open(&makefile).map_err(|error| {
        let user = rustix::process::geteuid().as_raw();
        let why = format!(
            "user {user}, who builds, cannot read {}: {error} (chmod -R go+rX it)",
            makefile.display()
        );
        io::Error::new(error.kind(), why)
    })?;
    let temporary = build.temporary();
    let _ = fs::remove_dir_all(&temporary);
    fs::create_dir(&temporary)?;
    let enters = confine::enter_build(&build.sources, &build.objects, &build.programs);
    if !enters.map_err(io::Error::other)? {
        stderr::line(
            "tare: this kernel has no Landlock: only its namespaces and user confine the build",
        );
    }
    let mut command = Command::new(program);
    ends_with_us(command.args(args), Signal::KILL);
    let child = match command.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            stderr::line(format_args!("tare: {}: not found", program.display()));
            return Ok(MISSING);
        }
        Err(error) => return Err(error),
    };
    let status = status_of(child)?;
    let _ = fs::remove_dir_all(&temporary);
    Ok(status)
}

fn status_of(child: Pid) -> io::Result<i32> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                let signaled = status.terminating_signal().map(|signal| 128 + signal);
                if let Some(code) = status.exit_status().or(signaled) {
                    return Ok(code);
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn directories_of_programs_are_those_that_are_not_installed() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().canonicalize().unwrap().join("bin");
        fs::create_dir(&own).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let listed = ["/usr/bin", "bin", "", ".", "/", "/no/such/place"]
            .map(PathBuf::from)
            .into_iter()
            .chain([own.clone(), link]);
        let path = env::join_paths(listed).unwrap();
        assert_eq!(programs(Some(&path)), [own]);
        assert!(programs(None).is_empty());
    }

    #[test]
    fn of_the_environment_only_places_of_programs_are_kept() {
        for name in ["PATH", "NIX_CFLAGS_COMPILE", "LIBRARY_PATH"] {
            assert!(is_kept(OsStr::new(name)), "{name}");
        }
        for name in [
            "HOME",
            "SSH_AUTH_SOCK",
            "AWS_SECRET_ACCESS_KEY",
            "MAKEFLAGS",
        ] {
            assert!(!is_kept(OsStr::new(name)), "{name}");
        }
        let place = tempfile::tempdir().unwrap();
        let bounds = Bounds {
            time: Duration::from_secs(60),
            memory: 1 << 30,
            bytes: 1 << 30,
            free_bytes: 0,
        };
        let (tare, place) = (Path::new("tare"), place.path());
        let command = command(tare, place, place, bounds, "make").unwrap();
        let args: Vec<_> = command.get_args().filter_map(OsStr::to_str).collect();
        assert_eq!((args[0], args[2]), (WORD, "make"));
    }
}
