//! virtio-blk: descriptor chains, registers and notifications in any order, on a
//! disk in memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|guest: &[u8]| tare_devices::fuzz_entry::virtio_blk(guest));
