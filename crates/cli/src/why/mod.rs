//! `tare why`: explains where a machine's CPU time goes, and how to reduce it.
//!
//! The account is in `crates/probe`, the rules in `crates/why`; this module chooses the machines
//! and prints.

mod compare;
mod cost;
mod expiries;
pub(crate) mod prices;
mod report;
mod secrets;

use std::time::Instant;

use serde::Serialize;
use tare_control::exit::ExitCode;

use crate::args::WhyArgs;
use crate::failure::{CommandResult, Failure};
use crate::observe::Watch;
use crate::output::{print, warn};
use cost::RunCost;
use expiries::Counts;
use prices::Prices;
use report::{Report, SCHEMA};

/// The document of `--json` (`docs/why.md`).
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    prices: Prices,
    cost: RunCost,
    machines: Vec<Report>,
}

/// Watches for a while and prints the findings.
pub(crate) fn why(args: &WhyArgs) -> CommandResult {
    if let Some([before, after]) = args.compare.as_deref() {
        return print(&compare::compare(before, after)?);
    }
    let began = Instant::now();
    let prices = Prices::find(args.prices.as_deref())?;
    let mut watch = match &args.target {
        Some(target) => Watch::one(target)?,
        None => Watch::all(),
    };
    for missing in watch.unavailable() {
        warn(&missing.to_string());
    }
    // A signal ends the window early; the findings are printed all the same.
    let requests = watch.end_by_signal()?;
    requests.unless_terminated(findings(args, prices, watch, began))
}

/// Watches for the window, and prints what it shows.
fn findings(args: &WhyArgs, prices: Prices, mut watch: Watch, began: Instant) -> CommandResult {
    let counts = Counts::now(watch.vms());
    if counts.were_requested() {
        // The answers took CPU time of the monitors.
        watch.begin_again();
    }
    let mut accounts = watch.window(args.seconds.duration());
    counts.add_to(&mut accounts);
    if accounts.is_empty() && !args.json {
        return print(match watch.unavailable() {
            [] => "No virtual machine runs on this host.\n",
            _ => "No virtual machine of this user runs on this host.\n",
        });
    }
    let programs_ns = accounts
        .iter()
        .filter_map(|account| account.observer.bpf_ns)
        .max()
        .unwrap_or(0);
    let mut machines: Vec<Report> = accounts
        .into_iter()
        .map(|account| Report::of(account, &prices))
        .collect();
    machines.sort_by(|a, b| b.burn().total_cmp(&a.burn()));
    machines.truncate(args.count.unwrap_or(usize::MAX));
    let cost = RunCost::until_now(&watch, programs_ns, began.elapsed());
    if args.json {
        return print_json(prices, cost, machines);
    }
    print(&text(&machines, &prices, cost))
}

fn print_json(prices: Prices, cost: RunCost, machines: Vec<Report>) -> CommandResult {
    let document = Document {
        schema: SCHEMA,
        prices,
        cost,
        machines,
    };
    let json = serde_json::to_string_pretty(&document)
        .map_err(|error| Failure::new(ExitCode::Internal, error))?;
    print(&(json + "\n"))
}

/// The busiest machine first; several quiet ones in one line.
fn text(machines: &[Report], prices: &Prices, cost: RunCost) -> String {
    let (quiet, busy): (Vec<_>, Vec<_>) = machines
        .iter()
        .partition(|report| machines.len() > 1 && report.is_quiet());
    let mut texts: Vec<String> = busy.into_iter().map(Report::text).collect();
    if !quiet.is_empty() {
        texts.push(report::quiet(&quiet));
    }
    texts.push(report::notes(machines, prices, cost));
    texts.join("\n")
}
