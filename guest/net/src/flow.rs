//! `Flow`, a TCP connection's four-tuple, and `FlowTable`.

use alloc::collections::TryReserveError;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// The addresses and ports of a connection, seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
}

/// A flow in few words: an IPv4 address is its IPv4-mapped IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    local: u128,
    remote: u128,
    ports: u32,
}

impl Key {
    const ZERO: Self = Self {
        local: 0,
        remote: 0,
        ports: 0,
    };
}

impl Flow {
    #[inline]
    fn key(&self) -> Key {
        Key {
            local: bits(self.local.ip()),
            remote: bits(self.remote.ip()),
            ports: u32::from(self.local.port()) << 16 | u32::from(self.remote.port()),
        }
    }
}

#[inline]
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => 0xffff << 32 | u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: Key,
    /// Value plus one; 0 is a free slot.
    value: u32,
}

const FREE: Slot = Slot {
    key: Key::ZERO,
    value: 0,
};

/// Flows to small numbers: open addressing with linear probing, at most half
/// full. The hash is keyed, so that no peer can choose ports that collide.
#[derive(Debug)]
pub(crate) struct FlowTable {
    slots: Vec<Slot>,
    len: usize,
    key: u64,
    second_key: u64,
}

impl FlowTable {
    /// An empty table with a secret of this boot.
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            slots: vec![FREE; 16],
            len: 0,
            key: secret | 1,
            second_key: secret.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// How many flows there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of `flow`.
    #[inline]
    pub(crate) fn get(&self, flow: &Flow) -> Option<u32> {
        let slot = &self.slots[self.find(flow.key())];
        slot.value.checked_sub(1)
    }

    /// Adds or replaces `flow`. `value` is below `u32::MAX`.
    pub(crate) fn insert(&mut self, flow: &Flow, value: u32) {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let key = flow.key();
        let at = self.find(key);
        self.len += usize::from(self.slots[at].value == 0);
        self.slots[at] = Slot {
            key,
            value: value + 1,
        };
    }

    /// Removes `flow`, moving back what had to give way to it (Knuth 6.4 R).
    pub(crate) fn remove(&mut self, flow: &Flow) {
        let mut hole = self.find(flow.key());
        if self.slots[hole].value == 0 {
            return;
        }
        self.len -= 1;
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            self.slots[hole] = FREE;
            loop {
                at = (at + 1) & mask;
                if self.slots[at].value == 0 {
                    return;
                }
                let home = self.hash(self.slots[at].key) & mask;
                let distance = |from: usize| at.wrapping_sub(from) & mask;
                if distance(home) >= distance(hole) {
                    break;
                }
            }
            self.slots[hole] = self.slots[at];
            hole = at;
        }
    }

    /// Makes sure that `more` flows can be inserted without memory.
    pub(crate) fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        while (self.len + more) * 2 > self.slots.len() {
            let mut larger = Vec::new();
            larger.try_reserve_exact(self.slots.len() * 2)?;
            self.move_to(larger);
        }
        Ok(())
    }

    fn grow(&mut self) {
        self.move_to(Vec::new());
    }

    fn move_to(&mut self, mut larger: Vec<Slot>) {
        larger.resize(self.slots.len() * 2, FREE);
        for slot in core::mem::replace(&mut self.slots, larger) {
            if slot.value != 0 {
                let at = self.find(slot.key);
                self.slots[at] = slot;
            }
        }
    }

    #[inline]
    fn find(&self, key: Key) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hash(key) & mask;
        while self.slots[at].value != 0 && self.slots[at].key != key {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    fn hash(&self, key: Key) -> usize {
        let [high, low] = [key.remote >> 64, key.remote].map(|half| half as u64);
        let near = key.local as u64 ^ u64::from(key.ports);
        let first = fold(low ^ self.key, near ^ self.second_key);
        fold(first ^ high, self.key) as usize
    }
}

/// Both halves of a product, so that each bit of the factors counts.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    ((wide >> 64) ^ wide) as u64
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;
    use std::collections::HashMap;

    use super::*;

    fn flow(remote: u16, port: u16) -> Flow {
        if remote.is_multiple_of(2) {
            let remote = Ipv6Addr::new(0x2001, 0xdb8, 0, remote, 0, 0, 0, 1);
            return Flow {
                local: SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 80),
                remote: SocketAddr::new(remote.into(), port),
            };
        }
        Flow {
            local: SocketAddr::new(Ipv4Addr::new(10, 0, 2, 15).into(), 80),
            remote: SocketAddr::new(Ipv4Addr::from_bits(u32::from(remote)).into(), port),
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            secret in any::<u64>(),
            steps in prop::collection::vec((0u16..4, 0u16..40, any::<bool>()), 0..400),
        ) {
            let mut table = FlowTable::new(secret);
            let mut model = HashMap::new();
            for (value, (remote, port, add)) in steps.into_iter().enumerate() {
                let flow = flow(remote, port);
                if add {
                    table.insert(&flow, value as u32);
                    model.insert(flow, value as u32);
                } else {
                    table.remove(&flow);
                    model.remove(&flow);
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for remote in 0..4 {
                for port in 0..40 {
                    let flow = flow(remote, port);
                    prop_assert_eq!(table.get(&flow), model.get(&flow).copied());
                }
            }
        }
    }
}
