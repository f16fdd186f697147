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
fn virtio_console_survives_its_corpus() {
    files::replay("virtio_console", fuzz_entry::virtio_console);
}

#[test]
fn virtio_blk_survives_its_corpus() {
    files::replay("virtio_blk", fuzz_entry::virtio_blk);
}

#[test]
fn the_request_parser_survives_its_corpus() {
    files::replay("blk_request", fuzz_entry::blk_request);
}

#[test]
fn both_disk_engines_agree_on_their_corpus() {
    files::replay("blk_ring", |input| {
        if !fuzz_entry::blk_ring(input) {
            tare_vmtest::lacks("io_uring is refused here");
        }
    });
}

/// Generated inputs.
#[test]
fn both_disk_engines_agree_on_any_requests() {
    let mut state = 1_u64;
    for _ in 0..30 {
        let mut input = [0; 160];
        input.fill_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        });
        if !fuzz_entry::blk_ring(&input) {
            return tare_vmtest::lacks("io_uring is refused here");
        }
    }
}
