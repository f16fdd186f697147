//! [`Neighbours`]: hardware addresses that were learned lately.
//!
//! TCP sends by this table. smoltcp keeps one of its own for everything else and
//! offers no way to look into it. An announcement changes only what is known
//! already (RFC 826).

use alloc::boxed::Box;
use core::net::Ipv4Addr;

use smoltcp::time::{Duration, Instant};

/// Entries, as many as smoltcp's cache has (feature `iface-neighbor-cache-count-256`).
const ENTRIES: usize = 256;
/// What was learned this lately is sent by, and a SYN does not change it.
const FRESH: Duration = Duration::from_secs(30);
/// Time between two requests for an address.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// A hardware address.
pub(crate) type Mac = [u8; 6];

#[derive(Clone, Copy)]
struct Entry {
    address: Ipv4Addr,
    mac: Mac,
    learned: Instant,
}

/// A table with one place for each address; what comes later takes it.
pub(crate) struct Neighbours {
    entries: Box<[Option<Entry>; ENTRIES]>,
    /// The last request.
    asked: Option<(Ipv4Addr, Instant)>,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        Self {
            entries: Box::new([None; ENTRIES]),
            asked: None,
        }
    }

    /// Whether `address` is known, with whatever hardware address.
    pub(crate) fn knows(&self, address: Ipv4Addr) -> bool {
        self.find(address).is_some()
    }

    /// The hardware address of `address`, if it has been learned lately.
    pub(crate) fn get(&self, address: Ipv4Addr, now: Instant) -> Option<Mac> {
        let entry = self.find(address)?;
        (now < entry.learned + FRESH).then_some(entry.mac)
    }

    fn find(&self, address: Ipv4Addr) -> Option<&Entry> {
        let entry = self.entries[place(address)].as_ref();
        entry.filter(|entry| entry.address == address)
    }

    /// Notes a hardware address. The old one, if it was known and is another.
    pub(crate) fn note(&mut self, address: Ipv4Addr, mac: Mac, now: Instant) -> Option<Mac> {
        let old = self.find(address).map(|entry| entry.mac);
        self.entries[place(address)] = Some(Entry {
            address,
            mac,
            learned: now,
        });
        old.filter(|old| *old != mac)
    }

    /// Whether a request for `address` is due; notes it as sent.
    pub(crate) fn may_ask(&mut self, address: Ipv4Addr, now: Instant) -> bool {
        let due = self
            .asked
            .is_none_or(|(last, at)| last != address || at + RETRY <= now);
        if due {
            self.asked = Some((address, now));
        }
        due
    }
}

/// Neighbours differ in the last bits of their addresses.
fn place(address: Ipv4Addr) -> usize {
    let bits = address.to_bits();
    (bits ^ (bits >> 8)) as usize % ENTRIES
}

/// Whether a frame with this source is from one station.
pub(crate) fn is_unicast(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}
