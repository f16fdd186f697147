//! Whatever segments arrive: see `fuzz/judges/tcp_segments.rs`, which the fuzz target
//! of that name shares.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/tcp_segments.rs"]
mod judge;

use judge::script::modern;
use judge::{Step, run};
use proptest::prelude::*;
use tare_tcp::options::{Options, Timestamps};

#[test]
fn the_corpus_of_segments_does_no_harm() {
    corpus::replay("tcp_segments", judge::judge);
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![6 => -3i32..3, 3 => -3000i32..3000, 2 => -70_000i32..70_000, 1 => any::<i32>()]
}

fn step() -> impl Strategy<Value = Step> {
    let bits = prop_oneof![6 => Just(0x10u8), 1 => Just(0x11u8), 2 => 0u8..0x40];
    let window = prop_oneof![3 => Just(65_535u16), 1 => any::<u16>(), 1 => Just(0u16)];
    (
        (bits, near(), near(), window),
        prop_oneof![2 => Just(0usize), 1 => 0usize..1500],
        prop::option::of((near(), any::<u16>())),
        prop::option::weighted(0.3, any::<(u32, u32)>()),
        prop_oneof![4 => 0u64..30, 1 => 0u64..70_000],
        0u8..16,
    )
        .prop_map(
            |((flags, seq, ack, window), len, block, stamp, wait_ms, action)| Step {
                flags,
                seq,
                ack,
                window,
                len,
                block,
                stamp,
                wait_ms,
                action,
            },
        )
}

/// SplitMix64: fast, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Mostly near zero, now and then anywhere.
    fn near(&mut self) -> i32 {
        let bits = [2, 2, 2, 12, 12, 17, 32][self.below(7) as usize];
        (self.next() as i32) >> (32 - bits)
    }

    fn step(&mut self) -> Step {
        let is = |one_in: u64, random: &mut Self| random.below(one_in) == 0;
        Step {
            // Ends and resets are rare: after them little is left to break.
            flags: match self.below(300) {
                0 => self.next() as u8 & 0x3f,
                1..4 => self.next() as u8 & 0x3b,
                4..100 => self.next() as u8 & 0x3a,
                _ => 0x10,
            },
            seq: self.near(),
            ack: self.near(),
            window: if is(2, self) {
                self.next() as u16
            } else {
                65_535
            },
            len: if is(3, self) {
                self.below(1500) as usize
            } else {
                0
            },
            block: is(2, self).then(|| (self.near(), self.next() as u16)),
            stamp: is(3, self).then(|| (self.next() as u32, self.next() as u32)),
            wait_ms: match self.below(500) {
                0 => self.below(70_000),
                1..100 => self.below(400),
                _ => self.below(30),
            },
            action: self.below(16) as u8,
        }
    }
}

/// As many segments as `TARE_SEGMENTS` says, with the seed `TARE_SEED`. ADR 33 has a run of a
/// billion.
#[test]
fn many_segments_do_no_harm() {
    let number = |name| std::env::var(name).ok().and_then(|word| word.parse().ok());
    let wanted: u64 = number("TARE_SEGMENTS").unwrap_or(100_000);
    let mut random = Random(number("TARE_SEED").unwrap_or(1));
    let mut done = 0;
    while done < wanted {
        let mut options = Options {
            sack_permitted: random.below(4) > 0,
            ..modern()
        };
        options.timestamps = (random.below(2) > 0).then_some(Timestamps { value: 0, echo: 0 });
        let steps: Vec<Step> = (0..1 + random.below(200)).map(|_| random.step()).collect();
        run(&steps, options);
        done += steps.len() as u64;
    }
    println!("{done} segments");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_bytes_are_segments_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        judge::judge(&bytes);
    }

    #[test]
    fn no_segments_make_a_connection_panic(
        steps in prop::collection::vec(step(), 1..80),
        sack: bool,
        stamps: bool,
    ) {
        let mut options = Options { sack_permitted: sack, ..modern() };
        options.timestamps = stamps.then_some(Timestamps { value: 0, echo: 0 });
        run(&steps, options);
    }
}
