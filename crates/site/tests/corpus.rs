//! Replays the fuzz target's corpus.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/site_table.rs"]
mod site_table;

#[test]
fn tables_are_refused_or_become_themselves_again() {
    corpus::replay("site_table", site_table::judge);
}
