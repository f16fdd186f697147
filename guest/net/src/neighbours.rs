//! [`Neighbours`]: hardware addresses that were learned lately.
//!
//! A next hop that a connection hears nothing through is probed (RFC 4861, 7.3.3; for ARP
//! as Linux does): three times at the hardware address that is known, which is used meanwhile,
//! then three times by broadcast. So one that has moved is found without its announcement.
//!
//! TCP sends by this table. smoltcp keeps its own for everything else and
//! offers no way to look into it. An announcement changes only what is known
//! already (RFC 826).

use alloc::boxed::Box;
use core::net::IpAddr;

use smoltcp::time::{Duration, Instant};

/// Entries, as many as smoltcp's cache has (feature `iface-neighbor-cache-count-256`).
const ENTRIES: usize = 256;
/// What was learned this lately is sent by, and a SYN does not change it.
const FRESH: Duration = Duration::from_secs(30);
/// For this long it is sent by while requests for it have no answer.
const STALE: Duration = Duration::from_secs(5);
/// When what counts as unknown was learned.
const LONG_AGO: Instant = Instant::from_micros_const(i64::MIN / 2);
/// Time between two requests for an address.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Probes of a neighbour at the known address, then by broadcast (RFC 4861, 10; Linux:
/// `ucast_solicit`, `mcast_solicit`).
const UNICAST_PROBES: u32 = 3;
const PROBES: u32 = UNICAST_PROBES + 3;
/// Neighbours that are probed at a time. Others have their turn at a later timeout.
const PROBED: usize = 8;

/// Requests that are remembered.
const REQUESTS: usize = 16;

/// A hardware address.
pub(crate) type Mac = [u8; 6];

#[derive(Clone, Copy)]
struct Entry {
    address: IpAddr,
    mac: Mac,
    learned: Instant,
    /// Being probed there: still sent to, but a SYN from elsewhere is believed.
    is_doubted: bool,
}

/// A neighbour that is being probed.
#[derive(Clone, Copy)]
struct Probe {
    address: IpAddr,
    /// What it was reached by.
    mac: Mac,
    sent: u32,
    due: Instant,
}

/// What a neighbour was reached by until now: as the table had it, and as a connection did that
/// had it probed.
pub(crate) type Former = [Option<Mac>; 2];

/// A table with one place for each address; what comes later takes it.
pub(crate) struct Neighbours {
    entries: Box<[Option<Entry>; ENTRIES]>,
    /// The last requests.
    asked: [Option<(IpAddr, Instant)>; REQUESTS],
    next_request: usize,
    probes: [Option<Probe>; PROBED],
    /// When the next probe is due: asked for at each frame.
    probe_due: Option<Instant>,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        Self {
            entries: Box::new([None; ENTRIES]),
            asked: [None; REQUESTS],
            next_request: 0,
            probes: [None; PROBED],
            probe_due: None,
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

    /// The same for some time longer, in which requests for it can be answered.
    pub(crate) fn stale(&self, address: IpAddr, now: Instant) -> Option<Mac> {
        let entry = self.find(address)?;
        (now < entry.learned + FRESH + STALE).then_some(entry.mac)
    }

    fn find(&self, address: IpAddr) -> Option<&Entry> {
        let entry = self.entries[place(address)].as_ref();
        entry.filter(|entry| entry.address == address)
    }

    /// The same, unless the neighbour is being probed there.
    pub(crate) fn trusted(&self, address: IpAddr, now: Instant) -> Option<Mac> {
        let is_doubted = self.find(address).is_some_and(|entry| entry.is_doubted);
        self.get(address, now).filter(|_| !is_doubted)
    }

    /// Notes a hardware address that a neighbour has told. What it was reached by before, if
    /// that is another.
    pub(crate) fn note(&mut self, address: IpAddr, mac: Mac, now: Instant) -> Option<Former> {
        let known = self.find(address).map(|entry| entry.mac);
        let former = [known, self.end_probe(address)];
        self.learn(address, mac, now);
        let has_moved = former.iter().flatten().any(|old| *old != mac);
        has_moved.then_some(former)
    }

    /// A neighbour has answered without naming its hardware address: it is at the known one.
    /// One that is not known, or no longer, stays so.
    pub(crate) fn confirm(&mut self, address: IpAddr, now: Instant) {
        let is_lost = |probe: &Probe| probe.address == address && probe.sent > UNICAST_PROBES;
        if self.probes.iter().flatten().any(is_lost) {
            return;
        }
        let known = self
            .find(address)
            .filter(|entry| entry.learned != LONG_AGO)
            .map(|entry| entry.mac);
        if let Some(mac) = self.end_probe(address).or(known) {
            self.learn(address, mac, now);
        }
    }

    /// Notes the hardware address that a neighbour sends from.
    pub(crate) fn learn(&mut self, address: IpAddr, mac: Mac, now: Instant) {
        self.entries[place(address)] = Some(Entry {
            address,
            mac,
            learned: now,
            is_doubted: false,
        });
    }

    /// Begins to probe a neighbour that was reached by `mac`, unless it is being probed.
    pub(crate) fn suspect(&mut self, address: IpAddr, mac: Mac, now: Instant) {
        let is_probed = |probe: &Probe| probe.address == address;
        if self.probes.iter().flatten().any(is_probed) {
            return;
        }
        let Some(free) = self.probes.iter_mut().find(|probe| probe.is_none()) else {
            return;
        };
        *free = Some(Probe {
            address,
            mac,
            sent: 0,
            due: now,
        });
        self.note_probes();
        if let Some(entry) = self.entry_at(address, mac) {
            entry.is_doubted = true;
        }
    }

    /// What is known of a neighbour, if it is this.
    fn entry_at(&mut self, address: IpAddr, mac: Mac) -> Option<&mut Entry> {
        let entry = self.entries[place(address)].as_mut();
        entry.filter(|entry| (entry.address, entry.mac) == (address, mac))
    }

    /// A probe that is due: of whom, and where it goes, `None` for broadcast. One that had
    /// all its probes is given up.
    pub(crate) fn next_probe(&mut self, now: Instant) -> Option<(IpAddr, Option<Mac>)> {
        let next = self.take_due_probe(now);
        self.note_probes();
        next
    }

    fn take_due_probe(&mut self, now: Instant) -> Option<(IpAddr, Option<Mac>)> {
        for slot in &mut self.probes {
            let Some(probe) = slot.as_mut().filter(|probe| probe.due <= now) else {
                continue;
            };
            if probe.sent == PROBES {
                *slot = None;
                continue;
            }
            probe.sent += 1;
            probe.due = now + RETRY;
            let probe = *probe;
            if probe.sent <= UNICAST_PROBES {
                return Some((probe.address, Some(probe.mac)));
            }
            if let Some(entry) = self.entry_at(probe.address, probe.mac) {
                entry.learned = LONG_AGO;
            }
            return Some((probe.address, None));
        }
        None
    }

    /// When the next probe is due.
    #[inline]
    pub(crate) fn probe_deadline(&self) -> Option<Instant> {
        self.probe_due
    }

    /// Probes have changed.
    fn note_probes(&mut self) {
        self.probe_due = self.probes.iter().flatten().map(|probe| probe.due).min();
    }

    /// Ends the probing of a neighbour: what it was reached by.
    fn end_probe(&mut self, address: IpAddr) -> Option<Mac> {
        let is_of = |slot: &&mut Option<Probe>| slot.is_some_and(|it| it.address == address);
        let slot = self.probes.iter_mut().find(is_of)?;
        let ended = slot.take();
        self.note_probes();
        ended.map(|probe| probe.mac)
    }

    /// Whether this side has lately asked for `address`.
    pub(crate) fn awaits(&self, address: IpAddr) -> bool {
        let probed = self.probes.iter().flatten().map(|probe| probe.address);
        let asked = self.asked.iter().flatten().map(|(asked, _)| *asked);
        probed.chain(asked).any(|it| it == address)
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
