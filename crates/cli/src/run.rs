//! `tare run`: builds the request and prints; `tare_launch` does the rest.

use std::ffi::OsString;

use tare_abi::cmdline::Idle;
use tare_control::exit::ExitCode;
use tare_launch::engine::EngineChoice;
use tare_launch::limits::Limits;
use tare_launch::{Attempt, JobMode, Launched, Request};

use crate::args::{EngineArg, IdleArg, RunArgs};
use crate::failure::{Failure, RunResult};
use crate::output::{Stderr, print};
use crate::scaffold;

/// Runs a machine to its end, or until it is in the background; `words` are the command line.
pub(crate) fn run(args: RunArgs, words: Vec<OsString>) -> RunResult {
    let args = scaffold::with_image(args)?;
    let restart = args.restart;
    let plan = tare_launch::plan(args.into(), &Stderr)?;
    match tare_launch::keep(plan, restart, words, &Stderr)? {
        Launched::Ended(ended) => Ok(ended),
        Launched::Background(name) => {
            let printed = print(&format!("{name}\n"));
            printed.map_err(|failure| unprinted(&name, failure))?;
            Ok(ExitCode::Success.into())
        }
    }
}

/// The failure to print the name of a machine, which runs all the same.
fn unprinted(name: &str, failure: Failure) -> Failure {
    failure.with_hint(format!(
        "{name} runs in the background, and `tare stop {name}` ends it"
    ))
}

/// Runs the machine once for its keeper.
pub(crate) fn attempt(args: RunArgs, attempt: Attempt) -> RunResult {
    let args = scaffold::with_image(args)?;
    let request = Request {
        attempt: Some(attempt),
        ..args.into()
    };
    let plan = tare_launch::plan(request, &Stderr)?;
    match tare_launch::launch(plan, &Stderr)? {
        Launched::Ended(ended) => Ok(ended),
        Launched::Background(_) => Ok(ExitCode::Success.into()),
    }
}

impl From<RunArgs> for Request {
    fn from(args: RunArgs) -> Self {
        Self {
            image: args.image,
            kernel: args.kernel,
            command: args.command,
            entrypoint: args.entrypoint,
            workdir: args.workdir,
            env: args.env,
            stop_signal: args.stop_signal,
            name: args.name,
            cpus: args.cpus,
            memory: args.memory,
            root: args.root,
            root_disk: args.root_disk,
            volumes: args.volume,
            initrd: args.initrd,
            site: args.site,
            reload: args.reload,
            cmdline: args.cmdline,
            publish: args.publish,
            net: args.net,
            disks: args.disks,
            idle: args.idle.map(IdleArg::into),
            ring: args.ring.number(),
            halt: args.halt,
            user: args.user,
            limits: Limits {
                cpu: args.limit_cpu,
                memory: args.limit_memory,
                io: args.limit_io,
                net: args.limit_net,
            },
            place: if args.detach {
                JobMode::Background
            } else {
                JobMode::Foreground
            },
            attempt: None,
            engine: args.engine.into(),
        }
    }
}

impl From<IdleArg> for Idle {
    fn from(arg: IdleArg) -> Self {
        match arg {
            IdleArg::Block => Self::Block,
            IdleArg::Poller => Self::Poller,
            IdleArg::Spin => Self::Spin,
        }
    }
}

impl From<EngineArg> for EngineChoice {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Auto => Self::Auto,
            EngineArg::Tare => Self::Tare,
            EngineArg::Qemu => Self::Qemu,
            EngineArg::QemuKvm => Self::QemuKvm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_whose_name_cannot_be_printed_is_named_in_the_error() {
        let full = Failure::new(ExitCode::Output, "cannot write to standard output");
        let failure = unprinted("web", full);
        assert_eq!(failure.code(), ExitCode::Output);
        assert_eq!(
            failure.sentence(),
            "cannot write to standard output: web runs in the background, and `tare stop web` ends it"
        );
    }
}
