//! Many machines at once, and what `tare why` reports of one without BPF.

use serde_json::Value;

use super::support::TestDir;
use super::{RunningMachine, expect_covered, found, ready, ready_with};

/// Machines that tick; with TARE_SOAK=1 as many as issue reports had.
const SOME: usize = 6;
const MANY: usize = 30;
/// Ticks of each in a second.
const HZ: f64 = 150.0;
/// Part by which a rate may differ from KVM's own count, beside chance.
const RATE: f64 = 0.05;

/// The timer interrupts that were counted on a machine's vCPUs.
pub(super) fn ticks(machine: &Value) -> f64 {
    let interrupts = machine["account"]["interrupts"].as_array().unwrap().iter();
    let own = interrupts.filter(|it| it["injector"] == "own_vcpu");
    own.map(|it| it["count"].as_f64().unwrap()).sum()
}

/// KVM's own count of interrupts in the same window.
pub(super) fn injected(machine: &Value) -> Option<f64> {
    let threads = machine["account"]["threads"].as_array().unwrap().iter();
    let counts = threads.filter_map(|it| it["vcpu"]["kvm"]["irq_injections"].as_f64());
    counts.reduce(|sum, count| sum + count)
}

/// Three times the deviation of a count that was sampled, as a part of it.
pub(super) fn chance(machine: &Value, truth: f64) -> f64 {
    let share = machine["account"]["counted_share"].as_f64().unwrap();
    if share < 1.0 {
        3.0 / (truth * share).sqrt()
    } else {
        0.0
    }
}

#[test]
fn each_of_many_machines_has_its_own_rate() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let number = std::env::var_os("TARE_SOAK").map_or(SOME, |_| MANY);
    let place = TestDir::new();
    let words = format!("mode=tick hz={HZ}");
    let machines: Vec<_> = (0..number)
        .map(|_| RunningMachine::start(&place, &image, &words, &["--memory", "32M"]))
        .collect();
    let ended = place.run(&["why", "--seconds", "4", "--json"]);
    ended.expect(0, "\"schema\": 1");
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    let told = document["machines"].as_array().unwrap();
    println!("{}", document["cost"]);
    for machine in &machines {
        let told = told.iter().find(|it| it["pid"] == machine.pid()).unwrap();
        expect_covered(told);
        let (counted, truth) = (ticks(told), injected(told).unwrap());
        let share = told["account"]["counted_share"].as_f64().unwrap();
        let chance = chance(told, truth);
        println!("{counted} of {truth}, counted {share:.2} of the time");
        let differs = (counted / truth - 1.0).abs();
        // Both edges of the window cut an interval.
        assert!(
            differs <= RATE + chance + 2.0 / truth,
            "{counted} of {truth}: {told}"
        );
    }
}

#[test]
fn without_bpf_a_storm_is_told_as_unknown() {
    let Some((_alone, image)) = ready_with("setpriv") else {
        return;
    };
    let place = TestDir::new();
    let words = "mode=exit kind=cpuid";
    let machine = RunningMachine::start(&place, &image, words, &[]);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set", "-bpf,-perfmon,-sys_admin"]);
    command.args([env!("CARGO_BIN_EXE_tare"), "why", &machine.name]);
    command.args(["--seconds", "1.5", "--json"]);
    command.env("TARE_RUN_ROOT", place.run_root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = &document["machines"][0];
    assert_eq!(told["account"]["counted_share"], 0.0, "{told}");
    expect_covered(told);
    let unknown = found(told, "unknown").unwrap();
    assert!(unknown["share"].as_f64().unwrap() > 0.0, "{unknown}");
    assert!(found(told, "guest_spins").is_none(), "{told}");
}
