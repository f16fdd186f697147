//! The corpus of the fuzz target `frame_filter` replays as a test.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/frame_filter.rs"]
mod frame_filter;

#[test]
fn the_corpus_keeps_to_the_filters_promise() {
    corpus::replay("frame_filter", frame_filter::judge);
}
