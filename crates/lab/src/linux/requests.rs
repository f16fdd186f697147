//! Requests whose instructions are counted one by one.

use std::io;
use std::time::Duration;

use super::LinuxError;
use super::catalog::{Connection, Phase};
use super::dialog::{ANSWER, Dialog};
use super::machine::LinuxMachine;
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
    let round = learn(machine, phase)?;
    match phase.connection {
        Connection::Kept => on_one_connection(machine, &round, samples, interrupt),
        Connection::EachVisit => visits(machine, &round, samples, interrupt),
    }
}

/// A request and the length of its answer.
struct Known {
    request: Vec<u8>,
    answer_bytes: usize,
}

/// The requests of every connection.
struct Round {
    /// What opens a connection; no bytes where nothing does.
    greeting: Known,
    requests: Vec<Known>,
}

impl Round {
    /// A new connection that takes requests.
    fn open(&self, machine: &LinuxMachine) -> io::Result<Dialog> {
        let mut dialog = Dialog::open(machine.address(), ANSWER)?;
        if !self.greeting.request.is_empty() {
            dialog.exchange(&self.greeting.request, self.greeting.answer_bytes)?;
        }
        Ok(dialog)
    }
}

fn learn(machine: &LinuxMachine, phase: &Phase) -> Result<Round, LinuxError> {
    let protocol = machine.protocol();
    if !phase.prepare.is_empty() {
        machine.learn(&protocol.wire(&phase.prepare))?;
    }
    let one = |request: &String| {
        let request = protocol.wire(request);
        let answer_bytes = machine.learn(&request)?.len();
        Ok(Known {
            request,
            answer_bytes,
        })
    };
    let requests: Result<_, LinuxError> = phase.requests.iter().map(one).collect();
    Ok(Round {
        greeting: Known {
            request: protocol.greeting(),
            answer_bytes: machine.learn_greeting()?.len(),
        },
        requests: requests?,
    })
}

fn on_one_connection(
    machine: &LinuxMachine,
    round: &Round,
    samples: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Count>, LinuxError> {
    let mut counts = Vec::new();
    for _ in 0..REOPENED {
        let Ok(mut dialog) = round.open(machine) else {
            break;
        };
        // The first one is the connection's.
        let mut is_warm = false;
        for one in round.requests.iter().cycle() {
            if counts.len() == samples {
                return Ok(counts);
            }
            let before = machine.count()?;
            if dialog.exchange(&one.request, one.answer_bytes).is_err() {
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
    Err(machine.unanswered(last.map_or(&[], |one| &one.request)))
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
        let mut dialog = round
            .open(machine)
            .map_err(|_| machine.unanswered(b"a connection"))?;
        for one in &round.requests {
            dialog
                .exchange(&one.request, one.answer_bytes)
                .map_err(|_| machine.unanswered(&one.request))?;
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
