//! Licences of everything that is linked: Tare is Apache-2.0, and so must be
//! what it may be combined with.

use anyhow::{Result, bail};
use spdx::Expression;

use crate::workspace::{self, Package};

/// Licences that may be linked into Apache-2.0 programs without further duties
/// than their notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// An error that lists every package whose licence is missing or not allowed.
pub fn check() -> Result<()> {
    let packages = workspace::metadata()?.packages;
    let refused: Vec<String> = packages.iter().filter_map(refusal).collect();
    if !refused.is_empty() {
        bail!("licences:\n  {}", refused.join("\n  "));
    }
    eprintln!("licences: {} packages, all allowed", packages.len());
    Ok(())
}

fn refusal(package: &Package) -> Option<String> {
    let Some(licence) = &package.license else {
        return Some(format!("{} {} names none", package.name, package.version));
    };
    let allowed = Expression::parse_mode(licence, spdx::ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|needed| {
            needed
                .license
                .id()
                .is_some_and(|id| ALLOWED.contains(&id.name))
        })
    });
    (!allowed).then(|| format!("{} {}: {licence}", package.name, package.version))
}
