//! virtio-blk on io_uring beside the engine of plain calls: same answers, data and disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|guest: &[u8]| {
    tare_devices::fuzz_entry::blk_ring(guest);
});
