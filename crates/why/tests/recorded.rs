//! Accounts recorded from real machines that burn CPU time in one way, each named
//! for its cause and monitor. `TARE_RECORD=1 cargo test -p tare --test why` records
//! them anew on whatever computer it runs on.

use std::fs;
use std::path::Path;

use tare_account::Account;
use tare_why::{Cause, Load, diagnose};

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
