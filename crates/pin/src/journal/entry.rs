//! Lines of a journal.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cpu_list::CpuList;
use crate::task::TaskId;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// The first line.
    Begin(Begin),
    /// A thread is to be moved.
    Thread {
        /// Which.
        #[serde(flatten)]
        id: TaskId,
        /// Where it may run now.
        before: CpuList,
        /// Where it shall.
        wanted: CpuList,
    },
    /// A cgroup is to be changed.
    Cpuset {
        /// Its folder.
        folder: PathBuf,
        /// Its CPUs now.
        before: CpuList,
        /// Its CPUs then.
        wanted: CpuList,
    },
    /// The placement is complete, and lasts.
    Kept,
}

/// What is placed, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// The kernel's name of this boot.
    pub(crate) boot: String,
    /// The target as the user called it.
    pub(crate) asked: String,
    /// [`crate::Target::key`].
    pub(crate) key: String,
    /// The process that places.
    pub(crate) holder: u32,
}

/// A journal's first line and its others; `None` without a first line.
pub(crate) fn begun(entries: Vec<Entry>) -> Option<(Begin, Vec<Entry>)> {
    let mut entries = entries.into_iter();
    match entries.next()? {
        Entry::Begin(begin) => Some((begin, entries.collect())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tare_host::journal;

    fn parse(text: &str) -> Option<(Begin, Vec<Entry>)> {
        begun(journal::parse(text))
    }

    fn lines() -> String {
        let begin = Begin {
            boot: "b".to_owned(),
            asked: "web".to_owned(),
            key: "process 1 2".to_owned(),
            holder: 9,
        };
        let thread = Entry::Thread {
            id: TaskId {
                pid: 1,
                tid: 3,
                started_ticks: 77,
            },
            before: "0-1".parse().unwrap(),
            wanted: "1".parse().unwrap(),
        };
        let cpuset = Entry::Cpuset {
            folder: "/x".into(),
            before: String::new().try_into().unwrap(),
            wanted: "0".parse().unwrap(),
        };
        [Entry::Begin(begin), thread, cpuset, Entry::Kept]
            .iter()
            .map(|entry| serde_json::to_string(entry).unwrap() + "\n")
            .collect()
    }

    #[test]
    fn a_journal_reads_as_it_was_written() {
        let (begin, entries) = parse(&lines()).unwrap();
        assert_eq!((begin.asked.as_str(), entries.len()), ("web", 3));
        assert_eq!(entries[2], Entry::Kept);
    }

    proptest! {
        #[test]
        fn a_journal_that_was_cut_keeps_its_whole_lines(end in 0..400usize) {
            let text = lines();
            let end = end.min(text.len());
            let whole = text[..end].matches('\n').count();
            match parse(&text[..end]) {
                Some((_, entries)) => prop_assert_eq!(entries.len() + 1, whole),
                None => prop_assert_eq!(whole, 0),
            }
        }

        #[test]
        fn any_text_is_a_journal_or_none(text in "(?s).{0,200}") {
            let _ = parse(&text);
        }
    }
}
