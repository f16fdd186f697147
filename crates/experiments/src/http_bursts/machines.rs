//! Samples that are taken repeatedly of one machine: windows of CPU time, batches of requests.
//!
//! They share a boot and are not independent. So a figure has one sample for each machine, and
//! is the median over machines.

use std::collections::BTreeMap;

use tare_lab::kit::{Figure, median};

use super::sample::SamplePosition;

/// Which machine a sample is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Machine {
    /// The one of an arm's cycle in a phase.
    Of(SamplePosition),
    /// The one that began to serve as this many had.
    Served(usize),
}

/// Samples by figure, then by machine.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    /// CPU time and time of all windows, ns.
    windows: BTreeMap<String, BTreeMap<Machine, (f64, f64)>>,
    /// Values, each figure with its unit.
    values: BTreeMap<String, (&'static str, BTreeMap<Machine, Vec<f64>>)>,
    /// Machines that have served so far.
    served: usize,
}

impl Machines {
    /// One more machine serves.
    pub(crate) fn serve(&mut self) {
        self.served += 1;
    }

    /// The machine that began to serve last.
    pub(crate) fn last_served(&self) -> Machine {
        Machine::Served(self.served)
    }

    /// Adds a window of CPU time.
    pub(crate) fn window(
        &mut self,
        figure: String,
        place: SamplePosition,
        spent_ns: u64,
        wall_ns: u64,
    ) {
        let machines = self.windows.entry(figure).or_default();
        let sums = machines.entry(Machine::Of(place)).or_default();
        *sums = (sums.0 + spent_ns as f64, sums.1 + wall_ns as f64);
    }

    /// Adds one of several values of a machine.
    pub(crate) fn value(&mut self, figure: &str, unit: &'static str, machine: Machine, value: f64) {
        let empty = || (unit, BTreeMap::new());
        let (_, machines) = self.values.entry(figure.to_owned()).or_insert_with(empty);
        machines.entry(machine).or_default().push(value);
    }

    /// The medians over machines: of CPU time over all time of each, percent, and of the median
    /// of each one's values.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let shares = self.windows.iter().filter_map(|(name, machines)| {
            let shares = machines.values().filter(|(_, wall)| *wall > 0.0);
            let shares: Vec<f64> = shares.map(|(spent, wall)| spent / wall * 100.0).collect();
            median(name, "%", &shares)
        });
        let values = self.values.iter().filter_map(|(name, (unit, machines))| {
            let each = machines.values().filter_map(|it| tare_stats::summarize(it));
            let medians: Vec<f64> = each.map(|summary| summary.median).collect();
            median(name, unit, &medians)
        });
        shares.chain(values).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_bursts::arms::Arm;
    use crate::http_bursts::sample::Phase;
    use tare_lab::kit::Spread;

    #[test]
    fn windows_of_a_machine_are_one_sample_weighted_by_their_time() {
        let mut machines = Machines::default();
        for cycle in 0..2 {
            let place = SamplePosition {
                arm: Arm::Tare,
                cycle,
                phase: Phase::Burst,
            };
            for (spent_ns, wall_ns) in [(30, 100), (0, 200)] {
                machines.window("cpu".to_owned(), place, spent_ns, wall_ns);
            }
            machines.serve();
            for value in [1.0, 2.0, 90.0] {
                let machine = machines.last_served();
                machines.value("insns", "insns", machine, value);
            }
        }
        let figures = machines.figures();
        let is = |index: usize| {
            let figure: &Figure = &figures[index];
            (figure.name.as_str(), figure.value, figure.n, figure.spread)
        };
        assert_eq!(is(0), ("cpu", 10.0, 2, Spread::Range));
        assert_eq!(is(1), ("insns", 2.0, 2, Spread::Range));
    }
}
