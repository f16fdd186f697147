//! Counts beside those that are kept: an image, or the instructions of a request, a connection or
//! a boot, that grow by more than 3 % fail here, and the change that makes them grow keeps new
//! ones with its reason.
//!
//! Load on the host only adds instructions (a timer that expires, one more wake-up), so what is
//! compared is the least of several machines, and a weighing with more is repeated. Exits and
//! interrupts are not: they are other ones as timing falls.
//!
//! Other compilers make other code, so only the kept one's counts are compared; and a boot takes
//! other instructions on another vendor's processor, so these are kept for each vendor. To keep
//! new ones: `TARE_BLESS=1 cargo test -p tare --test counts`.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use support::{TestDir, needs, output};

/// What a count may grow by before it is a failure.
const GROWTH: f64 = 1.03;
/// Weighings until one on a quiet moment was among them.
const TRIES: usize = 3;
/// Counts that vary, of which the least is compared, where KVM counts instructions.
const VARYING: [&str; 3] = ["boot_insns", "insns_per_request", "insns_per_connection"];

/// Counts by name.
type Counts = BTreeMap<String, f64>;

#[derive(serde::Serialize, serde::Deserialize)]
struct StoredCounts {
    rustc: String,
    counts: Counts,
    /// The least of the machines, by the processor's vendor.
    #[serde(default)]
    least: BTreeMap<String, Counts>,
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

    let (counts, mut least) = weighed();
    if bless {
        // Of several weighings too, or a quiet one would be kept by chance alone.
        for _ in 1..TRIES {
            lower(&mut least, weighed().1);
        }
        let mut kept = StoredCounts {
            rustc,
            counts,
            least: kept.map_or_else(BTreeMap::new, |kept| kept.least),
        };
        if !least.is_empty() {
            kept.least.insert(vendor(), least);
        }
        let text = serde_json::to_string_pretty(&kept).unwrap() + "\n";
        return std::fs::write(&path, text).unwrap();
    }

    let kept = kept.expect("lab/counts.json");
    assert!(counts.keys().any(|name| name.starts_with("image_bytes.")));
    assert_eq!(grown(&counts, &kept.counts), Vec::<String>::new());
    let Some(kept) = kept.least.get(&vendor()) else {
        return tare_vmtest::lacks(format!("no instructions are kept of {}", vendor()));
    };
    for _ in 1..TRIES {
        if grown(&least, kept).is_empty() {
            break;
        }
        lower(&mut least, weighed().1);
    }
    assert_eq!(grown(&least, kept), Vec::<String>::new());
}

/// The vendor of this host's processor, as in `/proc/cpuinfo`.
fn vendor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("vendor_id"));
    let vendor = line.and_then(|line| line.split_once(':'));
    vendor.map_or("unknown", |(_, name)| name.trim()).to_owned()
}

/// Exact counts, and the least of those that vary.
fn weighed() -> (Counts, Counts) {
    let place = TestDir::new();
    let out = place.path().join("counts");
    let args = ["weigh", "counts", "--quick", "--out", out.to_str().unwrap()];
    place.run(&args).expect(0, "");
    let summary = std::fs::read(out.join("summary.json")).unwrap();
    let summary = serde_json::from_slice(&summary).unwrap();
    (exact(&summary), least(&summary))
}

/// A sentence for each count that is more than 3 % above the kept one, or not kept.
fn grown(now: &Counts, kept: &Counts) -> Vec<String> {
    let more = now.iter().filter_map(|(name, now)| match kept.get(name) {
        None => Some(format!("{name} is not kept: TARE_BLESS=1")),
        Some(before) => (*now > before * GROWTH).then(|| {
            format!(
                "{name}: {before} before, {now} now: more than 3 % above what lab/counts.json keeps"
            )
        }),
    });
    more.collect()
}

/// Takes over what is less.
fn lower(least: &mut Counts, others: Counts) {
    for (name, other) in others {
        least
            .entry(name)
            .and_modify(|count| *count = count.min(other))
            .or_insert(other);
    }
}

/// The figures that are the same at each measurement, by name.
fn exact(summary: &Value) -> Counts {
    let figures = summary["figures"].as_array().unwrap().iter();
    figures
        .filter(|figure| figure["statistic"] == "exact")
        .map(|figure| {
            let name = figure["name"].as_str().unwrap().to_owned();
            (name, figure["value"].as_f64().unwrap())
        })
        .collect()
}

/// The least of the machines' counts that vary; none where KVM counts no instructions.
fn least(summary: &Value) -> Counts {
    if summary["machine"]["kvm"] != "emulated" {
        return Counts::new();
    }
    let figures = summary["figures"].as_array().unwrap().iter();
    let least = figures.filter_map(|figure| {
        let name = figure["name"].as_str().unwrap();
        // A range of so few machines is from the least to the most.
        assert!(!VARYING.contains(&name) || figure["spread"] == "range");
        let is_varying = VARYING.contains(&name);
        is_varying.then(|| (name.to_owned(), figure["low"].as_f64().unwrap()))
    });
    let least: Counts = least.collect();
    assert_eq!(least.len(), VARYING.len(), "{least:?}");
    least
}

#[test]
fn counts_that_grow_are_named_and_others_are_not() {
    let counts = |boot: f64| Counts::from([("boot_insns".to_owned(), boot)]);
    assert_eq!(grown(&counts(102.9), &counts(100.0)), [""; 0]);
    let grown_by_more = grown(&counts(103.1), &counts(100.0));
    assert!(grown_by_more[0].starts_with("boot_insns: 100 before, 103.1 now"));
    assert!(grown(&counts(1.0), &Counts::new())[0].contains("not kept"));
    let mut least = counts(104.0);
    lower(&mut least, counts(101.0));
    lower(&mut least, counts(105.0));
    assert_eq!(least, counts(101.0));
    let figure = |name: &str| serde_json::json!({"name": name, "low": 7.0, "spread": "range", "statistic": "median"});
    let of = |kvm: &str| {
        let figures = VARYING.map(figure);
        least_of(kvm, &figures)
    };
    assert_eq!(of("emulated").len(), VARYING.len());
    assert_eq!(of("hardware"), Counts::new());
}

fn least_of(kvm: &str, figures: &[Value]) -> Counts {
    least(&serde_json::json!({"machine": {"kvm": kvm}, "figures": figures}))
}
