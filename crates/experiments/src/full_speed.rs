//! What a server carries at full speed: the next request when one has been answered.

use std::time::{Duration, Instant};

use tare_lab::kit::RunError;
use tare_load::interrupt::Interrupt;
use tare_load::requests::{Generator, Request, Schedule};
use tare_machines::appliance::Appliance;
use tare_machines::observe::CpuSpent;

/// A load at full speed.
pub(crate) struct Carried {
    pub(crate) requests: Vec<Request>,
    /// How many of them were answered right.
    pub(crate) answered: usize,
    pub(crate) seconds: f64,
    /// The server's CPU time meanwhile.
    pub(crate) spent: CpuSpent,
}

impl Carried {
    /// Right answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds
    }
}

/// Asks for `time`, with this many requests under way at once.
pub(crate) fn carried(
    server: &mut dyn Appliance,
    generator: &mut Generator,
    (concurrency, time): (usize, Duration),
    interrupt: &Interrupt,
) -> Result<Carried, RunError> {
    let schedule = Schedule::Closed {
        concurrency,
        until: time,
        count: usize::MAX,
    };
    let (before, begin) = (server.cpu()?, Instant::now());
    let requests = generator.run(schedule, interrupt)?;
    let seconds = begin.elapsed().as_secs_f64();
    let spent = server.cpu()?.since(&before);
    let right = requests.iter().filter(|request| request.failure.is_none());
    Ok(Carried {
        answered: right.count(),
        requests,
        seconds,
        spent,
    })
}
