//! The experiments of all crates.

use tare_lab::kit::Entry;

/// All experiments; one in another crate needs one more line here.
pub(crate) fn known() -> Vec<Entry> {
    let mut all = tare_experiments::ALL.to_vec();
    all.push(tare_platforms_study::ENTRY);
    all
}
