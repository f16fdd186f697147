//! Lists of a kept suite's tests that cannot run in a machine: GROUP TEST REASON a line.

/// Whether a test is in the list: a word there that ends in `*` stands for all that begin so.
pub(crate) fn is_exempt(list: &str, group: &str, test: &str) -> bool {
    let fits = |pattern: &str, word: &str| match pattern.strip_suffix('*') {
        Some(beginning) => word.starts_with(beginning),
        None => word == pattern,
    };
    entries(list).any(|line| {
        let mut words = line.split_whitespace();
        let fields = words.next().zip(words.next());
        fields.is_some_and(|(of, name)| fits(of, group) && fits(name, test))
    })
}

/// Panics if an entry lacks a reason, of two words at least.
pub(crate) fn expect_reasons(list: &str) {
    for line in entries(list) {
        assert!(line.split_whitespace().count() > 3, "{line}");
    }
}

/// The lines that name tests.
pub(crate) fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}
