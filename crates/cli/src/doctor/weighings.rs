//! What killed weighings left on this host.

use tare_control::sentence::chain;
use tare_host::printable::printable;
use tare_platforms_study::journal::{self, JournalError, Leftovers};

use super::finding::Finding;

pub(super) fn findings() -> Vec<Finding> {
    vec![finding(left_behind())]
}

fn left_behind() -> Result<Leftovers, JournalError> {
    journal::left_behind(&journal::directory()?)
}

fn finding(left: Result<Leftovers, JournalError>) -> Finding {
    match left {
        Ok(left) if left.is_empty() => {
            Finding::ok("weighings", "killed benchmark runs left nothing behind")
        }
        Ok(left) => Finding::limited(
            "weighings",
            format!(
                "left by a killed benchmark run: {}",
                printable(&left.to_string())
            ),
        )
        .remedy("tare doctor --clean puts it back"),
        Err(JournalError::NoPlace(_)) => Finding::ok("weighings", "no cache directory"),
        Err(error) => Finding::limited("weighings", chain(&error)),
    }
}
