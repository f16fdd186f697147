//! Advisories and sources of dependencies, by cargo-deny (`deny.toml`).
//!
//! `scripts/setup.sh ci` installs cargo-deny, which takes minutes to build; licences are also
//! checked without it (`licences.rs`). The advisory database lives on the network; if it cannot
//! be fetched, the copy of an earlier run is used. Where cargo-deny or the database is missing
//! this prints SKIP with the reason instead of failing, so that CI works offline.

use anyhow::{Result, bail};

use crate::shell::cargo;

/// How to get cargo-deny.
const INSTALL: &str = "install it with: scripts/setup.sh ci";

/// What one run of cargo-deny came to.
#[derive(Debug, PartialEq, Eq)]
enum CheckResult {
    Passed,
    /// It could not check; the reason.
    Skipped(String),
    /// It found something; its report.
    Refused(String),
}

/// Checks advisories and sources; an error holds cargo-deny's report.
pub(crate) fn check() -> Result<()> {
    if !installed() {
        eprintln!("advisories: SKIP: cargo-deny is not installed; {INSTALL}");
        return Ok(());
    }
    for checks in [&["bans", "sources"][..], &["advisories"]] {
        let what = checks.join(", ");
        match deny(&[], checks)? {
            CheckResult::Passed => eprintln!("{what}: ok"),
            CheckResult::Skipped(why) => match deny(&["--offline"], checks)? {
                CheckResult::Passed => eprintln!("{what}: ok by the copy on this machine: {why}"),
                CheckResult::Skipped(_) => eprintln!("{what}: SKIP: {why}"),
                CheckResult::Refused(report) => bail!("{what}:\n{report}"),
            },
            CheckResult::Refused(report) => bail!("{what}:\n{report}"),
        }
    }
    Ok(())
}

fn installed() -> bool {
    cargo(&["deny", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn deny(options: &[&str], checks: &[&str]) -> Result<CheckResult> {
    let mut command = cargo(&["deny"]);
    let output = command.args(options).arg("check").args(checks).output()?;
    let report = String::from_utf8_lossy(&output.stderr);
    Ok(check_result(output.status.success(), &report))
}

/// A database that cannot be fetched, or that has no copy here, is a skip; any other failure
/// refuses a dependency.
fn check_result(success: bool, report: &str) -> CheckResult {
    if success {
        return CheckResult::Passed;
    }
    let missing = ["failed to fetch", "failed to get 'FETCH_HEAD'"];
    let why = report.lines().find_map(|line| {
        let at = missing.iter().find_map(|what| line.find(what))?;
        Some(line[at..].to_owned())
    });
    why.map_or_else(
        || CheckResult::Refused(report.trim_end().to_owned()),
        CheckResult::Skipped,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_cannot_be_fetched_skips_with_the_reason() {
        let report = "2026-11-22 [ERROR] failed to fetch advisory database: no route\n";
        let expected = "failed to fetch advisory database: no route".to_owned();
        assert_eq!(check_result(false, report), CheckResult::Skipped(expected));
        let report = "2026-11-22 [ERROR] failed to get 'FETCH_HEAD' metadata: no copy\n";
        assert!(matches!(
            check_result(false, report),
            CheckResult::Skipped(_)
        ));
    }

    #[test]
    fn a_finding_of_cargo_deny_fails_the_check() {
        let report = "error[vulnerability]: RUSTSEC-2026-0001\n";
        let expected = "error[vulnerability]: RUSTSEC-2026-0001".to_owned();
        assert_eq!(check_result(false, report), CheckResult::Refused(expected));
        assert_eq!(check_result(true, ""), CheckResult::Passed);
    }
}
