#![allow(clippy::unwrap_used)]

use super::*;
use crate::interrupt::Interrupt;

/// Only root can make namespaces; elsewhere the test says so.
fn can_run() -> bool {
    let why = obstacle();
    if let Some(why) = &why {
        println!("SKIP: {why}");
    }
    why.is_none()
}

#[test]
fn both_senders_deliver_over_a_bad_wire_in_real_time() {
    if !can_run() {
        return;
    }
    let impairment = COMPARED[14].impairment;
    for arm in Arm::BOTH {
        let interrupt = Interrupt::default();
        let outcome = transfer(arm, impairment, (100_000, 5), LIMIT, &interrupt).unwrap();
        assert_eq!(outcome.received.bytes, 100_000, "{arm:?}");
        assert!(outcome.received.is_right, "{arm:?}");
        assert!(outcome.segments >= 69, "{arm:?}: {outcome:?}");
    }
}

#[test]
fn a_wire_that_loses_everything_ends_with_the_limit() {
    if !can_run() {
        return;
    }
    let nothing = Impairment {
        lost: 100_000,
        ..Impairment::default()
    };
    for arm in Arm::BOTH {
        let limit = Duration::from_millis(500);
        let result = transfer(arm, nothing, (1000, 1), limit, &Interrupt::default());
        assert_eq!(
            result.unwrap_err().kind(),
            std::io::ErrorKind::TimedOut,
            "{arm:?}"
        );
    }
}

fn sample(arm: &str, round: u64, bytes: usize, s: f64, again: u64) -> Value {
    json!({
        "sample": "transfer", "impairment": "loss_1", "arm": arm, "round": round, "bytes": bytes,
        "received": bytes, "right": true, "s": s, "segments": 1000, "again": again,
    })
}

#[test]
fn ratios_pair_rounds_and_failures_are_named() {
    let mut tcp = Tcp::new(Depth::Standard);
    for round in 0..6 {
        tcp.note(&sample("tare", round, BYTES, 2.0, 30));
        tcp.note(&sample("linux", round, BYTES, 1.0, 10));
    }
    let mut cut = sample("tare", 0, LONG, 9.0, 0);
    cut["received"] = json!(5);
    tcp.note(&cut);
    tcp.note(&sample("tare", 0, LONG, 9.0, 0));
    let figures = tcp.figures();
    let value = |name: &str| crate::figure::value(&figures, name).unwrap();
    assert_eq!(value("slowdown.loss_1"), 2.0);
    assert!((value("again_ratio.loss_1") - 30.5 / 10.5).abs() < 1e-9);
    assert_eq!(value("again_pct.loss_1.linux"), 1.0);
    assert_eq!(
        tcp.failures,
        ["loss_1, tare, 20 MiB: bytes are wrong or missing"]
    );
    let report = tcp.report(&figures);
    assert!(
        report.answer.iter().any(|it| it.contains("under 1 of 2")),
        "{:?}",
        report.answer
    );
    for goal in tcp.goals() {
        let key = goal.figure.split('.').nth(1).unwrap();
        assert!(KEYS.contains(&key), "{key}");
    }
}
