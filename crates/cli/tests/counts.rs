//! Exact counts beside those that are kept: an image that grows by more than 3 %
//! fails here, and the change that makes it grow keeps new ones with its reason.
//!
//! Other compilers make other code, so only the kept one's counts are compared. To keep new
//! ones: `TARE_BLESS=1 cargo test -p tare --test counts`.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use support::{TestDir, needs, output};

/// What a count may grow by before it is a failure.
const GROWTH: f64 = 1.03;

#[derive(serde::Serialize, serde::Deserialize)]
struct StoredCounts {
    rustc: String,
    counts: BTreeMap<String, f64>,
}

#[test]
fn exact_counts_are_those_that_are_kept() {
    if !needs::kvm() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/counts.json");
    let rustc = output("rustc", &["--version"]);
    let rustc = String::from_utf8(rustc.stdout).unwrap().trim().to_owned();
    let bless = std::env::var_os("TARE_BLESS").is_some();
    let kept: Option<StoredCounts> = std::fs::read(&path)
        .ok()
        .map(|bytes| serde_json::from_slice(&bytes).unwrap());
    if !bless && kept.as_ref().is_some_and(|kept| kept.rustc != rustc) {
        return tare_vmtest::lacks(format!(
            "the kept counts are of another compiler than {rustc}"
        ));
    }

    let place = TestDir::new();
    let out = place.path().join("counts");
    let words = ["weigh", "counts", "--quick", "--out", out.to_str().unwrap()];
    place.run(&words).expect(0, "");
    let summary = std::fs::read(out.join("summary.json")).unwrap();
    let counts = exact(&serde_json::from_slice(&summary).unwrap());
    if bless {
        let kept = StoredCounts { rustc, counts };
        let text = serde_json::to_string_pretty(&kept).unwrap() + "\n";
        return std::fs::write(&path, text).unwrap();
    }

    let kept = kept.expect("lab/counts.json").counts;
    assert!(counts.keys().any(|name| name.starts_with("image_bytes.")));
    for (name, now) in &counts {
        let before = kept
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not kept: TARE_BLESS=1"));
        assert!(
            *now <= before * GROWTH,
            "{name}: {before} before, {now} now: more than 3 % above what lab/counts.json keeps"
        );
    }
}

/// The figures that are the same at each measurement, by name.
fn exact(summary: &Value) -> BTreeMap<String, f64> {
    let figures = summary["figures"].as_array().unwrap().iter();
    figures
        .filter(|figure| figure["statistic"] == "exact")
        .map(|figure| {
            let name = figure["name"].as_str().unwrap().to_owned();
            (name, figure["value"].as_f64().unwrap())
        })
        .collect()
}
