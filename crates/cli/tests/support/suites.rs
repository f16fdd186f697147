//! What runs of kept suites share: their sources, lists of tests that cannot run in a machine, GROUP TEST REASON a
//! line, and several tests at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

/// The directory of a source that set-up has fetched, whose name begins so.
pub(crate) fn fetched(name: &str) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/sources");
    let mut entries = fs::read_dir(sources).into_iter().flatten().flatten();
    let is_meant = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(name);
    entries.find(is_meant).map(|entry| entry.path())
}

/// Does `act` for all, some at a time.
pub(crate) fn at_once<T: Sync>(all: &[T], workers: usize, act: impl Fn(&T) + Sync) {
    let next = Mutex::new(all.iter());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = next.lock().unwrap().next();
                    match next {
                        Some(one) => act(one),
                        None => return,
                    }
                }
            });
        }
    });
}

/// Whether a word of a list stands for that: one that ends in `*` for all that begin so.
pub(crate) fn fits(pattern: &str, word: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => word.starts_with(beginning),
        None => word == pattern,
    }
}

/// Whether a test is in the list.
pub(crate) fn is_exempt(list: &str, group: &str, test: &str) -> bool {
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
