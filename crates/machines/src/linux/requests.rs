//! Requests whose instructions are counted one by one.

use std::time::Duration;

use super::LinuxError;
use super::catalog::{Connection, Phase};
use super::client::Round;
use super::machine::LinuxMachine;
use tare_load::interrupt::Interrupt;
use tare_tailor::counter::Count;

/// For what a request leaves to be done: the guest sleeps before this is over.
const SETTLE: Duration = Duration::from_millis(15);
/// Connections that may end under way: servers end them after a number of requests.
const REOPENED: usize = 50;

/// Counts `samples` rounds of a phase; instructions of one request each.
pub fn count(
    machine: &LinuxMachine,
    phase: &Phase,
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Count>, LinuxError> {
    let round = machine.client().round(phase)?;
    match phase.connection {
        Connection::Kept => on_one_connection(machine, &round, samples, interrupt),
        Connection::EachVisit => visits(machine, &round, samples, interrupt),
    }
}

fn on_one_connection(
    machine: &LinuxMachine,
    round: &Round,
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Count>, LinuxError> {
    let mut counts = Vec::new();
    for _ in 0..REOPENED {
        let Ok(mut dialog) = machine.client().open(round) else {
            break;
        };
        // The first one is the connection's.
        let mut is_warm = false;
        for one in round.requests.iter().cycle() {
            if counts.len() == samples {
                return Ok(counts);
            }
            let before = machine.count()?;
            if one.ask(&mut dialog).is_err() {
                break;
            }
            interrupt.sleep(SETTLE)?;
            if is_warm {
                counts.push(machine.count()? - before);
            }
            is_warm = true;
        }
    }
    let last = round.requests.first();
    Err(machine
        .client()
        .unanswered(last.map_or(&[], |one| &one.request)))
}

fn visits(
    machine: &LinuxMachine,
    round: &Round,
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Count>, LinuxError> {
    let mut counts = Vec::new();
    for _ in 0..samples {
        let before = machine.count()?;
        let client = machine.client();
        let mut dialog = client
            .open(round)
            .map_err(|_| client.unanswered(b"a connection"))?;
        for one in &round.requests {
            one.ask(&mut dialog)
                .map_err(|_| client.unanswered(&one.request))?;
        }
        drop(dialog);
        interrupt.sleep(SETTLE)?;
        let spent = machine.count()? - before;
        let requests = round.requests.len().max(1) as u64;
        counts.push(Count {
            user: spent.user / requests,
            kernel: spent.kernel / requests,
            iterations: spent.iterations / requests,
        });
    }
    Ok(counts)
}
