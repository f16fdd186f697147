//! Requests as a record keeps them: a few numbers each, since a load has a hundred thousand.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Failure, Request};

/// A request as a short array. Times are ns: from when the one before it was due until it was
/// due; from then until it was sent (`null` if it never was); from then until its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Compact {
    /// It was answered on a connection that was there.
    Answered(i64, Option<i64>, i64),
    /// And whether it needed a new connection, and why there was no right answer.
    Other(i64, Option<i64>, i64, bool, Option<Failure>),
}

/// The requests, in their order, as JSON.
pub fn to_json(requests: &[Request]) -> Value {
    let mut before = 0;
    let compact = requests.iter().map(|request| {
        let from = |time: u64, since: u64| time.wrapping_sub(since).cast_signed();
        let due = request.scheduled_ns;
        let gap = from(due, std::mem::replace(&mut before, due));
        let sent = request.sent_ns.map(|sent| from(sent, due));
        let done = from(request.done_ns, due);
        match (request.connected, request.failure) {
            (false, None) => Compact::Answered(gap, sent, done),
            (connected, failure) => Compact::Other(gap, sent, done, connected, failure),
        }
    });
    compact.map(|line| serde_json::json!(line)).collect()
}

/// The requests of a record: as [`to_json`] gives them, or each with the names of its fields,
/// as older records have them. `None` for anything else.
pub fn from_json(record: &Value) -> Option<Vec<Request>> {
    let Ok(compact) = Vec::<Compact>::deserialize(record) else {
        return Vec::<Request>::deserialize(record).ok();
    };
    let mut before = 0_u64;
    let requests = compact.into_iter().map(|line| {
        let (gap, sent, done, connected, failure) = match line {
            Compact::Answered(gap, sent, done) => (gap, sent, done, false, None),
            Compact::Other(gap, sent, done, connected, failure) => {
                (gap, sent, done, connected, failure)
            }
        };
        let due = before.wrapping_add_signed(gap);
        before = due;
        Request {
            scheduled_ns: due,
            sent_ns: sent.map(|sent| due.wrapping_add_signed(sent)),
            done_ns: due.wrapping_add_signed(done),
            connected,
            failure,
        }
    });
    Some(requests.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> impl Strategy<Value = Request> {
        let failure = prop_oneof![
            Just(Failure::Timeout),
            any::<u16>().prop_map(Failure::Status)
        ];
        let times = (any::<u64>(), any::<Option<u64>>(), any::<u64>());
        (times, any::<bool>(), proptest::option::of(failure)).prop_map(
            |((scheduled_ns, sent_ns, done_ns), connected, failure)| Request {
                scheduled_ns,
                sent_ns,
                done_ns,
                connected,
                failure,
            },
        )
    }

    proptest! {
        #[test]
        fn requests_come_back_as_they_were(requests in proptest::collection::vec(request(), 0..20)) {
            let text = to_json(&requests).to_string();
            let back = from_json(&serde_json::from_str(&text).unwrap());
            prop_assert_eq!(back.as_ref(), Some(&requests));
            // As they were kept before this form.
            prop_assert_eq!(from_json(&serde_json::json!(requests)), Some(requests));
        }
    }

    #[test]
    fn a_request_takes_a_few_digits() {
        let at = |number: u64| Request {
            scheduled_ns: number * 92_066,
            sent_ns: Some(number * 92_066 + 4137),
            done_ns: number * 92_066 + 151_219,
            connected: false,
            failure: None,
        };
        let text = to_json(&[at(1), at(2)]).to_string();
        assert_eq!(text, "[[92066,4137,151219],[92066,4137,151219]]");
        for wrong in ["[[1]]", "[[1,2,3,4]]", "{}", "[7]", "[[1,2,1.5]]"] {
            let value = serde_json::from_str(wrong).unwrap();
            assert_eq!(from_json(&value), None, "{wrong}");
        }
    }
}
