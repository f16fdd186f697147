//! The experiments of all crates.

use tare_lab::kit::Entry;

/// The study of platforms, in its own crate.
pub(crate) const STUDY: Entry = tare_platforms_study::ENTRY;

/// All experiments; one in another crate needs one more line here.
pub(crate) fn known() -> Vec<Entry> {
    let mut all = tare_experiments::ALL.to_vec();
    all.push(STUDY);
    all
}
