//! Counters of a block device, and what its coalescers counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tare_policy::coalesce::{self, Cause, Coalescer, RATIO_SLOTS, Ratio};

use crate::counters::{CounterSource, counters};

counters! {
    /// What a block device counts, besides the transport.
    pub struct BlkCounters {
        /// Reads answered with success.
        reads,
        /// Their bytes.
        read_bytes,
        /// Writes answered with success.
        writes,
        /// Their bytes.
        write_bytes,
        /// Writes and write-zeroes requests that were durable before their answer.
        durable_writes,
        /// Flushes answered with success.
        flushes,
        /// Discards answered with success.
        discards,
        /// Write-zeroes requests answered with success.
        write_zeroes,
        /// Sum over all answered requests of the number in flight on their queue, each counting
        /// itself. Divided by the completions of a period it gives the mean depth.
        in_flight_sum,
        /// Times that the driver asked for the serial number.
        get_ids,
        /// Invalid requests: no status byte, no header, wrong direction or length.
        malformed_requests,
        /// Requests of an unknown type, or with flags that are not known.
        unsupported,
        /// Requests for sectors beyond the end.
        out_of_range,
        /// Writes to a read-only disk.
        read_only_violations,
        /// Requests that failed in the host.
        io_errors,
        /// Of these, requests that found no space.
        no_space,
        /// Of these, requests beyond the end of a file that became shorter.
        truncated,
        /// Requests whose buffers had to be copied, for O_DIRECT.
        bounced,
        /// Requests that continued after a part of them was done.
        resumed,
        /// Times that requests waited in a queue for others to complete.
        backpressure,
        /// Times that requests waited in a queue for the limits.
        limited,
        /// Times that the disk got another size.
        resizes,
        /// Resets that had to wait for requests in flight.
        drained,
    }
}

/// What the coalescers of all queues counted, published by the I/O thread.
#[derive(Debug, Default)]
pub(super) struct CoalesceView(Mutex<Vec<coalesce::Counters>>);

impl CoalesceView {
    /// Publishes the state of `queue`.
    pub(super) fn publish(&self, queue: usize, coalescer: &Coalescer) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= queue {
            all.resize_with(queue + 1, coalesce::Counters::default);
        }
        all[queue] = *coalescer.counters();
    }
}

impl CounterSource for CoalesceView {
    fn snapshot(&self) -> BTreeMap<String, u64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |value: &dyn Fn(&coalesce::Counters) -> u64| all.iter().map(value).sum::<u64>();
        let mut found = BTreeMap::from([
            ("coalesce_completions".to_owned(), sum(&|it| it.completions)),
            ("coalesce_delivered".to_owned(), sum(&|it| it.delivered)),
            ("coalesce_held".to_owned(), sum(&|it| it.held)),
            ("coalesce_expiries".to_owned(), sum(&|it| it.expiries)),
            ("coalesce_epochs".to_owned(), sum(&|it| it.epochs)),
            (
                "coalesce_longest_hold_ns".to_owned(),
                all.iter().map(|it| it.longest_hold_ns).max().unwrap_or(0),
            ),
        ]);
        for cause in Cause::ALL {
            let name = format!("coalesce_delivered_{}", cause.name());
            found.insert(name, sum(&|it| it.delivered_by[cause as usize]));
            // What ended the wait of held completions.
            let name = format!("coalesce_released_{}", cause.name());
            found.insert(name, sum(&|it| it.released[cause as usize]));
        }
        // R's distribution: completions by the ratio of their epoch.
        for slot in 0..RATIO_SLOTS {
            let completions = sum(&|it| it.ratio_completions[slot]);
            if let (Some(ratio), true) = (Ratio::of_slot(slot), completions > 0) {
                let name = format!("coalesce_r{:04}_completions", ratio.permille());
                *found.entry(name).or_default() += completions;
            }
        }
        found
    }
}

/// Device and coalescers in one snapshot.
pub(super) struct AllCounters {
    pub(super) device: Arc<BlkCounters>,
    pub(super) coalesce: Arc<CoalesceView>,
}

impl CounterSource for AllCounters {
    fn snapshot(&self) -> BTreeMap<String, u64> {
        let mut all = self.device.snapshot();
        all.extend(self.coalesce.snapshot());
        all
    }
}
