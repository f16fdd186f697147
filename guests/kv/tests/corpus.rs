//! Replays the fuzz target's corpus.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/kv_request.rs"]
mod kv_request;

#[test]
fn commands_stay_within_their_bytes_and_answers_within_the_protocol() {
    corpus::replay("kv_request", kv_request::judge);
}
