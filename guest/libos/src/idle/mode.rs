//! How the image waits: the command line's `idle=`.

use core::sync::atomic::{AtomicU8, Ordering};

use tare_abi::cmdline::Idle;

static MODE: AtomicU8 = AtomicU8::new(0);

/// How the image waits.
#[inline]
pub fn mode() -> Idle {
    match MODE.load(Ordering::Relaxed) {
        1 => Idle::Poller,
        2 => Idle::Spin,
        _ => Idle::Block,
    }
}

/// Reads the command line; an unknown name is reported and means `block`.
#[cfg(target_os = "none")]
pub(super) fn init() {
    let Some(name) = crate::env::var(tare_abi::cmdline::IDLE) else {
        return;
    };
    let mode = match Idle::from_name(name) {
        Some(Idle::Block) => 0,
        Some(Idle::Poller) => 1,
        Some(Idle::Spin) => 2,
        None => {
            log::warn!("unknown idle={name}: using idle=block");
            0
        }
    };
    MODE.store(mode, Ordering::Relaxed);
}
