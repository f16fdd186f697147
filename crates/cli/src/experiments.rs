//! The experiments of all crates.

use std::fmt::Write as _;

use tare_lab::kit::Entry;

/// The study of platforms, in a crate of its own.
pub(crate) const STUDY: Entry = tare_platforms_study::ENTRY;

/// All experiments; one of a further crate is one line more.
pub(crate) fn known() -> Vec<Entry> {
    let mut all = tare_lab::EXPERIMENTS.to_vec();
    all.push(STUDY);
    all
}

/// The experiments that there are, for the verb's help.
pub(crate) fn list() -> String {
    let mut text = String::from("Experiments:");
    for Entry { name, about, .. } in known() {
        let _ = write!(text, "\n  {name}: {about}");
    }
    text
}
