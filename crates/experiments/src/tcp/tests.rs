use std::path::Path;

use tare_lab::testing::check;
use tare_load::interrupt::Interrupt;
use tare_tcp::wire::Impairment;

use super::*;

/// Only root can make namespaces; elsewhere the test says so.
fn can_run() -> bool {
    let why = obstacle();
    if let Some(why) = &why {
        tare_vmtest::lacks(why);
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
    let value = |name: &str| tare_lab::kit::value(&figures, name).unwrap();
    assert_eq!(value("slowdown.loss_1"), 2.0);
    assert!((value("again_ratio.loss_1") - 30.5 / 10.5).abs() < 1e-9);
    assert_eq!(value("again_pct.loss_1.linux"), 1.0);
    assert_eq!(
        tcp.data.failures,
        ["loss_1, tare, 20 MiB: bytes are wrong or missing"]
    );
    let report = tcp.report(&figures);
    assert!(
        report.answer.iter().any(|it| it.contains("under 1 of 2")),
        "{:?}",
        report.answer
    );
    for goal in GOALS {
        let key = goal.figure.split('.').nth(1).unwrap();
        assert!(KEYS.contains(&key), "{key}");
    }
}

/// What a transfer that did not end in time leaves.
fn failure(arm: &str, round: u64) -> Value {
    json!({
        "sample": "transfer", "impairment": "loss_1", "arm": arm, "round": round, "bytes": BYTES,
        "failure": "9 bytes after 30 s",
    })
}

#[test]
fn a_failed_transfer_moves_no_pair_and_misses_a_goal() {
    let mut tcp = Tcp::new(Depth::Standard);
    for round in 0..8 {
        // Rounds differ tenfold: pairs of two rounds would show.
        let s = 10_f64.powi(i32::try_from(round % 3).unwrap());
        match round {
            1 => tcp.note(&failure("tare", round)),
            _ => tcp.note(&sample("tare", round, BYTES, s, 10)),
        }
        match round {
            4 => tcp.note(&failure("linux", round)),
            _ => tcp.note(&sample("linux", round, BYTES, s, 10)),
        }
    }
    let figures = tcp.figures();
    let of = |name: &str| tare_lab::kit::find(&figures, name).unwrap();
    let slowdown = of("slowdown.loss_1");
    assert_eq!((slowdown.value, slowdown.n), (1.0, 6));
    assert_eq!(slowdown.interval(), Some((1.0, 1.0)));
    assert_eq!((of("failed.loss_1").value, of("failed.loss_1").n), (1.0, 8));
    let verdicts = tare_lab::results::verdicts(&figures, GOALS, tcp.kvm());
    let missed: Vec<&str> = verdicts
        .iter()
        .filter(|it| it.verdict == tare_lab::results::Judgement::Missed)
        .map(|it| it.figure.as_str())
        .collect();
    assert_eq!(missed, ["failed.loss_1"]);
    let answer = tcp.report(&figures).answer;
    assert!(answer[0].contains("under 0 of 1"), "{answer:?}");
    let effects = figures.iter().filter_map(tare_lab::results::Effect::of);
    assert_eq!(effects.count(), 2);
}

#[test]
fn the_kept_run_is_read_in_pairs_of_rounds() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs/2026-11-26-tcp");
    let directory = tempfile::tempdir().unwrap();
    for file in ["raw.jsonl", "summary.json"] {
        std::fs::copy(kept.join(file), directory.path().join(file)).unwrap();
    }
    tare_lab::rebuild(directory.path(), crate::ALL, tare_lab::Files::All).unwrap();
    let file = directory.path().join("summary.json");
    check(&ENTRY, &std::fs::read_to_string(&file).unwrap());
    let (summary, before) = (
        tare_lab::results::summary(&file).unwrap(),
        tare_lab::results::summary(&kept.join("summary.json")).unwrap(),
    );
    assert_eq!(summary.effects.len(), 2 * KEYS.len());
    for key in KEYS {
        let of = |name: &str| tare_lab::kit::find(&summary.figures, name).unwrap();
        let slowdown = of(&format!("slowdown.{key}"));
        assert_eq!((slowdown.n, of(&format!("failed.{key}")).value), (6, 0.0));
        let goodput = format!("goodput.{key}.tare");
        let old = tare_lab::kit::find(&before.figures, &goodput).unwrap();
        let new = of(&goodput);
        // The last bit depends on how the program was built.
        let off = (old.value - new.value).abs() / old.value;
        assert!(off < 1e-9 && old.n == new.n, "{old:?} {new:?}");
    }
}
