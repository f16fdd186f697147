//! Many machines at once, and what `tare why` reports of one without BPF.

use std::collections::BTreeSet;

use serde_json::Value;

use super::support::TestDir;
use super::{RunningMachine, expect_covered, found, ready, ready_with};

/// Machines that tick; with TARE_SOAK=1 as many as issue reports had.
const SOME: usize = 6;
const MANY: usize = 30;
/// Machines that halt beside one that burns; with TARE_SOAK=1 as many as an issue report had.
const QUIET: usize = 11;
const CROWD: usize = 301;
/// Ticks of each in a second.
const HZ: f64 = 150.0;
/// Part by which a rate may differ from KVM's own count, beside chance.
const RATE: f64 = 0.05;

/// The timer interrupts of a machine's vCPUs.
fn timers(machine: &Value) -> impl Iterator<Item = &Value> {
    let interrupts = machine["account"]["interrupts"].as_array().unwrap().iter();
    interrupts.filter(|it| it["injector"] == "own_vcpu")
}

/// How many were counted.
pub(super) fn ticks(machine: &Value) -> f64 {
    timers(machine)
        .map(|it| it["count"].as_f64().unwrap())
        .sum()
}

/// By how much that count may be off as `tare why` says: bursts in which a machine had a CPU and
/// others in which it waited for one differ by more than chance. Without a limit where it is not known.
fn margin(machine: &Value) -> f64 {
    timers(machine)
        .map(|it| it["margin"].as_f64().unwrap_or(f64::INFINITY))
        .sum()
}

/// KVM's own count of interrupts in the same window.
pub(super) fn injected(machine: &Value) -> Option<f64> {
    let threads = machine["account"]["threads"].as_array().unwrap().iter();
    let counts = threads.filter_map(|it| it["vcpu"]["kvm"]["irq_injections"].as_f64());
    counts.reduce(|sum, count| sum + count)
}

/// Share of the time in which events were counted.
fn counted_share(machine: &Value) -> f64 {
    machine["account"]["counted_share"].as_f64().unwrap()
}

/// Three times the deviation of a count that was sampled, as a part of it: each of `truth`
/// events was counted or not.
pub(super) fn chance(machine: &Value, truth: f64) -> f64 {
    let share = counted_share(machine);
    3.0 * ((1.0 - share).max(0.0) / (truth * share)).sqrt()
}

/// By how much, as a part of it, a count may be off by chance. Both edges of the window cut an
/// interval.
pub(super) fn chance_and_edges(machine: &Value, truth: f64) -> f64 {
    RATE + chance(machine, truth) + 2.0 / truth
}

/// The same, or by as much as `tare why` says.
pub(super) fn most_off(machine: &Value, truth: f64) -> f64 {
    chance_and_edges(machine, truth).max(margin(machine) / truth)
}

#[test]
fn each_of_many_machines_has_its_own_rate() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let number = std::env::var_os("TARE_SOAK").map_or(SOME, |_| MANY);
    let place = TestDir::new();
    let cmdline = format!("mode=tick hz={HZ}");
    let machines: Vec<_> = (0..number)
        .map(|_| RunningMachine::start(&place, &image, &cmdline, &["--memory", "32M"]))
        .collect();
    let ended = place.run(&["why", "--seconds", "4", "--json"]);
    ended.expect(0, "\"schema\": 1");
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    let told = document["machines"].as_array().unwrap();
    println!("{}", document["cost"]);
    let of = |machine: &RunningMachine<'_>| {
        let found = told.iter().find(|it| it["pid"] == machine.pid());
        found.unwrap()
    };
    let (mut all, mut all_truth, mut all_margins) = (0.0, 0.0, 0.0);
    for told in machines.iter().map(of) {
        expect_covered(told);
        let (counted, truth) = (ticks(told), injected(told).unwrap());
        println!("{counted} of {truth}");
        (all, all_truth) = (all + counted, all_truth + truth);
        all_margins += margin(told);
        let most = most_off(told, truth);
        assert!(
            (counted / truth - 1.0).abs() <= most,
            "{counted} of {truth}, within {most}: {told}"
        );
    }
    // Chance differs from machine to machine; a rule that is wrong does not. How busy the host
    // is while events are counted is the same for all of them.
    let share = counted_share(of(&machines[0]));
    let most = (2.0 * RATE + chance(of(&machines[0]), all_truth)).max(all_margins / all_truth);
    let ratio = all / all_truth;
    println!("all: {ratio:.3}, within {most:.3}, counted {share:.2} of the time");
    assert!((ratio - 1.0).abs() <= most, "{all} of {all_truth}");
}

/// Processes of this place's machines.
fn processes(place: &TestDir) -> BTreeSet<u64> {
    let listed: Value = serde_json::from_str(&place.run(&["ps", "--json"]).out).unwrap();
    let rows = listed.as_array().unwrap().iter();
    rows.map(|row| row["pid"].as_u64().unwrap()).collect()
}

/// The one that burns starts last: by process it would come last. Other machines may run on this
/// host.
#[test]
fn the_machine_that_burns_comes_first_and_those_that_halt_are_one_line() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let number = std::env::var_os("TARE_SOAK").map_or(QUIET, |_| CROWD);
    let place = TestDir::new();
    let start = |cmdline| RunningMachine::start(&place, &image, cmdline, &["--memory", "16M"]);
    let quiet: Vec<_> = (0..number).map(|_| start("mode=quiet")).collect();
    let halting = processes(&place);
    assert_eq!(halting.len(), quiet.len());
    let burner = start("mode=spin");
    let pid = u64::from(burner.pid());

    let ended = place.run(&["why", "--seconds", "4", "--json"]);
    ended.expect(0, "\"schema\": 1");
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    println!("{number} and one: {}", document["cost"]);
    let machines = document["machines"].as_array().unwrap();
    let pids: Vec<_> = machines
        .iter()
        .map(|it| it["pid"].as_u64().unwrap())
        .collect();
    assert!(halting.iter().all(|halts| pids.contains(halts)), "{pids:?}");
    let mut ours = pids.iter().filter(|it| **it == pid || halting.contains(it));
    assert_eq!(ours.next(), Some(&pid), "{pids:?}");
    let told = machines.iter().find(|it| it["pid"] == pid).unwrap();
    expect_covered(told);
    println!("watching {}", told["observer_share"]);

    let ended = place.run(&["why", "--seconds", "2"]);
    ended.expect(0, " machines without a finding: ");
    let titles = ended.out.lines().filter(|line| line.contains(", process "));
    let titled = |pid: &u64| {
        titles
            .clone()
            .any(|it| it.contains(&format!(", process {pid},")))
    };
    assert!(titled(&pid), "{}", ended.out);
    assert!(!halting.iter().any(titled), "{}", ended.out);

    let ended = place.run(&["why", "--seconds", "2", "-n", "1", "--json"]);
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    let first = &document["machines"].as_array().unwrap()[..];
    assert!(first.len() == 1 && !halting.contains(&first[0]["pid"].as_u64().unwrap()));
}

#[test]
fn without_bpf_a_storm_is_told_as_unknown() {
    let Some((_alone, image)) = ready_with("setpriv") else {
        return;
    };
    let place = TestDir::new();
    let cmdline = "mode=exit kind=cpuid";
    let machine = RunningMachine::start(&place, &image, cmdline, &[]);
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
