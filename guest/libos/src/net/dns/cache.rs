//! [`Cache`]: names that were resolved lately, bounded in number and time.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use crate::time::Instant;

/// Names kept.
const ENTRIES: usize = 64;
/// No answer is kept longer (RFC 8767, 4 suggests 7 days at most; names of services
/// move sooner).
const LIFETIME_MAX: u32 = 3600;

struct Entry {
    name: String,
    /// None for a name that does not exist.
    addresses: Vec<IpAddr>,
    until: Instant,
}

/// Addresses by name.
pub(super) struct Cache(Vec<Entry>);

impl Cache {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// What is known of `name`; no addresses mean that there are none.
    pub(super) fn get(&mut self, name: &str, now: Instant) -> Option<Vec<IpAddr>> {
        self.0.retain(|entry| now < entry.until);
        let entry = self.0.iter().find(|entry| entry.name == name)?;
        Some(entry.addresses.clone())
    }

    /// Keeps an answer for `seconds`. When the cache is full, the entry that ends
    /// first goes.
    pub(super) fn put(&mut self, name: &str, addresses: &[IpAddr], seconds: u32, now: Instant) {
        self.0.retain(|entry| entry.name != name);
        let seconds = seconds.min(LIFETIME_MAX);
        if seconds == 0 {
            return;
        }
        if self.0.len() >= ENTRIES {
            let ends = |(_, entry): &(usize, &Entry)| entry.until;
            if let Some((first, _)) = self.0.iter().enumerate().min_by_key(ends) {
                self.0.swap_remove(first);
            }
        }
        self.0.push(Entry {
            name: name.into(),
            addresses: addresses.into(),
            until: now + Duration::from_secs(u64::from(seconds)),
        });
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn entries_end_with_their_time_and_the_next_to_end_gives_way() {
        let mut cache = Cache::new();
        let start = Instant::from_nanos(0);
        let address = [IpAddr::from([192, 0, 2, 1])];
        for n in 0..ENTRIES as u32 + 1 {
            cache.put(&format!("n{n}"), &address, 1000 - n, start);
        }
        let has = |cache: &mut Cache, name: &str, at: u64| {
            cache.get(name, Instant::from_nanos(at * 1_000_000_000))
        };
        assert_eq!(has(&mut cache, "n0", 0), Some(address.to_vec()));
        // The last but one of the first 64 ended first.
        assert_eq!(has(&mut cache, "n63", 0), None);
        assert_eq!(has(&mut cache, "n64", 0), Some(address.to_vec()));
        cache.put("n64", &[], 5, start);
        assert_eq!(has(&mut cache, "n64", 4), Some(Vec::new()));
        assert_eq!(has(&mut cache, "n64", 5), None);
        cache.put("long", &address, u32::MAX, start);
        assert_eq!(has(&mut cache, "long", 3600), None);
        cache.put("never", &address, 0, start);
        assert_eq!(has(&mut cache, "never", 0), None);
    }
}
