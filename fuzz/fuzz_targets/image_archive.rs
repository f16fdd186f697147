//! Archives of container images: `tare_rootfs::oci`.
#![no_main]

libfuzzer_sys::fuzz_target!(|archive: &[u8]| tare_rootfs::fuzz_entry::image_archive(archive));
