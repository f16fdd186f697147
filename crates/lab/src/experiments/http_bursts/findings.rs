//! Limitations, and what stands in the way: sentences from the figures.

use super::data::Data;
use super::goals::GOALS;
use super::plan::SOURCE_RATE;
use crate::figure::{Figure, value};
use crate::number::number;

/// Ready threads that wait this share of the time (percent) say that others
/// wanted the CPUs.
const NOISY_PCT: f64 = 5.0;
/// A half-width of this share of the median is worth a word.
const WIDE: f64 = 0.25;

/// What could not be measured, a lowered rate, figures
/// that are uncertain.
pub(crate) fn limitations(data: &Data, figures: &[Figure]) -> Vec<String> {
    let mut sentences: Vec<String> = unmeasured(data, figures).into_iter().collect();
    sentences.extend(uncompared(data));
    sentences.extend(woken(data));
    sentences.extend(slow(data));
    sentences.extend(noisy(data));
    sentences.extend(uncertain(figures));
    sentences
}

/// Exits while the machine was idle, where it used CPU time.
pub(super) fn cause(figures: &[Figure], figure: &Figure) -> Option<String> {
    if !figure.name.starts_with("cpu_idle_pct.tare") {
        return None;
    }
    let exits = figure.name.replace("cpu_idle_pct", "idle_exits_per_s");
    let exits = value(figures, &exits)?;
    Some(format!(
        "The vCPUs left the guest {} times a second meanwhile.",
        number(exits)
    ))
}

/// Figures that could not be measured here.
fn unmeasured(data: &Data, figures: &[Figure]) -> Option<String> {
    let missing: Vec<&str> = GOALS
        .iter()
        .filter(|goal| goal.on.contains(&data.kvm) && value(figures, goal.figure).is_none())
        .map(|goal| goal.figure)
        .collect();
    (!missing.is_empty()).then(|| format!("Not measured in this run: {}.", missing.join(", ")))
}

/// Arms of the comparison with Linux that were unavailable.
fn uncompared(data: &Data) -> impl Iterator<Item = String> {
    let arms = data.uncompared.iter();
    arms.map(|why| format!("Not compared with Linux: {why}."))
}

/// What woke the blocking machine while it was idle.
fn woken(data: &Data) -> Option<String> {
    let (windows, counters) = &data.woken;
    let counters = counters
        .iter()
        .map(|(name, count)| format!("{name} {count}"));
    let counters: Vec<String> = counters.collect();
    (*windows > 0).then(|| {
        format!(
            "The blocking machine woke in {windows} of its idle windows, in which rose: {}.",
            counters.join(", ")
        )
    })
}

fn slow(data: &Data) -> Option<String> {
    let rate = data.rate.filter(|rate| *rate < SOURCE_RATE)?;
    Some(format!(
        "Toro's 100 requests a second were not carried here ({} in a closed loop); the \
         bursts are of {} a second.",
        number(data.carried),
        number(rate)
    ))
}

/// Whether others wanted the CPUs, as the monitor's own threads felt it.
fn noisy(data: &Data) -> Option<String> {
    let waits: Vec<f64> = data.cpu.iter().map(|s| s.spent.wait_pct()).collect();
    let busiest = tare_stats::quantile(&tare_stats::sorted(&waits)?, 0.9);
    (busiest > NOISY_PCT).then(|| {
        format!(
            "The machine was not quiet: in a tenth of the windows the monitor's threads were ready \
             and had no CPU for {} % of the time or more. CPU shares are too low then and \
             latencies too high.",
            busiest.round()
        )
    })
}

/// Figures with a goal or an arm whose interval is wide.
fn uncertain(figures: &[Figure]) -> Option<String> {
    let wide = |f: &&Figure| {
        let half = f.interval().map_or(0.0, |(low, high)| (high - low) / 2.0);
        f.value > 1.0 && half > WIDE * f.value
    };
    let names: Vec<&str> = figures
        .iter()
        .filter(wide)
        .map(|f| f.name.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "Uncertain by more than a quarter: {}. A longer run (--full) narrows them if the \
             machine is quiet.",
            names.join(", ")
        )
    })
}
