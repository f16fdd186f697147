//! Exits of one kind that no interrupt explains.

use std::collections::BTreeMap;

use tare_account::Device;

use super::explained::finding;
use crate::advice;
use crate::attribution::Attribution;
use crate::exit::Exit;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::Load;
use crate::price::Prices;
use crate::spread::{Own, Spread};
use crate::text::{percent, thousands};

const NS_IN_S: f64 = 1e9;
/// Part by which a share may differ from rate times price without a word about it.
const DIFFERS: f64 = 0.25;
/// Part from which one of the causes of such a difference is named: together two lesser ones
/// do not make it.
const PLAYS_A_PART: f64 = DIFFERS / 2.0;
/// Kinds that get their own sentence.
const KINDS: usize = 3;

pub(super) fn findings(
    load: &Load,
    time: &Attribution,
    prices: &Prices<'_>,
    spread: &Spread<'_>,
) -> Vec<Finding> {
    let mut largest: Vec<_> = time.exits.iter().collect();
    largest.sort_by(|a, b| b.1.total_cmp(a.1));
    largest
        .into_iter()
        .take(KINDS)
        .map(|(exit, share)| {
            let mut found = of_kind(load, exit, *share, time, prices);
            let share = |it: &Attribution| it.exits.get(exit).copied().unwrap_or(0.0);
            found.share_interval = spread.interval(Own::Exit(*exit), share);
            found
        })
        .collect()
}

fn of_kind(
    load: &Load,
    exit: &Exit,
    share: f64,
    time: &Attribution,
    prices: &Prices<'_>,
) -> Finding {
    let rate = load.exit_rate(exit);
    let what = format!("VM exits: {}, {rate}", exit.name());
    let parts = Breakdown {
        exits: share,
        ..Breakdown::default()
    };
    let mut found = finding(load, Cause::Exits, Basis::Estimated, what, parts);
    found.rate = Some(rate);
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
    found.evidence.extend(charged(load, exit, time, price.ns));
    found.remedies = advice::exits(exit, load);
    found
}

/// What each is charged with, where that is not its price, and why.
fn charged(load: &Load, exit: &Exit, time: &Attribution, price_ns: f64) -> Option<String> {
    let of = |shares: &BTreeMap<Exit, f64>| shares.get(exit).copied().unwrap_or(0.0);
    let hz = load.exits(|other| other == exit);
    let (share, priced) = (of(&time.exits), of(&time.priced));
    let (all, ns) = (hz * price_ns / NS_IN_S, share / hz * NS_IN_S);
    // At both ends of the rate's interval, in the same direction: else it may be chance.
    let [low, high] = load.exit_rate(exit).ends()?;
    let beyond = |hz: f64| share / (hz * price_ns / NS_IN_S) - 1.0;
    let differs = beyond(high) > DIFFERS || (low > 0.0 && beyond(low) < -DIFFERS);
    (ns.is_finite() && differs).then(|| {
        let awake = 1.0 - priced / all;
        let awake = (awake > PLAYS_A_PART).then(|| {
            format!(
                "{} of these exits are attributed to wake-ups",
                percent(awake)
            )
        });
        let paid = share / priced - 1.0;
        let paid = (paid.abs() > PLAYS_A_PART).then(|| paying(load, exit, paid > 0.0).to_owned());
        let causes: Vec<String> = awake.into_iter().chain(paid).collect();
        format!(
            "its share comes to {} ns each: {}",
            thousands(ns.round() as u64),
            causes.join(", and ")
        )
    })
}

/// Why exits are charged with more time than their prices, or less.
fn paying(load: &Load, exit: &Exit, is_more: bool) -> &'static str {
    let mut vcpus = load.vcpus.iter();
    let clocked = vcpus.any(|vcpu| vcpu.guest.is_some() && vcpu.exits.contains_key(exit));
    match (clocked, is_more) {
        (true, true) => {
            "the kernel's clocks show more time outside the guest than the estimated costs of these exits"
        }
        (true, false) => {
            "the kernel's clocks show less time outside the guest than the estimated costs of these exits"
        }
        (false, true) => {
            "by their prices exits take most of the vCPU's time, so they are charged with all of it"
        }
        (false, false) => "the vCPU's time is less than the estimated costs of these exits",
    }
}
