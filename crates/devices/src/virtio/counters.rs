//! Counters of the transport, and their union with the device's.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::counters::{CounterSource, counters};

counters! {
    /// What every virtio device counts.
    pub struct TransportCounters {
        /// Interrupts sent, or pending behind a mask.
        interrupts,
        /// Times that completions needed no interrupt because the driver had suppressed it.
        interrupts_suppressed,
        /// Times that an interrupt was held back for later completions.
        interrupts_held,
        /// Notifications of queues: from the driver, and one a queue at its start or a reset.
        notifications,
        /// Broken queues and invalid requests.
        malformed,
        /// Resets by the driver.
        resets,
        /// Register accesses with an invalid width, order, offset or value.
        invalid_accesses,
        /// Feature selections that were refused.
        features_refused,
        /// Attempts to move the BAR.
        bar_moves_refused,
        /// Configuration changes that raised an interrupt.
        config_changes,
    }
}

/// Transport and device in one snapshot.
pub struct VirtioCounters {
    /// The transport's.
    pub transport: Arc<TransportCounters>,
    /// The device's. A counter in both is added up.
    pub device: Arc<dyn CounterSource>,
}

impl CounterSource for VirtioCounters {
    fn snapshot(&self) -> BTreeMap<String, u64> {
        let mut all = self.transport.snapshot();
        for (name, value) in self.device.snapshot() {
            *all.entry(name).or_default() += value;
        }
        all
    }
}
