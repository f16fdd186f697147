//! [`Barrier`]: orders what a driver has written before what it reads next, as the device sees
//! both. A driver publishes a request and then looks whether the device sleeps; a device that goes
//! to sleep says so and then looks for requests. Without a barrier on each side both may see what
//! was before, and the request stays.

use core::sync::atomic::{Ordering, fence};

/// The barrier of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    /// Whether MFENCE may be left out, as QEMU's translator did until version 8.1 on machines that
    /// can have one CPU only (`tcg_gen_mb` in tcg/tcg-op.c; mended by commit c914d46d0a64). The
    /// device's side is another thread all the same.
    reads_counter: bool,
}

impl Barrier {
    pub(super) fn of_this_machine() -> Self {
        Self {
            #[cfg(target_os = "none")]
            reads_counter: crate::cpuid::is_translated(),
            #[cfg(not(target_os = "none"))]
            reads_counter: false,
        }
    }

    /// What was written before is seen before anything that is read behind it is read.
    #[inline]
    pub(super) fn pass(self) {
        fence(Ordering::SeqCst);
        if self.reads_counter {
            // The translator takes a lock to read the counter (`cpu_get_ticks` in
            // softmmu/cpu-timers.c), by an exchange: a barrier of an x86 host.
            crate::clock::ticks();
        }
    }
}
