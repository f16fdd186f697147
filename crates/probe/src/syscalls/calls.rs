//! What each CPU counted, as calls of the profile.

use std::collections::BTreeMap;

use tare_profile::{Argument, BUCKETS, Call, Durations, FASTEST, MAX_ARGUMENTS};

use super::record::FOREIGN;
use super::{names, table};
use crate::bpf::Object;

/// The name of what 32-bit programs called.
pub(super) const COMPAT: &str = "compat";
/// Numbers that are counted.
const CALLS: u32 = FOREIGN + 1;
/// Words of the kernel side's `struct call`.
const WORDS: usize = 13 + FASTEST + BUCKETS;

/// Reads all calls that were made. Tasks are not known here.
pub(super) fn read(object: &Object) -> BTreeMap<String, Call> {
    let mut calls: BTreeMap<u32, Call> = BTreeMap::new();
    for number in 0..CALLS {
        let seen = object.per_cpu::<WORDS>("calls", number);
        for words in seen.iter().filter(|words| words[0] > 0 || words[8] > 0) {
            let call = of_cpu(number, words);
            match calls.get_mut(&number) {
                None => drop(calls.insert(number, call)),
                Some(all) => all.merge(&call),
            }
        }
    }
    for ([key], [count]) in object.entries::<1, 1>("errors") {
        if let Some(call) = calls.get_mut(&((key >> 32) as u32)) {
            let name = names::errno(key & 0xffff_ffff);
            *call.errors.entry(name).or_default() += count;
        }
    }
    let named = calls.into_iter().map(|(number, call)| (name(number), call));
    named.collect()
}

/// The name under which a number stands in the profile.
pub(super) fn name(number: u32) -> String {
    match number {
        FOREIGN => COMPAT.to_owned(),
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
    Call {
        number,
        count,
        errors: BTreeMap::new(),
        time: durations(words),
        arguments: (0..arguments)
            .map(|position| match varies >> position & 1 {
                0 => Argument::Constant(words[2 + position]),
                _ => Argument::Varies,
            })
            .collect(),
        tasks: Vec::new(),
    }
}

fn durations(words: &[u64; WORDS]) -> Durations {
    let timed = words[8];
    if timed == 0 {
        return Durations::default();
    }
    let (fastest, histogram) = words[13..].split_at(FASTEST);
    let kept = usize::try_from(timed).map_or(FASTEST, |timed| timed.min(FASTEST));
    let mut fastest_ns = fastest[..kept].to_vec();
    fastest_ns.sort_unstable();
    let used = histogram.iter().rposition(|count| *count > 0);
    Durations {
        total_ns: words[9],
        shortest_ns: words[10],
        longest_ns: words[11],
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
        words[..13].copy_from_slice(&[3, 0b10, 5, 9, 7, 0, 0, 0, 2, 300, 100, 200, 0]);
        words[13..15].copy_from_slice(&[200, 100]);
        words[13 + FASTEST + 6] = 1;
        words[13 + FASTEST + 7] = 1;
        let call = of_cpu(0, &words);
        assert_eq!(call.count, 3);
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
