//! What the library OS lacks for a program, by what the program asked of this kernel:
//! calls (`tare_program::Call`), further processes, and files that its machine has only
//! with `--root`.
//!
//! Limits: flags and options of calls, and files below `/proc`, `/sys` and `/dev`, are not
//! compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tare_profile::{Asked, Profile, table};
use tare_program::{Answer, Call};

use super::text::paragraph;

/// Calls or ways to make processes, with how often they were used.
type Counts = BTreeMap<String, u64>;

/// What is missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    calls: Counts,
    processes: Counts,
    files: Vec<String>,
}

/// Compares with the profile of a program from before its start.
pub(super) fn of(profile: &Profile) -> Lacks {
    let mut lacks = Lacks::default();
    for (name, call) in &profile.calls {
        let known = table::number(name).and_then(Call::of);
        let (list, count) = match known.map(Call::answer) {
            Some(Answer::Served | Answer::Spared) => continue,
            // The first one starts the program.
            Some(Answer::OneProcess) if known == Some(Call::execve) => {
                (&mut lacks.processes, call.count.saturating_sub(1))
            }
            Some(Answer::OneProcess) => (&mut lacks.processes, call.count),
            None => (&mut lacks.calls, call.count),
        };
        if count > 0 {
            list.insert(name.clone(), count);
        }
    }
    for clone in &profile.features.clones {
        if !clone.flags.iter().any(|flag| flag == "CLONE_THREAD") {
            let name = "clone without CLONE_THREAD".to_owned();
            *lacks.processes.entry(name).or_default() += clone.count;
        }
    }
    let is_read = |asked: &Asked| matches!(asked, Asked::Open | Asked::List);
    let paths = profile.paths.iter();
    lacks.files = paths
        .filter(|(_, asked)| asked.iter().any(is_read))
        .map(|(path, _)| path.clone())
        .collect();
    lacks
}

impl Lacks {
    /// The text for the reader.
    pub(super) fn text(&self, program: &str, kinds: usize) -> String {
        let mut text = format!("\nOn the library OS (tare run {program}):\n");
        if *self == Self::default() {
            let _ = writeln!(
                text,
                "nothing is missing: {kinds} kinds of calls are served"
            );
        }
        paragraph(&mut text, "Missing", &counted(&self.calls));
        paragraph(&mut text, "Processes", &counted(&self.processes));
        paragraph(&mut text, "Files", &self.files);
        for (is_there, remedy) in [
            (
                !self.calls.is_empty(),
                "Missing calls return ENOSYS: many programs go on without.",
            ),
            (
                !self.processes.is_empty(),
                "There is one process: set the program to run as one, without children.",
            ),
            (
                !self.files.is_empty(),
                "Files come with --root DIR, at the same paths below DIR.",
            ),
        ] {
            if is_there {
                let _ = writeln!(text, "{remedy}");
            }
        }
        text
    }
}

fn counted(counts: &Counts) -> Vec<String> {
    let items = counts.iter();
    items
        .map(|(name, count)| format!("{name} ({count})"))
        .collect()
}

#[cfg(test)]
mod tests {
    use tare_profile::{Call as Seen, CloneUse};

    use super::*;

    /// A profile with these calls.
    fn profile(calls: &[(&str, u64)]) -> Profile {
        let mut profile = Profile::empty();
        for (name, count) in calls {
            let call = Seen {
                count: *count,
                ..Seen::default()
            };
            profile.calls.insert((*name).to_owned(), call);
        }
        profile
    }

    fn names(counts: &Counts) -> Vec<&str> {
        counts.keys().map(String::as_str).collect()
    }

    #[test]
    fn calls_that_the_guest_does_not_serve_are_missing() {
        let seen = [
            ("read", 9),
            ("inotify_init1", 2),
            ("rseq", 1),
            ("execve", 1),
        ];
        let lacks = of(&profile(&seen));
        assert_eq!(names(&lacks.calls), ["inotify_init1"]);
        assert!(
            lacks.processes.is_empty(),
            "the start of the program itself"
        );
        assert!(lacks.text("./server", 4).contains("inotify_init1 (2)"));
    }

    #[test]
    fn further_processes_are_named_by_how_they_are_made() {
        let mut profile = profile(&[("execve", 2), ("vfork", 1)]);
        let clone = |flags: &[&str]| CloneUse {
            flags: flags.iter().map(|it| (*it).to_owned()).collect(),
            count: 3,
        };
        profile.features.clones = vec![clone(&["CLONE_THREAD", "CLONE_VM"]), clone(&[])];
        let lacks = of(&profile);
        let found = names(&lacks.processes);
        assert_eq!(found, ["clone without CLONE_THREAD", "execve", "vfork"]);
        assert!(lacks.text("./server", 3).contains("one process"));
    }

    #[test]
    fn files_that_are_read_come_with_the_root() {
        let mut profile = profile(&[("read", 1)]);
        for (path, asked) in [
            ("/etc/app.conf", Asked::Open),
            ("/tmp/log", Asked::Write),
            ("/etc", Asked::Stat),
            ("/srv/server", Asked::Execute),
        ] {
            profile.paths.insert(path.to_owned(), [asked].into());
        }
        let lacks = of(&profile);
        assert_eq!(lacks.files, ["/etc/app.conf"]);
        assert!(lacks.text("./server", 1).contains("--root DIR"));
        let nothing = of(&Profile::empty());
        assert!(nothing.text("./server", 0).contains("nothing is missing"));
    }
}
