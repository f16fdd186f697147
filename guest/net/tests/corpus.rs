//! Replays the fuzz targets' corpora.

use proptest::collection;
use proptest::prelude::*;

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/frame.rs"]
mod frame;
#[path = "../../../fuzz/judges/stack.rs"]
mod stack;

#[test]
fn frames_are_looked_at_without_harm() {
    corpus::replay("frame", frame::judge);
}

#[test]
fn no_sequence_of_frames_breaks_the_stack() {
    corpus::replay("stack", stack::judge);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn random_frames_do_not_break_the_stack(
        setup: u8,
        steps in collection::vec((any::<u8>(), any::<u8>(), collection::vec(any::<u8>(), 0..80)), 0..60),
    ) {
        let mut bytes = vec![setup];
        for (kind, time, body) in steps {
            bytes.extend([kind, time, body.len() as u8]);
            bytes.extend(body);
        }
        stack::judge(&bytes);
    }
}
