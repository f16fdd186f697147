//! How every rule makes its finding.

use crate::advice;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::Load;

/// A finding that explains these parts of the breakdown, with the remedies of its cause. Its share is
/// exact: a rule whose share goes with counts says between which shares it is.
pub(super) fn finding(
    load: &Load,
    cause: Cause,
    basis: Basis,
    what: String,
    parts: Breakdown,
) -> Finding {
    let share = parts.parts().iter().map(|(_, part)| part).sum();
    Finding {
        cause,
        share,
        share_interval: Some([share; 2]),
        basis,
        what,
        rate: None,
        evidence: Vec::new(),
        parts: Breakdown {
            total: share,
            ..parts
        },
        remedies: advice::for_cause(cause, load),
        remedy: String::new(),
    }
}

/// Part of the breakdown that interrupts are.
pub(super) fn interrupts(share: f64) -> Breakdown {
    Breakdown {
        interrupts: share,
        ..Breakdown::default()
    }
}
