//! Replays the fuzz targets' corpora.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/cpio.rs"]
mod cpio;
#[path = "../../../fuzz/judges/ext4.rs"]
mod ext4;

#[test]
fn archives_stay_within_their_root() {
    corpus::replay("cpio", cpio::judge);
}

#[test]
fn damaged_file_systems_give_errors() {
    corpus::replay("ext4", ext4::judge);
}
