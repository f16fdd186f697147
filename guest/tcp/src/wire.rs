//! A wire's impairments, for tests and experiments: which packets it loses, doubles,
//! damages or moves back, and when the others arrive. It moves no bytes and has no clock,
//! so that the same code drives simulated time and a real link. The same seed gives the
//! same fates.

use alloc::collections::VecDeque;

/// What the Ethernet header adds to an IP packet.
const ETHERNET_HEADER: usize = 14;
/// Shortest way through the wire.
const LEAST_DELAY_US: u64 = 20;
/// Shares are of this many.
const WHOLE: u64 = 100_000;

/// What a wire does to packets, each way. Shares are of 100,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Share that vanishes.
    pub lost: u64,
    /// Share that arrives twice.
    pub duplicated: u64,
    /// Share in which bits change.
    pub damaged: u64,
    /// Share that `reorder_delay_us` more delays.
    pub reordered: u64,
    /// See `reordered`.
    pub reorder_delay_us: u64,
    /// One-way delay.
    pub delay_us: u64,
    /// Added to the delay: evenly from 0 up to this.
    pub jitter_us: u64,
    /// Bits per second; 0: unlimited.
    pub rate: u64,
    /// Packets that wait for the rate, and more are lost; 0: unlimited.
    pub queue: usize,
    /// Largest IP packet; 0: unlimited. Larger ones vanish.
    pub mtu: usize,
    /// Whether a packet that is too large is reported.
    pub reports_mtu: bool,
}

/// xorshift: enough for a wire.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    /// The next number, 53 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11
    }

    fn chance(&mut self, share: u64) -> bool {
        self.draw() % WHOLE < share
    }
}

/// What becomes of a packet; times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is larger than the wire takes.
    TooLarge,
    /// It vanishes.
    Lost,
    /// It arrives with wrong bits.
    Damaged(u64),
    /// It arrives, a second time too if it is doubled.
    Arrives(u64, Option<u64>),
}

/// One direction.
#[derive(Clone, Debug)]
pub struct Direction {
    impairment: Impairment,
    /// When the last queued packet has left.
    free_at: u64,
    departures: VecDeque<u64>,
}

impl Direction {
    /// A direction without packets.
    pub fn new(impairment: Impairment) -> Self {
        Self {
            impairment,
            free_at: 0,
            departures: VecDeque::new(),
        }
    }

    /// What becomes of an IP packet of `bytes` that is sent at `now_us`.
    pub fn carry(&mut self, random: &mut Random, now_us: u64, bytes: usize) -> Fate {
        let limits = self.impairment;
        if limits.mtu > 0 && bytes > limits.mtu {
            return Fate::TooLarge;
        }
        let Some(leaves) = self.leave(now_us, bytes) else {
            return Fate::Lost;
        };
        if random.chance(limits.lost) {
            return Fate::Lost;
        }
        if random.chance(limits.damaged) {
            return Fate::Damaged(leaves + limits.delay_us.max(LEAST_DELAY_US));
        }
        let is_doubled = random.chance(limits.duplicated);
        let first = self.arrival(random, leaves);
        Fate::Arrives(first, is_doubled.then(|| self.arrival(random, leaves)))
    }

    /// When a packet has left by the rate; `None` where the queue is full.
    fn leave(&mut self, now_us: u64, bytes: usize) -> Option<u64> {
        let limits = self.impairment;
        while self.departures.front().is_some_and(|at| *at <= now_us) {
            self.departures.pop_front();
        }
        if limits.queue > 0 && self.departures.len() >= limits.queue {
            return None;
        }
        let bits = (bytes + ETHERNET_HEADER) as u64 * 8;
        let Some(takes) = (bits * 1_000_000).checked_div(limits.rate) else {
            return Some(now_us);
        };
        self.free_at = self.free_at.max(now_us) + takes;
        self.departures.push_back(self.free_at);
        Some(self.free_at)
    }

    fn arrival(&self, random: &mut Random, leaves: u64) -> u64 {
        let limits = &self.impairment;
        let mut at = leaves + limits.delay_us.max(LEAST_DELAY_US);
        if limits.jitter_us > 0 {
            at += random.draw() % limits.jitter_us;
        }
        if random.chance(limits.reordered) {
            at += limits.reorder_delay_us;
        }
        at
    }
}

/// An impairment with its name.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub impairment: Impairment,
}

/// The fifteen impairments that this TCP is compared with Linux's under; those without a
/// rate have 1 Gbit/s, those without a delay 0.1 ms.
pub const COMPARED: [Named; 15] = {
    const MS: u64 = 1000;
    const MBIT: u64 = 1_000_000;
    const CLEAN: Impairment = Impairment {
        lost: 0,
        duplicated: 0,
        damaged: 0,
        reordered: 0,
        reorder_delay_us: 2 * MS,
        delay_us: 100,
        jitter_us: 0,
        rate: 1000 * MBIT,
        queue: 1000,
        mtu: 0,
        reports_mtu: false,
    };
    const fn lossy(delay_us: u64, lost: u64) -> Impairment {
        Impairment {
            delay_us,
            lost,
            ..CLEAN
        }
    }
    const fn narrow(queue: usize) -> Impairment {
        Impairment {
            rate: 10 * MBIT,
            queue,
            ..CLEAN
        }
    }
    const fn named(name: &'static str, impairment: Impairment) -> Named {
        Named { name, impairment }
    }
    let reordered = Impairment {
        reordered: 5000,
        ..CLEAN
    };
    let duplicated = Impairment {
        duplicated: 5000,
        ..CLEAN
    };
    let damaged = Impairment {
        damaged: 1000,
        ..CLEAN
    };
    let jitter = Impairment {
        delay_us: 8 * MS,
        jitter_us: 4 * MS,
        ..CLEAN
    };
    let all = Impairment {
        lost: 500,
        duplicated: 500,
        damaged: 500,
        reordered: 1000,
        delay_us: 18 * MS,
        jitter_us: 2 * MS,
        rate: 10 * MBIT,
        queue: 50,
        ..CLEAN
    };
    [
        named("clean", CLEAN),
        named("loss 0.1 %", lossy(100, 100)),
        named("loss 1 %", lossy(100, 1000)),
        named("loss 5 %", lossy(100, 5000)),
        named("reorder 5 %", reordered),
        named("duplicate 5 %", duplicated),
        named("corrupt 1 %", damaged),
        named("RTT 20 ms", lossy(10 * MS, 0)),
        named("RTT 100 ms", lossy(50 * MS, 0)),
        named("RTT 20 ms, jitter", jitter),
        named("10 Mbit, queue 50", narrow(50)),
        named("10 Mbit, queue 8", narrow(8)),
        named("RTT 20 ms, loss 1 %", lossy(10 * MS, 1000)),
        named("RTT 100 ms, loss 1 %", lossy(50 * MS, 1000)),
        named("all together, 10 Mbit, RTT 40 ms", all),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_orders_and_a_full_queue_loses() {
        let limits = Impairment {
            rate: 8_000_000,
            queue: 2,
            delay_us: 100,
            ..Impairment::default()
        };
        let (mut direction, mut random) = (Direction::new(limits), Random::new(1));
        let mut carry = |now| direction.carry(&mut random, now, 986);
        // 1,000 bytes take 1 ms.
        assert_eq!(carry(0), Fate::Arrives(1100, None));
        assert_eq!(carry(0), Fate::Arrives(2100, None));
        assert_eq!(carry(500), Fate::Lost);
        assert_eq!(carry(1000), Fate::Arrives(3100, None));
    }

    #[test]
    fn shares_are_kept_and_seeds_repeat() {
        let limits = Impairment {
            lost: 10_000,
            damaged: 10_000,
            duplicated: 10_000,
            ..Impairment::default()
        };
        let fates = |seed| {
            let (mut direction, mut random) = (Direction::new(limits), Random::new(seed));
            (0..10_000).map(move |now| direction.carry(&mut random, now, 100))
        };
        assert!(fates(7).eq(fates(7)) && !fates(7).eq(fates(8)));
        let lost = fates(3).filter(|fate| *fate == Fate::Lost).count();
        let doubled = fates(3).filter(|fate| matches!(fate, Fate::Arrives(_, Some(_))));
        assert!((800..1200).contains(&lost), "{lost}");
        assert!((600..1000).contains(&doubled.count()));
    }
}
