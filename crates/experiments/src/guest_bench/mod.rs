//! Experiments that sample inside a guest: run its image, record every line that it
//! prints and KVM's counters meanwhile.
//!
//! An image prints JSON objects: `{"begin":true}` before it measures (and then
//! waits a moment, so that statistics can be read), samples, and at last
//! `{"done":true}`, after which it holds. Where printing would disturb the
//! account, it prints after `{"end":true}` and another moment.
//!
//! [`Arm`]s say where.

mod arm;
mod watched;

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Stats;
use tare_lab::kit::{Bench, RunError};
use tare_machines::appliance::GuestSpec;

pub(crate) use arm::{Arm, RunsIn, Settings, cpus, in_ring_3};
pub(crate) use tare_lab::kit::optional;
pub(crate) use watched::{PAUSE, exits, step_name, steps, watch};

/// Longest silence of an image: QEMU's firmware takes seconds on a KVM that
/// emulates it.
const SILENCE: Duration = Duration::from_secs(40);

/// Where a line belongs in the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArmRound {
    /// Name of the arm.
    pub(crate) arm: &'static str,
    /// Which time it has its turn, from 0.
    pub(crate) round: usize,
}

impl ArmRound {
    /// A machine for this turn in Tare's own monitor, on a KVM that waits as
    /// the kernel has it.
    pub(crate) fn machine(self, image: &str, cpus: u8, cmdline: String) -> GuestSpec {
        GuestSpec {
            label: self.arm.to_owned(),
            round: self.round,
            image: image.to_owned(),
            cpus,
            cmdline,
            engine: "tare",
            halt: "kernel",
            // Counts of instructions and halts compare with those of earlier runs.
            ring: "0",
            linux: None,
            disks: Vec::new(),
        }
    }
}

/// Statistics around the measuring; `None` where there are none.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// At `begin`; absent if the image says none.
    pub(crate) begin: Option<Stats>,
    /// At `end`, or at `done` if the image says none.
    pub(crate) end: Option<Stats>,
}

/// Runs an image until it is done; `take` gets each of its lines.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    place: ArmRound,
    spec: &GuestSpec,
    mut take: impl FnMut(&Value),
) -> Result<Snapshots, RunError> {
    let mut guest = bench.executor.measure(spec)?;
    let mut snapshots = Snapshots::default();
    loop {
        let record = guest.record(SILENCE, bench.interrupt)?;
        keep(bench, place, "guest", &record)?;
        take(&record);
        if record.get("begin").is_some() {
            snapshots.begin = stats(bench, place, guest.stats()?)?;
        }
        if record.get("end").is_some() {
            snapshots.end = stats(bench, place, guest.stats()?)?;
        }
        if record.get("done").is_some() {
            if snapshots.end.is_none() {
                snapshots.end = stats(bench, place, guest.stats()?)?;
            }
            bench.recorder.flush()?;
            return Ok(snapshots);
        }
    }
}

/// Keeps a value with its place.
pub(crate) fn keep(
    bench: &mut Bench<'_>,
    place: ArmRound,
    sample: &str,
    value: &Value,
) -> Result<(), RunError> {
    Ok(bench.recorder.sample(&json!({
        "sample": sample, "arm": place.arm, "round": place.round, "record": value,
    }))?)
}

fn stats(
    bench: &mut Bench<'_>,
    place: ArmRound,
    stats: Option<Stats>,
) -> Result<Option<Stats>, RunError> {
    if let Some(stats) = &stats {
        let value = serde_json::to_value(stats).unwrap_or_default();
        keep(bench, place, "stats", &value)?;
    }
    Ok(stats)
}

/// Keeps why a turn failed. Of a record that is read back: what it said then.
pub(crate) fn failed(
    bench: &mut Bench<'_>,
    place: ArmRound,
    why: String,
) -> Result<String, RunError> {
    let recorded = bench.executor.recorded(place.arm, "failed");
    if let Some(said) = recorded.as_ref().and_then(Value::as_str) {
        return Ok(said.to_owned());
    }
    keep(bench, place, "failed", &json!(why))?;
    Ok(why)
}

/// What threads of the host take, ns, measured now or read from a record, in whose line it is
/// `name`.
pub(crate) fn on_host(
    bench: &mut Bench<'_>,
    place: ArmRound,
    name: &str,
    measure: impl FnOnce() -> io::Result<Vec<f64>>,
) -> Result<Vec<f64>, RunError> {
    bench.interrupt.check()?;
    if bench.executor.is_replay() {
        let record = bench.executor.recorded(place.arm, "host");
        return Ok(numbers(&record.unwrap_or_default(), name).collect());
    }
    let measured = measure();
    bench.interrupt.check()?;
    let times = measured.map_err(|error| RunError::Other(Box::new(error)))?;
    keep(bench, place, "host", &json!({name: times}))?;
    Ok(times)
}

/// The numbers of a list in a line.
pub(crate) fn numbers<'a>(record: &'a Value, name: &str) -> impl Iterator<Item = f64> + use<'a> {
    let list = record.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_f64)
}
