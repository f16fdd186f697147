//! Rising request rates, as httperf does them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_load::interrupt::Interrupt;
use tare_load::requests::{
    Connections, Exchange, Expected, Generator, LoadError, Schedule, latencies_us,
};
use tare_machines::linux::LinuxError;
use tare_machines::linux::catalog::{App, Protocol};
use tare_machines::linux::dialog::{ANSWER, body};
use tare_machines::linux::machine::LinuxMachine;

use super::plan::Plan;

/// Connections at most.
const CONNECTIONS: usize = 8;
/// Tries of a rate.
const TRIES: usize = 2;
/// A rate is sustained if this share of its requests gets a right answer,
const ANSWERED: f64 = 0.98;
/// and 99 of 100 of them within this time.
const P99: Duration = Duration::from_millis(250);

/// One rate and how it was carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Requests a second that were due.
    pub(super) rate: f64,
    /// Requests a second that were answered right.
    pub(super) answered: f64,
    /// Median response time, us; `None` if no answer was right.
    pub(super) p50_us: Option<f64>,
    /// 99th percentile, us.
    pub(super) p99_us: Option<f64>,
    /// Whether it was carried.
    pub(super) carried: bool,
}

/// Tries the plan's rates until one is not carried, also when tried once more: the
/// host's own pauses look like a guest that cannot follow.
pub(super) fn rising(
    machine: &LinuxMachine,
    app: &App,
    plan: &Plan,
    interrupt: &Interrupt,
) -> Result<Vec<Step>, LinuxError> {
    // The load sends nothing but requests on its connections.
    if !app.protocol.greeting().is_empty() {
        return Ok(Vec::new());
    }
    let exchange = exchange(machine, app)?;
    let mut steps = Vec::new();
    for rate in &plan.rates {
        for _ in 0..TRIES {
            steps.push(one(machine, &exchange, *rate, plan, interrupt)?);
            if carried(&steps) {
                break;
            }
        }
        if !carried(&steps) {
            break;
        }
    }
    Ok(steps)
}

fn carried(steps: &[Step]) -> bool {
    steps.last().is_some_and(|step| step.carried)
}

fn one(
    machine: &LinuxMachine,
    exchange: &Exchange,
    rate: f64,
    plan: &Plan,
    interrupt: &Interrupt,
) -> Result<Step, LinuxError> {
    let time = Duration::from_millis(plan.load_ms);
    let connections = Connections::KeepAlive(CONNECTIONS);
    let mut load = Generator::of(
        machine.client().address,
        vec![exchange.clone()],
        connections,
        ANSWER,
    );
    let requests =
        load.run(Schedule::steady(rate, time), interrupt)
            .map_err(|error| match error {
                LoadError::Interrupted(interrupted) => LinuxError::Interrupted(interrupted),
                LoadError::Poll(source) => LinuxError::file("the load's connections")(source),
            })?;
    let latencies = latencies_us(&requests);
    let last_ns = requests
        .iter()
        .map(|request| request.done_ns)
        .max()
        .unwrap_or(0);
    let seconds = (last_ns as f64 / 1e9).max(time.as_secs_f64());
    let share = latencies.len() as f64 / requests.len().max(1) as f64;
    let sorted = tare_stats::sorted(&latencies).filter(|sorted| !sorted.is_empty());
    let quantile = |q| {
        let sorted = sorted.as_ref()?;
        Some(tare_stats::quantile(sorted, q))
    };
    let p99_us = quantile(0.99);
    let is_quick = |us: f64| us <= P99.as_secs_f64() * 1e6;
    Ok(Step {
        rate,
        answered: latencies.len() as f64 / seconds,
        p50_us: quantile(0.5),
        p99_us,
        carried: share >= ANSWERED && p99_us.is_some_and(is_quick),
    })
}

/// The first request of the peak, with its answer.
fn exchange(machine: &LinuxMachine, app: &App) -> Result<Exchange, LinuxError> {
    let peak = app.phases.iter().find(|phase| phase.name == "peak");
    let request = peak
        .and_then(|phase| phase.requests.first())
        .map_or(&[][..], String::as_bytes);
    let answer = machine.client().learn(request)?;
    let answer = match app.protocol {
        Protocol::Http => Expected::Http(body(&answer).into()),
        Protocol::Redis | Protocol::Memcached | Protocol::Postgres => {
            Expected::Exactly(answer.into())
        }
    };
    Ok(Exchange {
        wire: request.into(),
        answer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_right_answer_is_read_back() {
        let step = Step {
            rate: 100.0,
            answered: 0.0,
            p50_us: None,
            p99_us: None,
            carried: false,
        };
        let value = serde_json::to_value([&step]).unwrap();
        assert_eq!(value[0]["p50_us"], serde_json::Value::Null);
        let read: Vec<Step> = serde_json::from_value(value).unwrap();
        assert_eq!(read, [step]);
    }
}
