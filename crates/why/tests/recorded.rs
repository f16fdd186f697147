//! Accounts recorded from real machines that burn CPU time in one way, each named
//! for its cause and monitor. `TARE_RECORD=1 cargo test -p tare --test why` records
//! them anew on whatever computer it runs on.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use tare_account::Account;
use tare_why::{Cause, Finding, Load, diagnose};

#[test]
fn the_largest_cause_of_every_recorded_machine_is_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accounts");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (cause, _) = name.rsplit_once('-').unwrap();
        let expected: Cause = serde_json::from_str(&format!("{cause:?}")).unwrap();
        let account: Account = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let diagnosis = diagnose(&Load::from(&account), None);
        // Others used the computer while it was recorded.
        let mut causes = diagnosis.findings.iter().map(|finding| finding.cause);
        let own = causes.find(|cause| *cause == expected || *cause != Cause::Steal);
        assert_eq!(own, Some(expected), "{name}: {diagnosis:#?}");
        let parts = diagnosis.breakdown.parts();
        for (index, (part, share)) in parts.iter().enumerate() {
            let findings = diagnosis.findings.iter();
            let explained: f64 = findings.map(|found| found.parts.parts()[index].1).sum();
            assert!(
                (share - explained).abs() <= 0.01,
                "{name}: {part} {diagnosis:#?}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 12, "{seen} accounts");
}

/// The finding of exits in an account of which a seventh of the window was counted.
fn sampled(margin: impl Fn(u64) -> Option<u64>) -> Finding {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accounts/exits-tare.json");
    let mut account: Account = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    account.counted_share = 0.14;
    let vcpus = account.threads.iter_mut().filter_map(|it| it.vcpu.as_mut());
    for exit in vcpus.flat_map(|vcpu| &mut vcpu.exits) {
        exit.margin = margin(exit.count);
    }
    let findings = diagnose(&Load::from(&account), None).findings;
    let mut exits = findings.into_iter().filter(|it| it.cause == Cause::Exits);
    exits.next().unwrap()
}

#[test]
fn a_sampled_account_says_how_well_its_rates_are_known() {
    let known = sampled(|count| Some(count / 2));
    let rate = known.rate.unwrap();
    let [low, high] = rate.interval.unwrap();
    assert!((rate.per_second / 2.0 - low).abs() < 1.0, "{rate:?}");
    assert!((rate.per_second * 1.5 - high).abs() < 1.0, "{rate:?}");
    assert!(
        known.what.contains(" to ") && known.what.ends_with("; 14 % of the time counted)"),
        "{known:?}"
    );
    let unknown = sampled(|_| None);
    assert_eq!(unknown.rate.unwrap().interval, None);
    assert!(
        unknown
            .what
            .ends_with("(14 % of the time counted, no interval)"),
        "{unknown:?}"
    );
    let narrow = sampled(|count| Some(count / 100));
    assert!(narrow.what.ends_with("/s"), "{narrow:?}");
}
