//! The requests on a Tare machine's disks within a window, from the machine's own statistics.

use std::time::Duration;

use tare_advise::Disk;
use tare_control::client::Client;
use tare_control::config::DiskCoalesce;
use tare_control::live::{self, DiskInterval};
use tare_control::rundir::RunRoot;
use tare_control::settings::DiskSettings;
use tare_control::stats::Stats;
use tare_probe::vm::{Monitor, Vm};

/// How long a machine may take to answer. Without its answer, the report lacks its disks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The beginning of a window.
pub(super) struct Window {
    client: Client,
    before: Stats,
}

impl Window {
    /// Begins a window; `None` for other monitors' machines, or if the machine does not answer.
    pub(super) fn begin(vm: &Vm) -> Option<Self> {
        (vm.monitor == Monitor::Tare).then_some(())?;
        let dir = RunRoot::open_default().ok()?.find(&vm.name).ok()?;
        let mut client = Client::new(dir.control_socket()).with_timeout(ANSWER_TIMEOUT);
        let before = client.stats().ok()?;
        Some(Self { client, before })
    }

    /// Ends the window; returns the disks in order.
    pub(super) fn end(mut self) -> Vec<Disk> {
        let (Ok(after), Ok(settings)) = (self.client.stats(), self.client.settings()) else {
            return Vec::new();
        };
        let intervals = live::intervals(&self.before, &after).into_iter();
        intervals
            .filter_map(|interval| {
                let settings = settings.disks.get(&interval.disk)?;
                Some(disk(interval, settings))
            })
            .collect()
    }
}

fn disk(interval: DiskInterval, settings: &DiskSettings) -> Disk {
    let permille = |each: f64| (each * 1000.0).round() as u64;
    Disk {
        coalesces: settings.coalesce.mode != DiskCoalesce::Off,
        completions_per_s: interval.iops as u64,
        interrupts_permille: permille(interval.interrupts_per_io),
        depth_permille: permille(interval.in_flight),
        least_completions_per_s: settings.coalesce.iops_threshold.into(),
        least_depth: settings.coalesce.cif_threshold.into(),
        name: interval.disk,
    }
}

#[cfg(test)]
mod tests {
    use tare_policy::coalesce::{Mode, Settings};

    use super::*;

    #[test]
    fn a_disk_is_judged_by_what_grew_within_the_window() {
        let settings = DiskSettings {
            path: "x".to_owned(),
            coalesce: (&Settings::with_mode(Mode::Off)).into(),
            iops: 0,
            bytes_per_s: 0,
            size: 512,
        };
        let interval = |completions, in_flight, interrupts_per_io| DiskInterval {
            disk: "disk0".to_owned(),
            from_s: 1.0,
            to_s: 3.0,
            completions,
            iops: completions as f64 / 2.0,
            in_flight,
            r: interrupts_per_io,
            interrupts_per_io,
        };
        let disk = disk(interval(8_000, 8.0, 0.99), &settings);
        assert_eq!(
            (
                disk.completions_per_s,
                disk.interrupts_permille,
                disk.depth_permille
            ),
            (4000, 990, 8000)
        );
        assert!(disk.would_coalesce());
        let idle = super::disk(interval(0, 0.0, 0.0), &settings);
        assert!(!idle.would_coalesce());
    }
}
