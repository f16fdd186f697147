//! Kernel modules that were loaded, or taken into use, while an application ran.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The modules' users, watched.
#[derive(Debug)]
pub(super) struct Modules {
    before: BTreeMap<String, i64>,
    seen: BTreeSet<String>,
}

impl Modules {
    /// Modules that are loaded now are not new.
    pub(super) fn watch() -> Self {
        Self {
            before: now(),
            seen: BTreeSet::new(),
        }
    }

    /// Looks for modules that are new or have more users than at first.
    pub(super) fn look(&mut self) {
        for (name, users) in now() {
            if self.before.get(&name).is_none_or(|before| users > *before) {
                self.seen.insert(name);
            }
        }
    }

    /// All that came or were used more, sorted.
    pub(super) fn finish(mut self) -> Vec<String> {
        self.look();
        self.seen.into_iter().collect()
    }
}

/// A kernel without modules has no such file, and none to list.
fn now() -> BTreeMap<String, i64> {
    parse(&fs::read_to_string("/proc/modules").unwrap_or_default())
}

/// Lines `NAME BYTES USERS ...`.
fn parse(text: &str) -> BTreeMap<String, i64> {
    let module = |line: &str| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?.to_owned();
        Some((name, fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(module).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_and_users() {
        let found = parse("ext4 983040 1 - Live 0x0\njbd2 1 2 ext4, Live 0x0\nbroken\n");
        assert_eq!(found.len(), 2);
        assert_eq!((found["ext4"], found["jbd2"]), (1, 2));
    }
}
