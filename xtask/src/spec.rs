//! `docs/SPEC.md` names a test for each promise; here each name is looked up.

use std::collections::HashSet;

/// Names in back quotes in the last column of the specification's tables.
pub fn named_tests(spec: &str) -> Vec<&str> {
    spec.lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(|line| line.trim_end_matches(['|', ' ']).rsplit('|').next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

/// Names of functions in a source file.
pub fn functions(source: &str) -> HashSet<&str> {
    source
        .split("fn ")
        .skip(1)
        .filter_map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_from_the_last_column() {
        let spec = "| promise | test |\n|---|---|\n| `tare` ends | `a_b`, `c` |\n";
        assert_eq!(named_tests(spec), ["a_b", "c"]);
    }

    #[test]
    fn functions_are_found_by_name() {
        let found = functions("fn a_b() {}\npub async fn c<T>() {}");
        assert!(found.contains("a_b") && found.contains("c"));
    }
}
