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
pub(crate) fn check() -> Result<()> {
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
        return Some(format!("{} {}: no licence", package.name, package.version));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::package;

    fn refused(licence: Option<&str>) -> bool {
        let mut package = package("dependency", &[]);
        package.license = licence.map(str::to_owned);
        refusal(&package).is_some()
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(!refused(Some("MIT OR GPL-2.0-only")));
        assert!(!refused(Some("MIT/Apache-2.0")));
    }

    #[test]
    fn every_part_of_a_conjunction_must_be_allowed() {
        assert!(refused(Some("MIT AND GPL-2.0-only")));
        assert!(!refused(Some("(MIT OR Apache-2.0) AND Unicode-3.0")));
    }

    #[test]
    fn a_missing_or_unknown_licence_is_refused() {
        assert!(refused(None));
        assert!(refused(Some("my own terms")));
    }

    #[test]
    fn the_list_is_that_of_cargo_deny() {
        let text = std::fs::read_to_string(crate::shell::root().join("deny.toml")).unwrap();
        let config: toml::Table = toml::from_str(&text).unwrap();
        let allowed: Vec<&str> = config["licenses"]["allow"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(toml::Value::as_str)
            .collect();
        assert_eq!(allowed, ALLOWED);
    }
}
