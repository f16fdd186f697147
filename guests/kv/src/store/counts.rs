//! What a store counts, named as memcached's `stats` names it.

/// Counters that only grow, until `stats reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are memcached's, protocol.txt explains them.
pub struct Counts {
    pub cmd_get: u64,
    pub cmd_set: u64,
    pub cmd_flush: u64,
    pub cmd_touch: u64,
    pub get_hits: u64,
    pub get_misses: u64,
    pub get_expired: u64,
    pub get_flushed: u64,
    pub delete_hits: u64,
    pub delete_misses: u64,
    pub incr_hits: u64,
    pub incr_misses: u64,
    pub decr_hits: u64,
    pub decr_misses: u64,
    pub cas_hits: u64,
    pub cas_misses: u64,
    pub cas_badval: u64,
    pub touch_hits: u64,
    pub touch_misses: u64,
    pub total_items: u64,
    pub evictions: u64,
    pub reclaimed: u64,
    pub store_no_memory: u64,
    pub store_too_large: u64,
}

impl Counts {
    /// Every count by its name, in memcached's order.
    pub fn named(&self) -> [(&'static str, u64); 24] {
        [
            ("cmd_get", self.cmd_get),
            ("cmd_set", self.cmd_set),
            ("cmd_flush", self.cmd_flush),
            ("cmd_touch", self.cmd_touch),
            ("get_hits", self.get_hits),
            ("get_misses", self.get_misses),
            ("get_expired", self.get_expired),
            ("get_flushed", self.get_flushed),
            ("delete_misses", self.delete_misses),
            ("delete_hits", self.delete_hits),
            ("incr_misses", self.incr_misses),
            ("incr_hits", self.incr_hits),
            ("decr_misses", self.decr_misses),
            ("decr_hits", self.decr_hits),
            ("cas_misses", self.cas_misses),
            ("cas_hits", self.cas_hits),
            ("cas_badval", self.cas_badval),
            ("touch_hits", self.touch_hits),
            ("touch_misses", self.touch_misses),
            ("store_too_large", self.store_too_large),
            ("store_no_memory", self.store_no_memory),
            ("total_items", self.total_items),
            ("evictions", self.evictions),
            ("reclaimed", self.reclaimed),
        ]
    }
}
