//! `tare why`: what burns the CPU time of a machine, and what to do about it.
//!
//! The account is `crates/probe`'s, the judgement `crates/why`'s; here is whom it
//! is about and how it is printed.

pub(crate) mod prices;
mod report;

use serde::Serialize;
use tare_control::exit::ExitCode;

use crate::args::WhyArgs;
use crate::failure::{Failure, Outcome};
use crate::observe::Watch;
use prices::Prices;
use report::{Report, SCHEMA};

/// The document of `--json` (`docs/why.md`).
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    prices: Prices,
    machines: Vec<Report>,
}

/// Watches for a while and says what was seen.
pub(crate) fn why(args: &WhyArgs) -> Outcome {
    let prices = Prices::find(args.prices.as_deref())?;
    let mut watch = match &args.target {
        Some(target) => Watch::one(target)?,
        None => Watch::all(),
    };
    for missing in watch.unavailable() {
        crate::warn(&missing.to_string());
    }
    if watch.is_empty() && !args.json {
        return crate::print(match watch.unavailable() {
            [] => "No virtual machine runs on this host.\n",
            _ => "No virtual machine of this user runs on this host.\n",
        });
    }
    // Whoever has seen enough still wants to know what was seen.
    watch.end_by_signal()?;
    let accounts = match watch.is_empty() {
        true => Vec::new(),
        false => watch.interval(args.seconds.duration()),
    };
    let machines: Vec<Report> = accounts
        .into_iter()
        .map(|account| Report::of(account, &prices))
        .collect();
    if args.json {
        let document = Document {
            schema: SCHEMA,
            prices,
            machines,
        };
        let json = serde_json::to_string_pretty(&document)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        return crate::print(&(json + "\n"));
    }
    let mut texts: Vec<String> = machines.iter().map(Report::text).collect();
    texts.push(report::notes(&machines, &prices));
    crate::print(&texts.join("\n"))
}
