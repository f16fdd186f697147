//! Programs of this host, whose dynamic linker is looked for: `tare_rootfs::host`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_rootfs::fuzz_entry::host_program(bytes));
