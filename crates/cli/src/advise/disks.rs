//! What the disks of a machine of Tare did within a window, by its own account.

use std::time::Instant;

use tare_advise::Disk;
use tare_control::client::Client;
use tare_control::config::DiskCoalesce;
use tare_control::rundir::RunRoot;
use tare_control::settings::DiskSettings;
use tare_control::stats::{DeviceStats, Stats};
use tare_probe::vm::{Monitor, Vm};

/// The beginning of a window.
pub(super) struct Window {
    client: Client,
    before: Stats,
    began: Instant,
}

impl Window {
    /// Begins; none for machines of others, and where the machine does not answer.
    pub(super) fn begin(vm: &Vm) -> Option<Self> {
        (vm.monitor == Monitor::Tare).then_some(())?;
        let dir = RunRoot::open_default().ok()?.find(&vm.name).ok()?;
        let mut client = Client::new(dir.control_socket());
        let before = client.stats().ok()?;
        Some(Self {
            client,
            before,
            began: Instant::now(),
        })
    }

    /// Ends: its disks in their order.
    pub(super) fn end(mut self) -> Vec<Disk> {
        let seconds = self.began.elapsed().as_secs_f64();
        let (Ok(after), Ok(settings)) = (self.client.stats(), self.client.settings()) else {
            return Vec::new();
        };
        let pairs = disks(&self.before).zip(disks(&after)).enumerate();
        pairs
            .filter_map(|(number, (before, after))| {
                let name = format!("disk{number}");
                let settings = settings.disks.get(&name)?;
                Some(disk(name, before, after, settings, seconds))
            })
            .collect()
    }
}

fn disks(stats: &Stats) -> impl Iterator<Item = &DeviceStats> {
    stats.devices.iter().filter(|device| device.kind == "blk")
}

fn disk(
    name: String,
    before: &DeviceStats,
    after: &DeviceStats,
    settings: &DiskSettings,
    seconds: f64,
) -> Disk {
    let grown = |counter: &str| {
        let of = |device: &DeviceStats| device.counters.get(counter).copied().unwrap_or(0);
        of(after).saturating_sub(of(before))
    };
    let completions = grown("coalesce_completions");
    let each = |counter| {
        (grown(counter) * 1000)
            .checked_div(completions)
            .unwrap_or(0)
    };
    Disk {
        name,
        coalesces: settings.coalesce.mode != DiskCoalesce::Off,
        completions_per_s: (completions as f64 / seconds) as u64,
        interrupts_permille: each("interrupts"),
        depth_permille: each("in_flight_sum"),
        least_completions_per_s: settings.coalesce.iops_threshold.into(),
        least_depth: settings.coalesce.cif_threshold.into(),
    }
}

#[cfg(test)]
mod tests {
    use tare_policy::coalesce::{Mode, Settings};

    use super::*;

    fn device(counts: [u64; 3]) -> DeviceStats {
        let names = ["coalesce_completions", "interrupts", "in_flight_sum"];
        DeviceStats {
            kind: "blk".to_owned(),
            counters: names.map(str::to_owned).into_iter().zip(counts).collect(),
            ..DeviceStats::default()
        }
    }

    #[test]
    fn a_disk_is_judged_by_what_grew_within_the_window() {
        let settings = DiskSettings {
            path: "x".to_owned(),
            coalesce: (&Settings::with_mode(Mode::Off)).into(),
        };
        let (before, after) = (device([100, 90, 100]), device([8100, 8010, 64_100]));
        let disk = disk("disk0".to_owned(), &before, &after, &settings, 2.0);
        assert_eq!(
            (
                disk.completions_per_s,
                disk.interrupts_permille,
                disk.depth_permille
            ),
            (4000, 990, 8000)
        );
        assert!(disk.would_coalesce());
        let idle = super::disk("disk0".to_owned(), &before, &before, &settings, 2.0);
        assert!(!idle.would_coalesce());
    }
}
