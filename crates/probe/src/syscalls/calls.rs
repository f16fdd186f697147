//! What each CPU counted, as calls of the profile.

use std::collections::BTreeMap;

use tare_profile::{Argument, BUCKETS, Call, Durations, FASTEST, MAX_ARGUMENTS, names, table};

use super::record::{FOREIGN, UNKNOWN};
use crate::bpf::Object;

/// The name of calls of the 32-bit table.
pub(super) const COMPAT: &str = "compat";
/// The name of calls by a number that no call has.
pub(super) const NO_CALL: &str = "unknown";
/// Numbers that are counted.
const CALLS: u32 = FOREIGN + 1;
/// Words of the kernel side's `struct call`.
const WORDS: usize = HEAD + FASTEST + BUCKETS;
/// Words before the fastest times: count, bits of what varies, first arguments,
/// sum, longest, places of the fastest (3), last error (2), last use (3).
const HEAD: usize = 18;
const FIRST: usize = 2;
const TOTAL: usize = 8;
const KEPT: usize = 10;
const ERROR: usize = 13;
const USE: usize = 15;

/// What was counted by calls.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// All calls that were made, by name. Tasks are not known here.
    pub(super) calls: BTreeMap<String, Call>,
    /// Uses of numbers that select features, with their counts; a key may be there
    /// more than once.
    pub(super) uses: Vec<([u64; 2], u64)>,
}

/// Reads what was counted.
pub(super) fn read(object: &Object) -> Counted {
    let mut calls: BTreeMap<u32, Call> = BTreeMap::new();
    let mut uses = Vec::new();
    for number in 0..CALLS {
        let seen = object.per_cpu::<WORDS>("calls", number);
        for words in seen.iter().filter(|words| words[0] > 0 || words[KEPT] > 0) {
            let call = of_cpu(number, words);
            match calls.get_mut(&number) {
                None => drop(calls.insert(number, call)),
                Some(all) => all.merge(&call),
            }
            uses.push(([words[USE], words[USE + 1]], words[USE + 2]));
        }
    }
    uses.retain(|(_, count)| *count > 0);
    let older = object.entries::<2, 1>("uses").into_iter();
    uses.extend(older.map(|(key, [count])| (key, count)));
    for ([key], [count]) in object.entries::<1, 1>("errors") {
        if let Some(call) = calls.get_mut(&((key >> 32) as u32)) {
            let name = names::errno(key & 0xffff_ffff);
            *call.errors.entry(name).or_default() += count;
        }
    }
    let named = calls.into_iter().map(|(number, call)| (name(number), call));
    Counted {
        calls: named.collect(),
        uses,
    }
}

/// The name under which a number stands in the profile.
pub(super) fn name(number: u32) -> String {
    match number {
        FOREIGN => COMPAT.to_owned(),
        UNKNOWN => NO_CALL.to_owned(),
        _ => table::name(number),
    }
}

fn of_cpu(number: u32, words: &[u64; WORDS]) -> Call {
    let [count, varies, ..] = *words;
    // A call may begin on one CPU and end on another, which saw no arguments.
    let arguments = match count {
        0 => 0,
        _ => table::row(number).map_or(MAX_ARGUMENTS, |row| row.arguments),
    };
    let mut errors = BTreeMap::new();
    if words[ERROR + 1] > 0 {
        errors.insert(names::errno(words[ERROR]), words[ERROR + 1]);
    }
    Call {
        number,
        count,
        errors,
        time: durations(words),
        arguments: (0..arguments)
            .map(|position| match varies >> position & 1 {
                0 => Argument::Constant(words[FIRST + position]),
                _ => Argument::Varies,
            })
            .collect(),
        tasks: Vec::new(),
    }
}

fn durations(words: &[u64; WORDS]) -> Durations {
    let (fastest, histogram) = words[HEAD..].split_at(FASTEST);
    let kept = usize::try_from(words[KEPT]).map_or(FASTEST, |kept| kept.min(FASTEST));
    let mut fastest_ns = fastest[..kept].to_vec();
    fastest_ns.sort_unstable();
    let used = histogram.iter().rposition(|count| *count > 0);
    Durations {
        total_ns: words[TOTAL],
        shortest_ns: fastest_ns.first().copied().unwrap_or(0),
        longest_ns: words[TOTAL + 1],
        fastest_ns,
        histogram: histogram[..used.map_or(0, |last| last + 1)].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpus_words_become_a_call() {
        let mut words = [0; WORDS];
        words[..HEAD]
            .copy_from_slice(&[3, 0b10, 5, 9, 7, 0, 0, 0, 300, 200, 2, 0, 0, 11, 1, 0, 0, 0]);
        words[HEAD..HEAD + 2].copy_from_slice(&[200, 100]);
        words[HEAD + FASTEST + 6] = 1;
        words[HEAD + FASTEST + 7] = 1;
        let call = of_cpu(0, &words);
        assert_eq!(call.count, 3);
        assert_eq!(call.errors, [("EAGAIN".to_owned(), 1)].into());
        assert_eq!(call.time.shortest_ns, 100);
        assert_eq!(call.time.fastest_ns, [100, 200]);
        assert_eq!(call.time.count(), 2);
        assert_eq!(call.time.mean_ns(), Some(150));
        let expected = [
            Argument::Constant(5),
            Argument::Varies,
            Argument::Constant(7),
        ];
        assert_eq!(call.arguments, expected);
    }
}
