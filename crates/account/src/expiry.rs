//! Time limits and timers of a guest's program that ran out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How often a time limit or a timer of the guest's program ran out: one system call of one thread,
/// as the guest counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expiry {
    /// The call whose limit it was, or that has set the timer: `epoll_wait`, `clock_nanosleep`,
    /// `timerfd_settime`, ...; empty for all that the guest had no room for.
    pub call: String,
    /// Number of the thread, as the program sees it. Timers that send a signal are the first
    /// thread's.
    pub thread: u32,
    /// Its name; the guest may give it any.
    pub thread_name: String,
    /// How often.
    pub count: u64,
}

impl Expiry {
    /// Whether both count the same call of the same thread.
    pub fn has_same_origin(&self, other: &Self) -> bool {
        (&self.call, self.thread) == (&other.call, other.thread)
    }

    /// What `after` has counted since `before`, which is an earlier reading.
    pub fn since(before: &[Self], after: Vec<Self>) -> Vec<Self> {
        let counted = |expiry: &Self| {
            let mut before = before.iter();
            let before = before.find(|it| it.has_same_origin(expiry));
            before.map_or(0, |before| before.count)
        };
        let more = after.into_iter().map(|expiry| {
            let count = expiry.count.saturating_sub(counted(&expiry));
            Self { count, ..expiry }
        });
        more.filter(|expiry| expiry.count > 0).collect()
    }
}

/// `epoll_wait of redis-server (thread 1)`.
impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            thread,
            thread_name,
            ..
        } = self;
        match (call.as_str(), thread_name.as_str()) {
            ("", _) => f.write_str("others"),
            (call, "") => write!(f, "{call} of thread {thread}"),
            (call, name) => write!(f, "{call} of {name} (thread {thread})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(call: &str, thread: u32, name: &str, count: u64) -> Expiry {
        Expiry {
            call: call.to_owned(),
            thread,
            thread_name: name.to_owned(),
            count,
        }
    }

    #[test]
    fn a_window_has_what_was_counted_within_it() {
        let before = [
            expiry("epoll_wait", 1, "redis", 10),
            expiry("futex", 2, "", 5),
        ];
        let after = vec![
            expiry("epoll_wait", 1, "redis-server", 14),
            expiry("futex", 2, "", 5),
            expiry("futex", 3, "bio", 2),
        ];
        let expected = [
            expiry("epoll_wait", 1, "redis-server", 4),
            expiry("futex", 3, "bio", 2),
        ];
        assert_eq!(Expiry::since(&before, after), expected);
        // A guest may take back what it has counted.
        let less = vec![expiry("futex", 2, "", 1)];
        assert_eq!(Expiry::since(&before, less), []);
    }

    #[test]
    fn an_origin_reads_as_in_a_sentence() {
        let texts = [
            expiry("epoll_wait", 1, "redis-server", 1),
            expiry("futex", 7, "", 1),
            expiry("", 0, "", 1),
        ]
        .map(|expiry| expiry.to_string());
        let expected = [
            "epoll_wait of redis-server (thread 1)",
            "futex of thread 7",
            "others",
        ];
        assert_eq!(texts, expected);
    }
}
