//! The goals of the weighing, as data.

use tare_control::stats::Kvm;

use crate::goal::Goal;

const EVERYWHERE: &[Kvm] = &[Kvm::Emulated, Kvm::Hardware, Kvm::None];

const fn goal(figure: &'static str, at_most: f64) -> Goal {
    Goal {
        figure,
        at_most,
        on: EVERYWHERE,
    }
}

/// What the figures should be: a request 35 % below Debian's kernel and 30 % below that of
/// Firecracker's configuration, each of equal safety, and a quarter of Debian's own boot.
/// With all trust it is held against Debian's kernel with the same trust by boot parameters.
pub(super) const GOALS: &[Goal] = &[
    goal("request_pct.tailored", 65.0),
    goal("request_of_firecracker_pct.tailored", 70.0),
    goal("request_of_unhardened_pct.trusting", 75.0),
    goal("kernel_boot_pct.tailored", 25.0),
    goal("image_bytes.tailored", 3_000_000.0),
    goal("answers_differ.tailored", 0.0),
    goal("answers_differ.trusting", 0.0),
];
