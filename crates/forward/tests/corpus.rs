//! The corpus of the fuzz target, and random steps.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/forward.rs"]
mod judge;

use proptest::prelude::*;

#[test]
fn published_ports_keep_to_their_bounds_on_the_corpus() {
    corpus::replay("forward", judge::judge);
}

proptest! {
    #[test]
    fn published_ports_keep_to_their_bounds(
        mode: u8,
        steps in prop::collection::vec(any::<[u8; 12]>(), 0..200),
    ) {
        judge::judge(&[&[mode], steps.concat().as_slice()].concat());
    }
}
