//! How a disk's completions are coalesced: every parameter of
//! [`tare_policy::coalesce`], and the way there and back.

use tare_policy::coalesce::{self, Mode, Parameters, Settings};

use super::group::group;
use crate::config::DiskCoalesce;

group! {
    /// Coalescing of one disk, all its queues.
    Coalesce, CoalesceChange {
        /// what interrupts the guest: auto, off or A/B
        "coalesce" mode: DiskCoalesce,
        /// all are delivered below this many commands in flight
        "coalesce.cif_threshold" cif_threshold: u32,
        /// all are delivered below this many completions a second
        "coalesce.iops_threshold" iops_threshold: u32,
        /// the ratio is chosen anew after this long
        "coalesce.epoch_us" epoch_us: u64,
        /// no completion is held for longer
        "coalesce.longest_hold_us" longest_hold_us: u64,
        /// a read is urgent while fewer are in flight
        "coalesce.read_urgent_below" read_urgent_below: u32,
        /// so is a write of a driver that flushes
        "coalesce.write_urgent_below" write_urgent_below: u32,
    }
}

impl Coalesce {
    /// The checked form that the rule takes.
    pub fn settings(&self) -> Result<Settings, coalesce::SettingsError> {
        Settings::new(Parameters {
            mode: self.mode.mode()?,
            cif_threshold: self.cif_threshold,
            iops_threshold: self.iops_threshold,
            epoch_ns: self.epoch_us.saturating_mul(1000),
            longest_hold_ns: self.longest_hold_us.saturating_mul(1000),
            read_urgent_below: self.read_urgent_below,
            write_urgent_below: self.write_urgent_below,
        })
    }
}

impl From<&Settings> for Coalesce {
    fn from(settings: &Settings) -> Self {
        let now = settings.parameters();
        Self {
            mode: match now.mode {
                Mode::Auto => DiskCoalesce::Auto,
                Mode::Off => DiskCoalesce::Off,
                Mode::Fixed(ratio) => DiskCoalesce::Ratio {
                    delivered: ratio.count_up(),
                    of: ratio.skip_up(),
                },
            },
            cif_threshold: now.cif_threshold,
            iops_threshold: now.iops_threshold,
            epoch_us: now.epoch_ns / 1000,
            longest_hold_us: now.longest_hold_ns / 1000,
            read_urgent_below: now.read_urgent_below,
            write_urgent_below: now.write_urgent_below,
        }
    }
}
