//! What the rule itself weighs: the time of a decision, and its code.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tare_policy::coalesce::{Coalescer, RequestKind, Settings};
use tare_simdisk::Load;

/// Decisions of a sample.
const DECISIONS: u32 = 200_000;
/// Functions that run for each completion, by symbol name.
const PATH: [&str; 2] = ["Coalescer::completed", "Coalescer::release"];

/// The load that the rule costs most, of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WorstCase {
    /// `mixed`: a fast stream beside slow requests on one queue; `other`: everything else.
    pub(super) kind: String,
    /// How many loads were simulated.
    pub(super) loads: usize,
    /// The load.
    pub(super) load: String,
    /// Which figure of which stream.
    pub(super) what: String,
    /// With `auto` over without coalescing, or its inverse where more is better.
    pub(super) factor: f64,
}

/// The worst of all simulated loads with a name, by kind.
pub(super) fn worst_cases() -> Vec<WorstCase> {
    let kinds = [
        ("mixed", tare_simdisk::mixed()),
        ("other", tare_simdisk::known()),
    ];
    let worst = |(kind, loads): (&str, Vec<Load>)| {
        let costs = loads
            .iter()
            .map(|load| (load, tare_simdisk::worst(load, 1)));
        let (load, cost) = costs.max_by(|(_, a), (_, b)| a.factor.total_cmp(&b.factor))?;
        Some(WorstCase {
            kind: kind.to_owned(),
            loads: loads.len(),
            load: load.name.clone(),
            what: cost.what,
            factor: cost.factor,
        })
    };
    kinds.into_iter().filter_map(worst).collect()
}

/// Time of a submission and its completion's decision, ns, one sample a call:
/// 32 reads in flight, one completion in 100 ns.
pub(super) fn decision_ns() -> f64 {
    let mut coalescer = Coalescer::new(Settings::default());
    (0..32).for_each(|_| coalescer.submitted(RequestKind::Read));
    let mut now_ns = 1_000_000_000;
    let mut one = || {
        now_ns += 100;
        let _ = black_box(coalescer.completed(
            black_box(now_ns),
            black_box(RequestKind::Read),
            black_box(3_200),
        ));
        coalescer.submitted(RequestKind::Read);
    };
    // Two epochs settle the ratio, mostly in the first sample.
    (0..DECISIONS).for_each(|_| one());
    let begun = Instant::now();
    (0..DECISIONS).for_each(|_| one());
    begun.elapsed().as_nanos() as f64 / f64::from(DECISIONS)
}

/// Bytes of the decision in the monitor beside this program, by its symbol
/// table; an error says why it is unavailable.
pub(super) fn text_bytes() -> Result<f64, String> {
    if cfg!(debug_assertions) {
        return Err("policy_text_bytes: this program is not optimised".to_owned());
    }
    let own = std::env::current_exe().map_err(|error| format!("policy_text_bytes: {error}"))?;
    let monitor = own.with_file_name("tare-monitor");
    let output = Command::new("nm")
        .args(["-S", "-C", "--radix=d"])
        .arg(&monitor)
        .output()
        .map_err(|error| format!("policy_text_bytes: nm (binutils): {error}"))?;
    sum(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let name = Path::new(&monitor).file_name().unwrap_or_default();
        format!(
            "policy_text_bytes: {} has the decision inlined or no symbols; \
             `cargo test -p tare-policy --test code_size` compiles it apart",
            name.display()
        )
    })
}

/// The sizes of both functions in nm's listing.
fn sum(listing: &str) -> Option<f64> {
    let sizes = PATH.iter().map(|name| {
        let line = listing.lines().find(|line| line.contains(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    });
    let found: Vec<f64> = sizes.flatten().collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_by_name() {
        let listing = "0001 0300 t tare_policy::coalesce::Coalescer::completed\n\
                       0400 0090 t tare_policy::coalesce::Coalescer::release\n\
                       0500 0007 t other\n";
        assert_eq!(sum(listing), Some(390.0));
        assert_eq!(sum("0500 0007 t other\n"), None);
    }

    #[test]
    fn a_decision_takes_some_time_and_not_much() {
        let ns = decision_ns();
        assert!(ns > 0.0 && ns < 100_000.0, "{ns}");
    }
}
