//! Replays the fuzz target's corpus.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/http_request.rs"]
mod http_request;

#[test]
fn requests_stay_within_root_and_file() {
    corpus::replay("http_request", http_request::judge);
}
