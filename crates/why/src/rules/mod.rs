//! The rules: a file for each kind of cause, each a function from the load and
//! its attribution to findings. They do not know each other; sorting is the caller's.

mod chips;
mod contention;
mod exits;
mod explained;
mod guest;
mod messages;
mod polling;
mod rest;
mod threads;
mod timers;

use crate::attribution::Attribution;
use crate::finding::Finding;
use crate::load::Load;
use crate::price::Prices;
use crate::spread::Spread;

pub(crate) use rest::complete;

/// What all rules find.
pub(crate) fn findings(
    load: &Load,
    time: &Attribution,
    prices: &Prices<'_>,
    spread: &Spread<'_>,
) -> Vec<Finding> {
    let mut findings = timers::findings(load, time, prices, spread);
    findings.extend(messages::findings(load, time, spread));
    findings.extend(polling::findings(load));
    findings.extend(exits::findings(load, time, prices, spread));
    findings.extend(threads::findings(load, prices));
    findings.extend(contention::findings(load));
    findings.extend(guest::findings(load, time, spread));
    findings
}
