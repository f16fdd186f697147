//! The program's own timers: which there are, and what slows them.

use crate::load::Expired;
use crate::remedy::Remedy;
use crate::text::{percent, rate};

/// Most timers in a line.
const SHOWN: usize = 3;
/// Rate below which a timer is not worth a word, per second.
const LEAST_HZ: f64 = 0.5;
/// A rate that no setting needs to lower, per second.
const SLOW_HZ: f64 = 1.5;

/// Programs with a timer that a setting slows to once a second.
const SETTINGS: [(&str, &str); 2] = [
    (
        "redis-server",
        "start redis with --hz 1: its serverCron runs 10 times a second by default",
    ),
    (
        "valkey-server",
        "start valkey with --hz 1: its serverCron runs 10 times a second by default",
    ),
];

/// Calls that do nothing but wait.
const SLEEPS: [&str; 2] = ["nanosleep", "clock_nanosleep"];

/// The timers that run out most often: `epoll_wait of redis-server (thread 1) 10/s, ...`; `None` if
/// none does often.
pub fn program_timers(expired: &[Expired]) -> Option<String> {
    let mut often = expired.iter().filter(|it| it.per_second >= LEAST_HZ);
    let shown = often.by_ref().take(SHOWN);
    let mut timers: Vec<String> = shown
        .map(|it| format!("{} {}", it.origin, rate(it.per_second)))
        .collect();
    let more = often.count();
    if more > 0 {
        timers.push(format!("{more} more"));
    }
    (!timers.is_empty()).then(|| timers.join(", "))
}

/// What to do about the one that runs out most often, where timers take `share` of a core.
pub(crate) fn remedy(expired: &[Expired], share: f64) -> Option<Remedy> {
    let first = expired.first().filter(|it| it.per_second >= LEAST_HZ)?;
    let mut settings = SETTINGS.iter();
    let known = settings.find(|(program, _)| *program == first.thread_name);
    let all: f64 = expired.iter().map(|it| it.per_second).sum();
    let advice = match known {
        Some((_, setting)) if first.per_second >= SLOW_HZ => {
            let saved = share * (first.per_second - 1.0) / all;
            format!("{setting} (saves about {} of a core)", percent(saved))
        }
        _ if SLEEPS.iter().any(|call| first.origin.starts_with(call)) => format!(
            "let the program wait for what it needs instead of sleeping in steps: {} returns {}",
            first.origin,
            rate(first.per_second)
        ),
        _ => format!(
            "lengthen the program's time limit or timer: {} runs out {}",
            first.origin,
            rate(first.per_second)
        ),
    };
    Some(Remedy::guest(&advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(origin: &str, thread_name: &str, per_second: f64) -> Expired {
        Expired {
            origin: format!("{origin} of {thread_name} (thread 1)"),
            thread_name: thread_name.to_owned(),
            per_second,
        }
    }

    fn advice(expired: &[Expired]) -> String {
        match remedy(expired, 0.01) {
            Some(Remedy::InGuest { advice }) => advice,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn timers_are_named_the_most_frequent_first() {
        let one = |hz| expired("epoll_wait", "redis-server", hz);
        let line = program_timers(&[one(10.02), one(3.0), one(2.0), one(1.0), one(0.6), one(0.1)]);
        let redis = "epoll_wait of redis-server (thread 1)";
        let expected = format!("{redis} 10/s, {redis} 3.0/s, {redis} 2.0/s, 2 more");
        assert_eq!(line, Some(expected));
        assert_eq!(program_timers(&[one(0.4)]), None);
        assert_eq!(program_timers(&[]), None);
    }

    #[test]
    fn a_known_program_has_its_setting_and_what_it_saves() {
        let redis = expired("epoll_wait", "redis-server", 10.0);
        let advice_of = advice(std::slice::from_ref(&redis));
        assert!(
            advice_of.starts_with("start redis with --hz 1"),
            "{advice_of}"
        );
        assert!(
            advice_of.ends_with("(saves about 0.9 % of a core)"),
            "{advice_of}"
        );
        let slow = Expired {
            per_second: 1.0,
            ..redis
        };
        let advice_of = advice(&[slow]);
        assert!(
            advice_of.starts_with("lengthen the program's time limit"),
            "{advice_of}"
        );
    }

    #[test]
    fn a_program_that_sleeps_in_steps_is_said_to() {
        let advice_of = advice(&[expired("clock_nanosleep", "poller", 100.0)]);
        let end = "clock_nanosleep of poller (thread 1) returns 100/s";
        assert!(advice_of.ends_with(end), "{advice_of}");
    }
}
