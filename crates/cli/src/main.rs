//! tare: run, observe and measure appliances.
//!
//! Each verb is three steps: parse (`args`), plan, effects. A failure is printed once, as
//! one line with its causes and the hint, and ends with a documented exit
//! code (`tare_control::exit`).

mod advise;
mod args;
mod blk;
mod check;
mod doctor;
mod exit_codes;
mod experiments;
mod failure;
mod machines;
mod manual;
mod observe;
mod output;
mod pin;
mod profile;
mod run;
mod scaffold;
mod seconds;
mod signals;
mod tailor;
mod top;
mod weigh;
mod why;

use std::process::ExitCode;

use clap::Parser as _;
use tare_control::exit::{ExitCode as Code, RunExit};
use tare_host::printable::printable_lines;
use tare_host::stderr;
use tare_launch::{Attempt, confined, supervise};

use args::{Cli, Verb};
use failure::Failure;
use output::{Stderr, print};

fn main() -> ExitCode {
    match outcome() {
        Ok(ended) => ended.into(),
        Err(failure) => {
            stderr::line(format_args!(
                "tare: {}",
                printable_lines(&failure.sentence())
            ));
            failure.code().into()
        }
    }
}

fn outcome() -> Result<RunExit, Failure> {
    let after_name = || std::env::args_os().skip(1);
    if let Some(done) = confined::become_program(after_name()) {
        return Ok(done.map(|()| Code::Success.into())?);
    }
    let started_by_itself = supervise::from_args(after_name(), &Stderr)
        .or_else(|| tare_launch::keeper_from_args(after_name(), &Stderr));
    if let Some(ended) = started_by_itself {
        return Ok(ended?);
    }
    match tare_launch::attempt_from_args(after_name()) {
        Some(attempt) => {
            let (attempt, words) = attempt?;
            let name = std::env::args_os().take(1);
            perform(Cli::parse_from(name.chain(words)).verb, Some(attempt))
        }
        None => perform(Cli::parse().verb, None),
    }
}

/// Executes a verb; `run` as a keeper's attempt, if it is one.
fn perform(verb: Verb, attempt: Option<Attempt>) -> Result<RunExit, Failure> {
    let outcome = match verb {
        Verb::Run(args) => {
            return match attempt {
                Some(attempt) => run::attempt(*args, attempt),
                None => run::run(*args, std::env::args_os().skip(1).collect()),
            };
        }
        Verb::Profile(args) => return profile::profile(*args),
        Verb::New(args) => scaffold::new(&args),
        Verb::Build(args) => scaffold::build(&args),
        Verb::Ps(args) => machines::ps(&args),
        Verb::Stop(args) => machines::stop(&args),
        Verb::Kill(args) => machines::kill(&args),
        Verb::Rm(args) => machines::rm(&args),
        Verb::Logs(args) => machines::logs(&args),
        Verb::Stats(args) => machines::stats(&args),
        Verb::Set(args) => machines::set(&args),
        Verb::Reload(args) => machines::reload(args),
        Verb::Blk(args) => blk::blk(args),
        Verb::Why(args) => why::why(&args),
        Verb::Top(args) => top::top(&args),
        Verb::Pin(args) => pin::pin(&args),
        Verb::Tailor(args) => tailor::tailor(&args),
        Verb::Advise(args) => advise::advise(&args),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Check(args) => check::check(&args),
        Verb::Weigh(args) => weigh::weigh(args),
        Verb::Compare(args) => weigh::compare(&args),
        Verb::Report(args) => weigh::report(&args),
        Verb::ExitCodes => print(&exit_codes::table()),
        Verb::Completions(args) => manual::completions(&args),
        Verb::Man(args) => manual::man(&args),
    };
    outcome.map(RunExit::from)
}
