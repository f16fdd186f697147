//! Replays the fuzz targets' corpora.

use crate::fuzz_entry;

#[path = "../../../fuzz/judges/corpus.rs"]
mod files;

#[test]
fn configuration_space_survives_its_corpus() {
    files::replay("pci_config", fuzz_entry::pci_config);
}

#[test]
fn virtio_net_survives_its_corpus() {
    files::replay("virtio_net", fuzz_entry::virtio_net);
}

#[test]
fn virtio_rng_survives_its_corpus() {
    files::replay("rng", fuzz_entry::rng);
}

#[test]
fn virtio_blk_survives_its_corpus() {
    files::replay("virtio_blk", fuzz_entry::virtio_blk);
}

#[test]
fn the_request_parser_survives_its_corpus() {
    files::replay("blk_request", fuzz_entry::blk_request);
}
