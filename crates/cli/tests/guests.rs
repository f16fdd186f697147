//! The images that measure, each shortly in Tare's own monitor.
//!
//! They need /dev/kvm, `tare-monitor` beside `tare` and the images (`cargo
//! xtask test` builds both), and SKIP without; with TARE_REQUIRE_KVM=1 a skip
//! fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;

use serde_json::Value;
use support::TestDir;
use support::needs::{built, kvm};
use tare_hv::{Kvm, KvmKind, Probe};

/// An image, if it is built and machines can run here.
fn image(name: &str) -> Option<PathBuf> {
    kvm().then(|| built(name)).flatten()
}

/// Runs an image to its end with status 0: its lines of figures.
fn measured(name: &str, cpus: &str, cmdline: &str) -> Option<Vec<Value>> {
    measured_in("auto", name, cpus, cmdline)
}

/// The same in a ring.
fn measured_in(ring: &str, name: &str, cpus: &str, cmdline: &str) -> Option<Vec<Value>> {
    let image = image(name)?;
    let place = TestDir::new();
    let mut all = vec!["run", image.to_str().unwrap(), "--net", "none"];
    all.extend(["--ring", ring, "--cpus", cpus, "--cmdline", cmdline]);
    let ended = place.run(&all);
    ended.expect(0, "\"done\":true");
    assert!(place.run_directories().is_empty(), "{ended:#?}");
    let lines = ended.out.lines().map(serde_json::from_str);
    Some(lines.collect::<Result<_, _>>().unwrap())
}

#[test]
fn halt_load_is_woken_in_the_rhythm_that_was_asked_for() {
    for (load, cpus) in [("every gap_us=2000", "2"), ("sleep gap_us=2000", "1")] {
        for ring in ["0", "3"] {
            let cmdline = format!("load={load} warm_ms=20 ms=100");
            let Some(lines) = measured_in(ring, "halt-load", cpus, &cmdline) else {
                return;
            };
            let wakes = lines.iter().find_map(|line| line["wakes"].as_u64());
            // 50 in the time; fewer on a busy host.
            let wakes = wakes.unwrap();
            assert!((3..=51).contains(&wakes), "{load}, ring {ring}: {lines:?}");
        }
    }
}

#[test]
fn ipi_halt_prints_a_sample_for_each_wake_up() {
    for ring in ["0", "3"] {
        let Some(lines) = measured_in(ring, "ipi-halt", "2", "samples=60 gap_us=50") else {
            return;
        };
        let count = |name: &str| {
            let lists = lines.iter().filter_map(|line| line[name].as_array());
            let numbers = lists.flatten().map(|n| n.as_u64().unwrap());
            numbers.filter(|cycles| *cycles > 100).count()
        };
        assert_eq!((count("wake"), count("send")), (60, 60), "{lines:?}");
        assert!(lines[0]["khz"].as_u64().unwrap() > 100_000, "{lines:?}");
        assert_eq!(lines[0]["ring"].to_string(), ring, "{lines:?}");
    }
}

#[test]
fn a_message_between_two_cores_costs_one_halt_and_one_interrupt_at_most() {
    for (cpus, by, most) in [
        ("2", "event", 1.0),
        ("2", "condvar", 1.0),
        ("1", "event", 0.0),
    ] {
        let Some(lines) = measured("events", cpus, &format!("rounds=100 by={by}")) else {
            return;
        };
        let counters = lines.iter().find(|line| line["messages"].is_u64()).unwrap();
        let of = |name: &str| counters[name].as_f64().unwrap() / 200.0;
        // Threads that meet while one of them still runs need less.
        assert!(
            of("halts") <= most && of("ipis") <= most,
            "{cpus} {by}: {counters}"
        );
        assert_eq!(of("timers"), 0.0, "{cpus} {by}: {counters}");
        let trips = lines.iter().filter_map(|line| line["round"].as_array());
        assert_eq!(trips.flatten().count(), 100);
    }
}

#[test]
fn a_spin_before_the_halt_saves_the_wakers_interrupts() {
    let counted = |cmdline: &str| {
        let lines = measured("events", "2", &format!("rounds=100 {cmdline}"))?;
        let counters = lines
            .iter()
            .find(|line| line["messages"].is_u64())
            .cloned()
            .unwrap();
        Some(move |name: &str| counters[name].as_u64().unwrap())
    };
    let Some(without) = counted("halt_spin_ns=0") else {
        return;
    };
    assert_eq!((without("spins"), without("spins_caught")), (0, 0));
    // Where the host keeps one core from running, the other spins in vain.
    let caught = (0..5).find_map(|_| {
        let with = counted("halt_spin_ns=1100000 halt_spin_budget=100")?;
        (with("spins_caught") > 0).then_some(with)
    });
    let with = caught.unwrap();
    // Whoever finds its work spinning was sent nothing.
    assert!(with("ipis_skipped") >= with("spins_caught"));
    assert!(with("ipis") + with("ipis_skipped") <= with("messages"));
}

/// Runs one check of the selftest in ring 0, which has x2APIC and KVM's offers as they
/// are: the words of what it prints.
fn checked(check: &str, cpus: &str) -> Option<Vec<String>> {
    let image = image("selftest")?;
    let place = TestDir::new();
    let cmdline = format!("only={check}");
    let mut all = vec!["run", image.to_str().unwrap(), "--net", "none"];
    all.extend(["--cpus", cpus, "--ring", "0", "--cmdline", &cmdline]);
    let ended = place.run(&all);
    ended.expect(0, "selftest done, 0 failed");
    let said = ended.out.lines().find(|line| line.starts_with("ok "));
    Some(said?.split_whitespace().map(str::to_owned).collect())
}

/// The word after `word`.
fn after<'a>(words: &'a [String], word: &str) -> &'a str {
    let at = words.iter().position(|w| w == word).unwrap();
    &words[at + 1]
}

#[test]
fn paravirtual_clock_and_end_of_interrupt_are_used_where_kvm_offers_them() {
    // The image fails the check if an offer is not taken.
    let Some(words) = checked("paravirt", "2") else {
        return;
    };
    let probe = Probe::run(&Kvm::open().unwrap()).unwrap();
    let features = probe.paravirtual_features();
    for (word, bit) in [("eoi", 6), ("clock", 3), ("stable", 24), ("send_ipi", 11)] {
        let offered = (features & (1 << bit) != 0).to_string();
        assert_eq!(after(&words, word), offered, "{words:?}");
    }
    // Where KVM executes ring 0 itself, it takes the flag back before each
    // instruction: no end is ever saved.
    if probe.kind == KvmKind::Hardware && features & (1 << 6) != 0 {
        assert_ne!(after(&words, "saved"), "0", "{words:?}");
    }
}

#[test]
fn a_broadcast_wakes_several_halted_cores_by_one_command() {
    let Some(words) = checked("wake-several", "4") else {
        return;
    };
    let woken: u32 = after(&words, "woken").parse().unwrap();
    // A core that was not asleep yet needs none.
    assert!(woken >= 2, "{words:?}");
    assert_eq!(after(&words, "commands"), "1", "{words:?}");
}

#[test]
fn each_kind_of_exit_has_a_price_or_says_that_it_is_not_there() {
    for (ring, kind) in [
        ("0", "control"),
        ("0", "mmio_user"),
        ("0", "timer_count"),
        ("3", "gate"),
        ("3", "self_ipi"),
    ] {
        let cmdline = format!("kind={kind} samples=2 target_us=200");
        let Some(lines) = measured_in(ring, "vmexit", "1", &cmdline) else {
            return;
        };
        let sampled = lines.iter().find(|line| line["kind"] == kind).unwrap();
        assert!(sampled["iterations"].as_u64() >= Some(1), "{sampled}");
        assert_eq!(
            sampled["cycles"].as_array().map(Vec::len),
            Some(2),
            "{sampled}"
        );
    }
    for (ring, kind) in [("0", "ipi"), ("0", "gate"), ("3", "cr3")] {
        let cmdline = format!("kind={kind} samples=1");
        let Some(lines) = measured_in(ring, "vmexit", "1", &cmdline) else {
            return;
        };
        assert!(
            lines.iter().any(|line| line["unavailable"].is_string()),
            "{lines:?}"
        );
    }
}

#[test]
fn a_transaction_on_one_core_needs_no_halt_and_no_interrupt() {
    for cpus in ["1", "2"] {
        let Some(lines) = measured("tcp-rr", cpus, "transactions=20") else {
            return;
        };
        let counters = lines.iter().find(|l| l["transactions"].is_u64()).unwrap();
        let times = lines.iter().filter_map(|line| line["rr"].as_array());
        assert_eq!(times.flatten().count(), 20);
        if cpus == "1" {
            assert_eq!(
                (&counters["halts"], &counters["ipis"]),
                (&0.into(), &0.into())
            );
        }
    }
}
