//! Exits of one kind that no interrupt explains.

use super::finding;
use crate::attribution::Attribution;
use crate::exit::Exit;
use crate::finding::{Basis, Cause, Finding};
use crate::load::Load;
use crate::price::Prices;
use crate::remedy;
use crate::words::{rate, thousands};

/// Exits per second from which a kind is worth a sentence.
const LEAST_HZ: f64 = 100.0;
/// Kinds that get a sentence of their own.
const KINDS: usize = 3;

pub(super) fn findings(load: &Load, time: &Attribution, prices: &Prices<'_>) -> Vec<Finding> {
    let mut largest: Vec<_> = time.exits.iter().collect();
    largest.sort_by(|a, b| b.1.total_cmp(a.1));
    largest
        .into_iter()
        .take(KINDS)
        .filter_map(|(exit, share)| of_kind(load, exit, *share, prices))
        .collect()
}

fn of_kind(load: &Load, exit: &Exit, share: f64, prices: &Prices<'_>) -> Option<Finding> {
    let hz = load.sum(|vcpu| vcpu.exits.get(exit).copied().unwrap_or(0.0));
    if hz < LEAST_HZ {
        return None;
    }
    let what = format!("{}, {}", exit.name(), rate(hz));
    let mut found = finding(load, Cause::Exits, share, Basis::Estimated, what);
    found.evidence.push(match exit.is_monitors() {
        true => "each leaves the guest, and KVM returns to the monitor".to_owned(),
        false => "each leaves the guest; KVM serves it in the kernel".to_owned(),
    });
    let price = prices.exit(exit);
    let ns = thousands(price.ns.round() as u64);
    found.evidence.push(match price.is_measured {
        true => format!("{ns} ns each, as tare weigh vmexit measured it"),
        false => format!("about {ns} ns each, by a built-in estimate"),
    });
    found.remedy = remedy::exits(exit.device(), load.monitor).to_owned();
    Some(found)
}
