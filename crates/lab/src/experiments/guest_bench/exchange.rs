//! Ping-pong between two threads of a guest: time of an exchange, and its cost in
//! the scheduler's counters of the library OS.

use serde_json::Value;

use super::{ArmRound, Data, numbers, run};
use crate::appliance::GuestSpec;
use crate::bench::{Bench, RunError};

/// Names of an image's output fields and of the figures made from them.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Lists of times, in cycles.
    pub(crate) times: &'static str,
    /// The distribution that they become, in us.
    pub(crate) series: &'static str,
    /// In the line of counters: of how many they are.
    pub(crate) number: &'static str,
    /// The counters that are given for each, with their figures.
    pub(crate) counters: &'static [(&'static str, &'static str)],
    /// KVM's statistics that are given for each, with their figures.
    pub(crate) of_kvm: &'static [(&'static str, &'static str)],
    /// How many the image does before those that it counts: KVM counts them.
    pub(crate) warm_up: f64,
}

impl Exchange {
    /// Runs a machine and keeps what it said in `data`; the figures of the
    /// counters end in `suffix`.
    pub(crate) fn run(
        &self,
        data: &mut Data,
        bench: &mut Bench<'_>,
        place: ArmRound,
        spec: &GuestSpec,
        suffix: &str,
    ) -> Result<(), RunError> {
        let (mut times, mut khz, mut counters) = (Vec::new(), None, None);
        let snapshots = run(bench, place, spec, |record| {
            times.extend(numbers(record, self.times));
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
            if record.get(self.number).is_some() {
                counters = Some(record.clone());
            }
        })?;
        let us = 1e3 / khz.unwrap_or(f64::NAN);
        let times = times.iter().map(|cycles| cycles * us);
        data.extend(self.series, place.arm, times.filter(|us| us.is_finite()));
        let number = counters
            .as_ref()
            .and_then(|counters| counters.get(self.number)?.as_f64())
            .filter(|number| *number > 0.0);
        if let (Some(counters), Some(number)) = (counters, number) {
            self.count(data, suffix, &counters, number);
        }
        if let Some(end) = &snapshots.end {
            let mut turn = Data::default();
            turn.count(place.arm, snapshots.begin.as_ref(), end);
            if let Some(number) = number {
                self.count_kvm(data, suffix, &turn, place, number + self.warm_up);
            }
            data.count(place.arm, snapshots.begin.as_ref(), end);
        }
        Ok(())
    }

    /// Keeps what the guest counted, for each exchange.
    fn count(&self, data: &mut Data, suffix: &str, counters: &Value, number: f64) {
        for (counter, figure) in self.counters {
            if let Some(value) = counters.get(counter).and_then(Value::as_f64) {
                let name = format!("{figure}.{suffix}");
                data.samples.add(&name, "1", value / number);
            }
        }
    }

    /// Keeps what KVM counted in a turn, for each exchange.
    fn count_kvm(&self, data: &mut Data, suffix: &str, turn: &Data, place: ArmRound, number: f64) {
        for (statistic, figure) in self.of_kvm {
            if let Some(value) = turn.counter(place.arm, statistic) {
                let name = format!("{figure}.{suffix}");
                data.samples.add(&name, "1", value / number);
            }
        }
    }
}
