//! Which system calls a program of the guest can reach: all of the table but
//! those whose code the configuration leaves out.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use tare_profile::Profile;

use crate::kconfig::Config;
use crate::mapping::{Trigger, rows};
use crate::objects;
use crate::source::Series;
use crate::source::Tree;

/// The table of x86-64's calls.
const TABLE: &str = "arch/x86/entry/syscalls/syscall_64.tbl";

/// A tree without its table.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct TableError {
    path: PathBuf,
    source: io::Error,
}

/// Names of the calls in a tree's table, without x32's.
pub fn of(tree: &Tree) -> Result<BTreeSet<String>, TableError> {
    match objects::read_text(tree.dir(), TABLE) {
        Ok(text) => Ok(in_table(&text)),
        Err(source) => Err(TableError {
            path: tree.dir().join(TABLE),
            source,
        }),
    }
}

/// Calls that a profile names and the table does not have: of a newer kernel,
/// or no calls at all.
pub fn unknown<'a>(calls: &BTreeSet<String>, profile: &'a Profile) -> Vec<&'a str> {
    let names = profile.calls.keys().map(String::as_str);
    names.filter(|name| !calls.contains(*name)).collect()
}

/// Calls of the table of a series that are answered under a configuration; one that is
/// built as a module counts.
pub fn reachable(calls: &BTreeSet<String>, config: &Config, series: Series) -> BTreeSet<String> {
    let on: BTreeSet<&str> = config.on().collect();
    let mut reachable = calls.clone();
    for row in rows(series) {
        if let Trigger::Calls(given) = &row.trigger
            && !row.needs.iter().all(|symbol| on.contains(symbol.name()))
        {
            reachable.retain(|call| !given.contains(call));
        }
    }
    reachable
}

/// Lines `NUMBER ABI NAME [ENTRY]`; a line without an entry is skipped.
fn in_table(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (abi, name, _entry) = (words.next()?, words.next()?, words.next()?);
            (abi != "x32").then(|| name.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use tare_profile::Call;

    use super::*;

    #[test]
    fn a_call_that_the_sources_do_not_have_is_named() {
        let table = in_table("0\tcommon\tread\tsys_read\n");
        let mut profile = Profile::empty();
        for call in ["read", "raed"] {
            profile.calls.insert(call.to_owned(), Call::default());
        }
        assert_eq!(unknown(&table, &profile), ["raed"]);
    }

    #[test]
    fn a_call_goes_with_the_options_that_give_it() {
        let table = "# comment\n0\tcommon\tread\tsys_read\n232\tcommon\tepoll_wait\tsys_epoll_wait\n\
                     174\t64\tcreate_module\n512\tx32\trt_sigaction\tcompat\n";
        let calls = in_table(table);
        assert_eq!(calls.len(), 2);
        let without = reachable(&calls, &Config::read("CONFIG_NET=y\n"), Series::V6_1);
        assert_eq!(without, BTreeSet::from(["read".to_owned()]));
        assert_eq!(
            reachable(&calls, &Config::read("CONFIG_EPOLL=y\n"), Series::V6_1),
            calls
        );
    }
}
