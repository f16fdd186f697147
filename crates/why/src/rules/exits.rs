//! Exits of one kind that no interrupt explains.

use tare_account::Device;

use super::explained::finding;
use crate::advice;
use crate::attribution::Attribution;
use crate::exit::Exit;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::Load;
use crate::price::Prices;
use crate::text::{rate, thousands};

const NS_IN_S: f64 = 1e9;
/// Part by which a share may differ from rate times price without a word about it.
const DIFFERS: f64 = 0.25;
/// Kinds that get a sentence of their own.
const KINDS: usize = 3;

pub(super) fn findings(load: &Load, time: &Attribution, prices: &Prices<'_>) -> Vec<Finding> {
    let mut largest: Vec<_> = time.exits.iter().collect();
    largest.sort_by(|a, b| b.1.total_cmp(a.1));
    largest
        .into_iter()
        .take(KINDS)
        .map(|(exit, share)| of_kind(load, exit, *share, prices))
        .collect()
}

fn of_kind(load: &Load, exit: &Exit, share: f64, prices: &Prices<'_>) -> Finding {
    let hz = load.exits(|other| other == exit);
    let what = format!("VM exits: {}, {}", exit.name(), rate(hz));
    let parts = Breakdown {
        exits: share,
        ..Breakdown::default()
    };
    let mut found = finding(load, Cause::Exits, Basis::Estimated, what, parts);
    found.evidence.push(if exit.is_monitors() {
        "each returns to the VMM in user space".to_owned()
    } else if exit.device() == Some(Device::Doorbell) {
        "KVM passes each to an eventfd; none returns to the VMM".to_owned()
    } else {
        "KVM handles each in the kernel".to_owned()
    });
    let price = prices.exit(exit);
    let ns = thousands(price.ns.round() as u64);
    found.evidence.push(if price.is_measured {
        format!("{ns} ns each, as tare weigh vmexit measured it")
    } else {
        format!("about {ns} ns each, by a built-in estimate")
    });
    found.evidence.extend(charged(share, hz, price.ns));
    found.remedies = advice::exits(exit, load);
    found
}

/// What each is charged with, where that is not its price: the vCPU's time was less than all
/// prices together, or more where KVM emulates and exits explain most of it.
fn charged(share: f64, hz: f64, price_ns: f64) -> Option<String> {
    let ns = share / hz * NS_IN_S;
    let differs = ns.is_finite() && (ns / price_ns - 1.0).abs() > DIFFERS;
    differs.then(|| {
        format!(
            "its share is {} ns for each, as the vCPU's time allows",
            thousands(ns.round() as u64)
        )
    })
}
