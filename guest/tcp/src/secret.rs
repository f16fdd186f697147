//! [`Secret`]: the key of everything a peer must not predict: initial sequence
//! numbers (RFC 6528), timestamp offsets (RFC 7323, 5.4) and SYN cookies.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

use crate::seq::Seq;
use crate::time::Instant;

/// The addresses and ports of a connection, seen from this side. IPv4 and IPv6
/// differ in nothing else here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// This side.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
}

/// A key of 128 bits, random at each boot.
#[derive(Clone, Copy)]
pub struct Secret([u8; 16]);

/// What a hash is for: equal inputs give unrelated outputs for each purpose.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Isn,
    TimestampOffset,
    Cookie,
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A key of random bytes.
    pub const fn new(key: [u8; 16]) -> Self {
        Self(key)
    }

    /// The initial sequence number of a new connection: a clock of 4 us ticks
    /// plus a keyed hash of the four-tuple (RFC 6528, 3). A later connection of
    /// the same four-tuple starts higher; others tell nothing about it.
    pub(crate) fn isn(&self, on: &FourTuple, now: Instant) -> Seq {
        let clock = (now.as_micros() / 4) as u32;
        Seq(clock.wrapping_add(self.hash(Purpose::Isn, on, 0) as u32))
    }

    /// What a connection adds to its timestamps, so that they do not show the
    /// time since boot.
    pub(crate) fn timestamp_offset(&self, on: &FourTuple) -> u32 {
        self.hash(Purpose::TimestampOffset, on, 0) as u32
    }

    pub(crate) fn hash(&self, purpose: Purpose, on: &FourTuple, data: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u8(purpose as u8);
        for address in [&on.local, &on.remote] {
            match address.ip() {
                IpAddr::V4(ip) => hasher.write(&ip.octets()),
                IpAddr::V6(ip) => hasher.write(&ip.octets()),
            }
            hasher.write(&address.port().to_be_bytes());
        }
        hasher.write(&data.to_be_bytes());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    #[test]
    fn the_hash_is_siphash_2_4() {
        // Appendix A of the SipHash paper: key 0..16, message 0..15.
        let key: Vec<u8> = (0..16).collect();
        let message: Vec<u8> = (0..15).collect();
        let mut hasher = SipHasher24::new_with_key(key.as_slice().try_into().unwrap());
        hasher.write(&message);
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn a_reused_four_tuple_starts_higher() {
        let secret = Secret::new([7; 16]);
        let first = secret.isn(&tuple(1), Instant::from_micros(1_000_000));
        let later = secret.isn(&tuple(1), Instant::from_micros(2_000_000));
        assert_eq!(later.since(first), 250_000);
    }

    #[test]
    fn numbers_of_one_four_tuple_tell_nothing_about_another() {
        let (one, other) = (Secret::new([1; 16]), Secret::new([2; 16]));
        let now = Instant::from_micros(5);
        let difference = |secret: &Secret, port| {
            let (a, b) = (
                secret.isn(&tuple(port), now),
                secret.isn(&tuple(port + 1), now),
            );
            b.0.wrapping_sub(a.0)
        };
        let mut seen: Vec<u32> = (0..1000).map(|port| difference(&one, port)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 990);
        assert!((0..100).all(|port| difference(&one, port) != difference(&other, port)));
    }
}
