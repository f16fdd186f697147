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
