//! Requests whose instructions are counted one by one.

use std::time::Duration;

use super::LinuxError;
use super::catalog::{Connection, Phase};
use super::dialog::Dialog;
use super::machine::{ANSWER, LinuxMachine};
use tare_load::interrupt::Interrupt;
use tare_tailor::counter::Count;

/// For what a request leaves to be done: the guest sleeps before this is over.
const SETTLE: Duration = Duration::from_millis(15);
/// Connections that may end under way: servers end them after a number of requests.
const REOPENED: usize = 50;

/// Counts `samples` rounds of a phase; instructions of one request each.
pub(crate) fn count(
    machine: &LinuxMachine,
    phase: &Phase,
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Count>, LinuxError> {
    let known = learn(machine, phase)?;
    match phase.connection {
        Connection::Kept => on_one_connection(machine, &known, samples, interrupt),
        Connection::EachVisit => visits(machine, &known, samples, interrupt),
    }
}

/// A request and the length of its answer.
struct Known<'a> {
    request: &'a [u8],
    answer_bytes: usize,
}

fn learn<'a>(machine: &LinuxMachine, phase: &'a Phase) -> Result<Vec<Known<'a>>, LinuxError> {
    if !phase.prepare.is_empty() {
        machine.learn(phase.prepare.as_bytes())?;
    }
    let one = |request: &'a String| {
        let request = request.as_bytes();
        let answer_bytes = machine.learn(request)?.len();
        Ok(Known {
            request,
            answer_bytes,
        })
    };
    phase.requests.iter().map(one).collect()
}

fn on_one_connection(
    machine: &LinuxMachine,
    known: &[Known<'_>],
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Count>, LinuxError> {
    let mut counts = Vec::new();
    for _ in 0..REOPENED {
        let Ok(mut dialog) = Dialog::open(machine.address(), ANSWER) else {
            break;
        };
        // The first one is the connection's.
        let mut is_warm = false;
        for one in known.iter().cycle() {
            if counts.len() == samples {
                return Ok(counts);
            }
            let before = machine.count()?;
            if dialog.exchange(one.request, one.answer_bytes).is_err() {
                break;
            }
            interrupt.sleep(SETTLE)?;
            if is_warm {
                counts.push(machine.count()? - before);
            }
            is_warm = true;
        }
    }
    let last = known.first().map_or(&[][..], |one| one.request);
    Err(machine.unanswered(last))
}

fn visits(
    machine: &LinuxMachine,
    known: &[Known<'_>],
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Count>, LinuxError> {
    let mut counts = Vec::new();
    for _ in 0..samples {
        let before = machine.count()?;
        let mut dialog = Dialog::open(machine.address(), ANSWER)
            .map_err(|_| machine.unanswered(b"a connection"))?;
        for one in known {
            dialog
                .exchange(one.request, one.answer_bytes)
                .map_err(|_| machine.unanswered(one.request))?;
        }
        drop(dialog);
        interrupt.sleep(SETTLE)?;
        let spent = machine.count()? - before;
        let requests = known.len().max(1) as u64;
        counts.push(Count {
            user: spent.user / requests,
            kernel: spent.kernel / requests,
            iterations: spent.iterations / requests,
        });
    }
    Ok(counts)
}
