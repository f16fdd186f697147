//! [`Neighbours`]: whose hardware addresses were learned lately.
//!
//! smoltcp keeps the cache that frames are sent by and offers no way to look into it.
//! This table knows what went in, so that a hardware address is learned once from a
//! peer's SYN and not again for each, and so that announcements change only what is
//! known already (RFC 826).

use alloc::boxed::Box;
use core::net::Ipv4Addr;

use smoltcp::time::{Duration, Instant};

/// Entries, as many as smoltcp's cache has (feature `iface-neighbor-cache-count-256`).
const ENTRIES: usize = 256;
/// What was learned this lately is not learned again from a SYN.
const FRESH: Duration = Duration::from_secs(30);

/// A hardware address.
pub(super) type Mac = [u8; 6];

#[derive(Clone, Copy)]
struct Entry {
    address: Ipv4Addr,
    learned: Instant,
}

/// A table with one place for each address; what comes later takes it.
pub(super) struct Neighbours(Box<[Option<Entry>; ENTRIES]>);

impl Neighbours {
    pub(super) fn new() -> Self {
        Self(Box::new([None; ENTRIES]))
    }

    /// Whether `address` is known, with whatever hardware address.
    pub(super) fn knows(&self, address: Ipv4Addr) -> bool {
        let entry = &self.0[place(address)];
        entry.is_some_and(|entry| entry.address == address)
    }

    /// Whether `address` has been learned lately.
    pub(super) fn is_fresh(&self, address: Ipv4Addr, now: Instant) -> bool {
        let entry = &self.0[place(address)];
        entry.is_some_and(|entry| entry.address == address && now < entry.learned + FRESH)
    }

    pub(super) fn note(&mut self, address: Ipv4Addr, now: Instant) {
        self.0[place(address)] = Some(Entry {
            address,
            learned: now,
        });
    }
}

/// Neighbours differ in the last bits of their addresses.
fn place(address: Ipv4Addr) -> usize {
    let bits = address.to_bits();
    (bits ^ (bits >> 8)) as usize % ENTRIES
}

/// Whether a frame with this source is from one station.
pub(super) fn is_unicast(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}
