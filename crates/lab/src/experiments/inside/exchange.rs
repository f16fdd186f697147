//! Two threads of a guest that answer each other: how long an exchange takes,
//! and what it costs as the library OS's scheduler counts it.

use serde_json::Value;

use super::{Data, Place, numbers, run};
use crate::appliance::GuestSpec;
use crate::bench::{Bench, RunError};

/// How an image says it, and under which names it is kept.
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
}

impl Exchange {
    /// Runs a machine and keeps what it said in `data`; the figures of the
    /// counters end in `suffix`.
    pub(crate) fn run(
        &self,
        data: &mut Data,
        bench: &mut Bench<'_>,
        place: Place,
        spec: &GuestSpec,
        suffix: &str,
    ) -> Result<(), RunError> {
        let (mut times, mut khz, mut counters) = (Vec::new(), None, None);
        let around = run(bench, place, spec, |record| {
            times.extend(numbers(record, self.times));
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
            if record.get(self.number).is_some() {
                counters = Some(record.clone());
            }
        })?;
        let us = 1e3 / khz.unwrap_or(f64::NAN);
        let times = times.iter().map(|cycles| cycles * us);
        data.extend(self.series, place.arm, times.filter(|us| us.is_finite()));
        if let Some(counters) = counters {
            self.count(data, suffix, &counters);
        }
        if let Some(end) = &around.end {
            data.count(place.arm, around.begin.as_ref(), end);
        }
        Ok(())
    }

    /// Keeps what the guest counted, for each exchange.
    fn count(&self, data: &mut Data, suffix: &str, counters: &Value) {
        let get = |name: &str| counters.get(name).and_then(Value::as_f64);
        let Some(number) = get(self.number).filter(|n| *n > 0.0) else {
            return;
        };
        for (counter, figure) in self.counters {
            if let Some(value) = get(counter) {
                let name = format!("{figure}.{suffix}");
                data.samples.add(&name, "1", value / number);
            }
        }
    }
}
