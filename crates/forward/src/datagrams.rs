//! [`Datagrams`]: clients of published UDP ports, by what they are for the guest, and what waits for it.
//!
//! A datagram says nothing about an end, so a client is remembered for [`REMEMBERED`] after its last one, and the
//! guest may answer until then. No timer is needed: the time is looked at when the guest answers.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use tare_tcp::FourTuple;
use tare_tcp::time::{Duration, Instant};

/// How long a client that sends nothing more is answered (RFC 4787, 4.3: five minutes).
const REMEMBERED: Duration = Duration::from_secs(300);
/// Clients that are remembered; a further one takes the place of one that has been silent for long.
const CLIENTS_MAX: usize = 4096;
/// Clients that are looked at for such a place: the longest silent of them leaves it.
const LOOKED_AT: usize = 8;
/// Frames of datagrams that wait for the guest; the fragments of one more may go beyond.
const WAITING_MAX: usize = 128;

/// A socket of the host that datagrams come from and go to: its number among those of UDP.
pub type DatagramPort = u16;

/// A client of UDP ports, as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramClient {
    /// The socket that it sends to, which its answers leave by.
    pub port: DatagramPort,
    /// The host's address that it sends to, which its answers come from; none where the socket has one only.
    pub host: Option<IpAddr>,
    /// Its own.
    pub address: SocketAddr,
}

/// A datagram of the guest for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Where it goes.
    pub client: DatagramClient,
    /// Its data; owned if it came in fragments.
    pub bytes: Cow<'a, [u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    side: DatagramClient,
    /// What both ends are for the guest.
    ends: FourTuple,
    heard: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    clients: Vec<Client>,
    by_side: HashMap<DatagramClient, usize>,
    by_ends: HashMap<FourTuple, usize>,
    /// How many have this address for the guest.
    at: HashMap<IpAddr, usize>,
    /// Where the next place is looked for.
    hand: usize,
    /// Complete frames.
    waiting: VecDeque<Vec<u8>>,
}

impl Datagrams {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, frame: Vec<u8>) {
        self.waiting.push_back(frame);
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    pub(crate) fn is_taken(&self, ends: &FourTuple) -> bool {
        self.by_ends.contains_key(ends)
    }

    /// The ends of a client that is known, heard of just now.
    pub(crate) fn heard(&mut self, side: DatagramClient, now: Instant) -> Option<FourTuple> {
        let client = &mut self.clients[*self.by_side.get(&side)?];
        client.heard = now;
        Some(client.ends)
    }

    /// Remembers a client with ends that are free.
    pub(crate) fn insert(&mut self, side: DatagramClient, ends: FourTuple, now: Instant) {
        let client = Client {
            side,
            ends,
            heard: now,
        };
        let place = if self.clients.len() < CLIENTS_MAX {
            self.clients.push(client);
            self.clients.len() - 1
        } else {
            let place = self.silent_place();
            let old = std::mem::replace(&mut self.clients[place], client);
            self.by_side.remove(&old.side);
            self.by_ends.remove(&old.ends);
            let address = old.ends.local.ip();
            if let Some(count) = self.at.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.at.remove(&address);
                }
            }
            place
        };
        self.by_side.insert(side, place);
        self.by_ends.insert(ends, place);
        *self.at.entry(ends.local.ip()).or_default() += 1;
    }

    /// Whether any client has this address for the guest, whose fragments have no port.
    pub(crate) fn has_client_at(&self, address: IpAddr) -> bool {
        self.at.contains_key(&address)
    }

    /// The place of the longest silent of some clients, others each time.
    fn silent_place(&mut self) -> usize {
        let first = self.hand;
        self.hand = (first + LOOKED_AT) % CLIENTS_MAX;
        (first..first + LOOKED_AT)
            .min_by_key(|place| self.clients[*place].heard)
            .unwrap_or(first)
    }

    /// The client that the guest answers, if it is still remembered.
    pub(crate) fn client(&self, ends: &FourTuple, now: Instant) -> Option<DatagramClient> {
        let client = &self.clients[*self.by_ends.get(ends)?];
        (now.since(client.heard) <= REMEMBERED).then_some(client.side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(number: u16) -> FourTuple {
        FourTuple {
            local: SocketAddr::from(([10, 0, 2, 2], number)),
            remote: SocketAddr::from(([10, 0, 2, 15], 53)),
        }
    }

    fn side(number: u16) -> DatagramClient {
        DatagramClient {
            port: 0,
            host: None,
            address: SocketAddr::from(([127, 0, 0, 1], number)),
        }
    }

    #[test]
    fn a_client_beyond_the_bound_takes_the_place_of_one_that_is_silent() {
        let mut datagrams = Datagrams::default();
        let mut now = Instant::from_micros(1);
        let most = CLIENTS_MAX as u16;
        for number in 0..most {
            now = now + Duration::from_micros(1);
            datagrams.insert(side(number), ends(number), now);
        }
        // One that speaks again is kept.
        assert_eq!(datagrams.heard(side(0), now), Some(ends(0)));
        datagrams.insert(side(most), ends(most), now);
        assert_eq!(datagrams.client(&ends(0), now), Some(side(0)));
        assert_eq!(datagrams.client(&ends(most), now), Some(side(most)));
        assert!(!datagrams.is_taken(&ends(1)), "the longest silent is gone");
        assert_eq!(datagrams.heard(side(1), now), None);
        for number in 0..3 * most {
            datagrams.insert(side(number + most + 1), ends(number + most + 1), now);
        }
        assert_eq!(datagrams.clients.len(), CLIENTS_MAX);
        assert_eq!(datagrams.by_side.len(), CLIENTS_MAX);
        assert_eq!(datagrams.by_ends.len(), CLIENTS_MAX);
        let address = ends(0).local.ip();
        assert_eq!(datagrams.at[&address], CLIENTS_MAX);
    }
}
