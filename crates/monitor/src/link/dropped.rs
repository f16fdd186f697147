//! Counts frames of the guest that the filter dropped, by reason.

use tare_devices::counters;
use tare_frames::Reason;

counters! {
    /// Frames from the guest that the filter dropped, by what they named.
    pub struct FilterCounters {
        /// The host's loopback.
        tx_filtered_loopback,
        /// 0.0.0.0/8 or ::.
        tx_filtered_unspecified,
        /// Link-local addresses.
        tx_filtered_link_local,
        /// An address of the host.
        tx_filtered_host,
        /// Multicast or broadcast.
        tx_filtered_multicast,
        /// A protocol other than ARP and IP.
        tx_filtered_protocol,
        /// Frames that cannot be parsed.
        tx_filtered_malformed,
    }
}

impl FilterCounters {
    /// Counts one frame.
    pub(crate) fn count(&self, reason: Reason) {
        let counter = match reason {
            Reason::Loopback => &self.tx_filtered_loopback,
            Reason::Unspecified => &self.tx_filtered_unspecified,
            Reason::LinkLocal => &self.tx_filtered_link_local,
            Reason::Host => &self.tx_filtered_host,
            Reason::Multicast => &self.tx_filtered_multicast,
            Reason::Protocol => &self.tx_filtered_protocol,
            Reason::Malformed => &self.tx_filtered_malformed,
        };
        counter.increment();
    }
}

#[cfg(test)]
mod tests {
    use tare_devices::CounterSource as _;

    use super::*;

    #[test]
    fn every_reason_has_a_counter() {
        let counters = FilterCounters::default();
        for reason in Reason::ALL {
            counters.count(reason);
        }
        assert!(counters.snapshot().values().all(|count| *count == 1));
    }
}
