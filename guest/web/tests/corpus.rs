//! Replays the fuzz target's corpus.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/web_connection.rs"]
mod web_connection;

#[test]
fn answers_do_not_depend_on_how_bytes_come() {
    corpus::replay("web_connection", web_connection::judge);
}
