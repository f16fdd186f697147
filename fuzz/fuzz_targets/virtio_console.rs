//! virtio-console: control messages, descriptor chains, registers and notifications in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|guest: &[u8]| tare_devices::fuzz_entry::virtio_console(guest));
