//! Replays the fuzz targets' corpora.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/site_file.rs"]
mod site_file;
#[path = "../../../fuzz/judges/site_table.rs"]
mod site_table;

#[test]
fn tables_are_refused_or_become_themselves_again() {
    corpus::replay("site_table", site_table::judge);
}

#[test]
fn files_have_mistakes_or_a_table_that_the_guest_reads() {
    corpus::replay("site_file", site_file::judge);
}
