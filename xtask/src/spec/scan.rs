//! Finds the tests of a source file.

/// Names of the functions that carry `#[test]`, also within `proptest!`.
pub(crate) fn tests(source: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    source.lines().filter_map(move |line| {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix("#[test]") {
            marked = true;
            line = rest.trim_start();
        }
        let between = line.is_empty() || line.starts_with("#[") || line.starts_with("//");
        if !marked || between {
            return None;
        }
        marked = false;
        function(line)
    })
}

/// The name in `fn name(`, if the line begins a function.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    if !before.is_empty() && !before.ends_with(' ') {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod unit {
    use super::*;

    fn found(source: &str) -> Vec<&str> {
        tests(source).collect()
    }

    #[test]
    fn only_functions_with_the_attribute_are_tests() {
        let source = "fn helper() {}\n#[test]\nfn a_b() {}\nfn c() {}\n";
        assert_eq!(found(source), ["a_b"]);
    }

    #[test]
    fn comments_and_other_attributes_may_come_between() {
        let source = "#[test]\n// why\n#[ignore]\n\n    fn a() {}\n#[test] fn b() {}\n";
        assert_eq!(found(source), ["a", "b"]);
    }

    #[test]
    fn tests_of_proptest_are_found() {
        let source = "proptest! {\n    #[test]\n    fn any(x in 0..3u8) {}\n}\n";
        assert_eq!(found(source), ["any"]);
    }

    #[test]
    fn functions_that_macros_name_are_not_tests() {
        assert_eq!(found("#[test]\nfn $name() {}\n"), [""; 0]);
    }
}
