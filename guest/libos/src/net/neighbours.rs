//! [`Neighbours`]: hardware addresses that were learned lately.
//!
//! TCP sends by this table. smoltcp keeps one of its own for everything else and
//! offers no way to look into it. An announcement changes only what is known
//! already (RFC 826).

use alloc::boxed::Box;
use core::net::IpAddr;

use smoltcp::time::{Duration, Instant};

/// Entries, as many as smoltcp's cache has (feature `iface-neighbor-cache-count-256`).
const ENTRIES: usize = 256;
/// What was learned this lately is sent by, and a SYN does not change it.
const FRESH: Duration = Duration::from_secs(30);
/// Time between two requests for an address.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Requests that are remembered.
const REQUESTS: usize = 16;

/// A hardware address.
pub(crate) type Mac = [u8; 6];

#[derive(Clone, Copy)]
struct Entry {
    address: IpAddr,
    mac: Mac,
    learned: Instant,
}

/// A table with one place for each address; what comes later takes it.
pub(crate) struct Neighbours {
    entries: Box<[Option<Entry>; ENTRIES]>,
    /// The last requests.
    asked: [Option<(IpAddr, Instant)>; REQUESTS],
    next_request: usize,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        Self {
            entries: Box::new([None; ENTRIES]),
            asked: [None; REQUESTS],
            next_request: 0,
        }
    }

    /// Whether `address` is known, with whatever hardware address.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        self.find(address).is_some()
    }

    /// The hardware address of `address`, if it has been learned lately.
    pub(crate) fn get(&self, address: IpAddr, now: Instant) -> Option<Mac> {
        let entry = self.find(address)?;
        (now < entry.learned + FRESH).then_some(entry.mac)
    }

    fn find(&self, address: IpAddr) -> Option<&Entry> {
        let entry = self.entries[place(address)].as_ref();
        entry.filter(|entry| entry.address == address)
    }

    /// Notes a hardware address. The old one, if it was known and is another.
    pub(crate) fn note(&mut self, address: IpAddr, mac: Mac, now: Instant) -> Option<Mac> {
        let old = self.find(address).map(|entry| entry.mac);
        self.entries[place(address)] = Some(Entry {
            address,
            mac,
            learned: now,
        });
        old.filter(|old| *old != mac)
    }

    /// Whether this side has lately asked for `address`.
    pub(crate) fn awaits(&self, address: IpAddr) -> bool {
        self.asked
            .iter()
            .flatten()
            .any(|(asked, _)| *asked == address)
    }

    /// Whether a request for `address` is due; notes it as sent.
    pub(crate) fn may_ask(&mut self, address: IpAddr, now: Instant) -> bool {
        let mut requests = self.asked.iter_mut().flatten();
        match requests.find(|(asked, _)| *asked == address) {
            Some((_, at)) if now < *at + RETRY => return false,
            Some((_, at)) => *at = now,
            None => {
                self.asked[self.next_request % REQUESTS] = Some((address, now));
                self.next_request = self.next_request.wrapping_add(1);
            }
        }
        true
    }
}

/// Neighbours differ in the last bits of their addresses.
fn place(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits ^ bits >> 32) as u32
        }
    };
    (bits ^ (bits >> 8)) as usize % ENTRIES
}

/// Whether a frame with this source is from one station.
pub(crate) fn is_unicast(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}
