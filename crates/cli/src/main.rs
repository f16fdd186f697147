//! tare: run, observe and measure appliances.
//!
//! Each verb is three steps: parse (`args`), plan, effects. A failure is printed once, as
//! one line with its causes and the hint, and ends with a documented exit
//! code (`tare_control::exit`).

mod advise;
mod args;
mod blk;
mod doctor;
mod ending;
mod exit_codes;
mod failure;
mod interruption;
mod machines;
mod manual;
mod observe;
mod pin;
mod profile;
mod record;
mod root;
mod run;
mod seconds;
mod session;
mod signals;
mod supervise;
mod tailor;
mod top;
mod weigh;
mod why;

use std::process::ExitCode;

use clap::Parser as _;
use tare_control::exit::{Ended, ExitCode as Code};
use tare_host::printable::printable_lines;

use args::{Cli, Verb};
use failure::{Failure, Outcome};

fn main() -> ExitCode {
    match outcome() {
        Ok(ended) => ended.into(),
        Err(failure) => {
            eprintln!("tare: {}", printable_lines(&failure.sentence()));
            failure.code().into()
        }
    }
}

fn outcome() -> Result<Ended, Failure> {
    let words = session::with_parent_death(std::env::args_os().collect())
        .map_err(|error| Failure::new(Code::Internal, error))?;
    let after_name = || words.iter().skip(1).cloned();
    session::become_program(after_name())
        .map(|never| never.map(Ended::from))
        .or_else(|| supervise::from_words(after_name()))
        .unwrap_or_else(|| perform(Cli::parse_from(&words).verb))
}

fn perform(verb: Verb) -> Result<Ended, Failure> {
    let outcome = match verb {
        Verb::Run(args) => return run::run(*args),
        Verb::Profile(args) => return profile::profile(*args),
        Verb::Ps(args) => machines::ps(&args),
        Verb::Stop(args) => machines::stop(&args),
        Verb::Rm(args) => machines::rm(&args),
        Verb::Logs(args) => machines::logs(&args),
        Verb::Stats(args) => machines::stats(&args),
        Verb::Set(args) => machines::set(&args),
        Verb::Blk(args) => blk::blk(args),
        Verb::Why(args) => why::why(&args),
        Verb::Top(args) => top::top(&args),
        Verb::Pin(args) => pin::pin(&args),
        Verb::Tailor(args) => tailor::tailor(&args),
        Verb::Advise(args) => advise::advise(&args),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Weigh(args) => weigh::weigh(args),
        Verb::Compare(args) => weigh::compare(&args),
        Verb::Report(args) => weigh::report(&args),
        Verb::ExitCodes => print(&exit_codes::table()),
        Verb::Completions(args) => manual::completions(&args),
        Verb::Man(args) => manual::man(&args),
    };
    outcome.map(Ended::from)
}

/// Writes to standard output; a reader that went away is not a failure.
fn print(text: &str) -> Outcome {
    use std::io::Write as _;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let error = anyhow::Error::new(error).context("cannot write to standard output");
            Err(Failure::new(Code::Output, error))
        }
        _ => Ok(Code::Success),
    }
}

/// Prints a warning: one line to the user.
fn warn(text: &str) {
    eprintln!("tare: {}", printable_lines(text));
}
