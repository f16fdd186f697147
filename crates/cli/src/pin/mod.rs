//! `tare pin`: pins the threads of a machine, container or process to CPUs, and undoes it.
//!
//! The mechanism is in `crates/pin`; this module chooses the target and the duration, and prints.

mod explain;
mod table;

use std::time::{Duration, Instant};

use tare_control::exit::ExitCode;
use tare_pin::{Choice, Host, PinError, Pinned, Plan, Store, Target, Undone};

use crate::args::PinArgs;
use crate::failure::{CommandResult, Failure};
use crate::output::{print, warn};
use crate::signals::Requests;

/// How often to look for new threads while a placement is held.
const LOOK: Duration = Duration::from_millis(50);

/// Pins, or restores.
pub(crate) fn pin(args: &PinArgs) -> CommandResult {
    let store = Store::open_default()?;
    let requests = Requests::watch().map_err(|error| Failure::new(ExitCode::Internal, error))?;
    recover(&store);
    if args.undo {
        let target = Target::find(&args.target).ok();
        let undone = store.undo(&args.target, target.as_ref())?;
        return report(&undone, &args.target);
    }
    let target = Target::find(&args.target)?;
    let choice = args.cpus.map_or(Choice::Auto, |cpus| cpus.0);
    let plan = Plan::make(&target, &Host::read()?, &choice)?;
    for note in &plan.notes {
        warn(note);
    }
    if args.dry_run {
        return print(&table::planned(&plan));
    }
    let pinned = place(&store, &args.target, &plan, &requests)?;
    print(&table::placed(&pinned))?;
    match args.for_seconds {
        Some(seconds) => hold(pinned, seconds.duration(), &requests, &args.target),
        None => {
            pinned.keep()?;
            let name = &args.target;
            print(&format!("Put back with: tare pin {name} --undo\n"))
        }
    }
}

/// Restores what a killed process left, and reports it.
pub(crate) fn recover(store: &Store) {
    for recovered in store.recover() {
        let (name, undone) = (&recovered.asked, &recovered.undone);
        warn(&format!(
            "put back what an earlier tare, which was killed, had pinned for {name}: {}",
            table::undone(undone)
        ));
        undone.left.iter().for_each(|left| warn(left));
    }
}

/// Keeps the placement, also for new threads, until the time is over, the target ends or a signal
/// arrives; then restores the old one.
fn hold(mut pinned: Pinned, time: Duration, requests: &Requests, name: &str) -> CommandResult {
    let end = Instant::now() + time;
    let mut caught = 0;
    let ended = loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || pinned.read_back().is_empty() {
            break None;
        }
        if let Some(code) = requests.came() {
            break Some(code);
        }
        std::thread::sleep(left.min(LOOK));
        caught += pinned.catch()?;
    };
    if caught > 0 {
        print(&format!("{caught} new threads were pinned too\n"))?;
    }
    let code = report(&pinned.undo(), name)?;
    Ok(ended.unwrap_or(code))
}

fn report(undone: &Undone, name: &str) -> CommandResult {
    undone.left.iter().for_each(|left| warn(left));
    print(&format!("{name}: {}\n", table::undone(undone)))
}

/// Places every thread of the plan's target. After a signal it restores all that it moved, and
/// fails with the signal's exit code.
pub(crate) fn place(
    store: &Store,
    name: &str,
    plan: &Plan,
    requests: &Requests,
) -> Result<Pinned, Failure> {
    let placed = tare_pin::pin(store, name, plan, &|| requests.check().is_err());
    placed.map_err(|error| match (&error, requests.came()) {
        (PinError::Interrupted, Some(code)) => Failure::new(code, error),
        _ => error.into(),
    })
}
