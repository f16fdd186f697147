//! The pause of wait loops.

/// Tells the CPU (and the hypervisor) that this is a wait loop.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}
