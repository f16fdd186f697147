//! Advisories and sources of dependencies, by cargo-deny (`deny.toml`).
//!
//! cargo-deny is optional because it takes minutes to build; licences are also checked without
//! it (`licences.rs`). The advisory database lives on the network. Where either is missing
//! this prints SKIP with the reason instead of failing, so that CI works offline.

use anyhow::{Result, bail};

use crate::shell::cargo;

/// How to get cargo-deny.
const INSTALL: &str = "install it with: cargo install --locked cargo-deny";

/// What one run of cargo-deny came to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
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
        match deny(checks)? {
            Verdict::Passed => eprintln!("{what}: ok"),
            Verdict::Skipped(why) => eprintln!("{what}: SKIP: {why}"),
            Verdict::Refused(report) => bail!("{what}:\n{report}"),
        }
    }
    Ok(())
}

fn installed() -> bool {
    cargo(&["deny", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn deny(checks: &[&str]) -> Result<Verdict> {
    let output = cargo(&["deny", "check"]).args(checks).output()?;
    let report = String::from_utf8_lossy(&output.stderr);
    Ok(verdict(output.status.success(), &report))
}

/// A failed download is a skip; any other failure refuses a dependency.
fn verdict(success: bool, report: &str) -> Verdict {
    if success {
        return Verdict::Passed;
    }
    match report.lines().find(|line| line.contains("failed to fetch")) {
        Some(line) => {
            let why = line
                .split_once("failed to fetch")
                .map_or(line, |(_, what)| what);
            Verdict::Skipped(format!("failed to fetch{why}"))
        }
        None => Verdict::Refused(report.trim_end().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_cannot_be_fetched_skips_with_the_reason() {
        let report = "2026-11-22 [ERROR] failed to fetch advisory database: no route\n";
        let expected = "failed to fetch advisory database: no route".to_owned();
        assert_eq!(verdict(false, report), Verdict::Skipped(expected));
    }

    #[test]
    fn a_finding_of_cargo_deny_fails_the_check() {
        let report = "error[vulnerability]: RUSTSEC-2026-0001\n";
        let expected = "error[vulnerability]: RUSTSEC-2026-0001".to_owned();
        assert_eq!(verdict(false, report), Verdict::Refused(expected));
        assert_eq!(verdict(true, ""), Verdict::Passed);
    }
}
