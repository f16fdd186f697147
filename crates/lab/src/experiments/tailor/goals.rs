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

/// What the figures should be: Kernel Tailoring's source cuts took 15.8 % of a request's
/// cycles, which is 84.2 % left.
pub(super) const GOALS: &[Goal] = &[
    goal("request_pct.tailored", 84.2),
    goal("request_pct.trusting", 75.0),
    goal("boot_pct.tailored", 25.0),
    goal("options.tailored", 250.0),
    goal("image_bytes.tailored", 3_000_000.0),
    goal("answers_differ.tailored", 0.0),
    goal("answers_differ.trusting", 0.0),
];
