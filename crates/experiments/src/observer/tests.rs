//! The samples from records, without a machine.

use tare_machines::appliance::GuestSpec;
use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::Run;

fn window(instructions: f64, watched: &Value) -> Value {
    json!({
        "kvm": "emulated", "seconds": 1.0, "cpu_ns": 1_000_000_000_u64,
        "instructions": instructions, "activity": 5.0, "watched": watched,
    })
}

#[test]
fn a_guest_s_loss_is_against_the_windows_around_it() {
    let mut observing = Observing::new(Depth::Quick, None);
    let cost = json!({
        "window_ns": 1_000_000_000_u64, "counted_share": 0.1, "start_ns": 80_000_000,
        "cost": {"user_space_ns": 4_000_000, "bpf_ns": 9_000_000, "bpf_runs": 7},
    });
    let windows = [
        window(1_000.0, &Value::Null),
        window(990.0, &Value::Null),
        window(970.0, &cost),
        window(1_010.0, &Value::Null),
    ];
    observing.take("cpuid", &json!({"machines": 1, "windows": windows}));
    let figures = observing.figures();
    let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
    assert!((of("watch_cost_pct.cpuid").value - 1.3).abs() < 1e-9);
    assert!((of("watch_start_ms.cpuid").value - 80.0).abs() < 1e-9);
    assert!((of("guest_loss_pct.cpuid").value - 3.0).abs() < 1e-9);
    assert!((of("control_loss_pct.cpuid").value - 1.0).abs() < 1e-9);
    assert!(
        figures
            .iter()
            .all(|figure| figure.name != "burst_cost_pct.cpuid")
    );
    let losses = &observing.report(&figures).sections[0];
    assert!(losses.html.contains("class=\"band\"") && losses.html.contains(">3<"));
    // An idle guest executes nothing that could be lost.
    observing.take("one", &json!({"machines": 1, "windows": windows}));
    let figures = observing.figures();
    assert!(
        figures
            .iter()
            .any(|figure| figure.name == "watch_cost_pct.one")
    );
    assert!(
        figures
            .iter()
            .all(|figure| figure.name != "guest_loss_pct.one")
    );
}

/// A kernel that does not count the time of BPF programs.
#[test]
fn half_of_the_observers_cost_is_no_cost() {
    let mut observing = Observing::new(Depth::Quick, None);
    let cost = json!({
        "window_ns": 1_000_000_000_u64, "counted_share": 0.1, "start_ns": 80_000_000,
        "cost": {"user_space_ns": 4_000_000, "bpf_ns": null, "bpf_runs": 7},
    });
    let windows = [window(1_000.0, &Value::Null), window(970.0, &cost)];
    observing.take("cpuid", &json!({"machines": 1, "windows": windows}));
    let figures = observing.figures();
    let has = |name: &str| figures.iter().any(|figure| figure.name == name);
    assert!(!has("watch_cost_pct.cpuid") && has("watch_start_ms.cpuid"));
}

#[test]
fn the_first_burst_of_a_storm_costs_what_a_window_without_it_saves() {
    let watched = |bpf_ns: u64, counted: f64, without_burst: bool| {
        json!({
            "window_ns": 1_000_000_000_u64, "counted_share": counted, "start_ns": 80_000_000,
            "cost": {"user_space_ns": 4_000_000, "bpf_ns": bpf_ns, "bpf_runs": 7},
            "without_burst": without_burst,
        })
    };
    let mut observing = Observing::new(Depth::Quick, None);
    let windows = [
        window(1_000.0, &Value::Null),
        window(990.0, &Value::Null),
        window(970.0, &watched(9_000_000, 0.1, false)),
        window(1_010.0, &Value::Null),
        window(900.0, &watched(7_500_000, 0.04, true)),
    ];
    observing.take("cpuid", &json!({"machines": 1, "windows": windows}));
    let figures = observing.figures();
    let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
    for (name, value) in [
        ("watch_cost_pct.cpuid", 1.3),
        ("unburst_cost_pct.cpuid", 1.15),
        ("burst_cost_pct.cpuid", 0.15),
        ("counted_pct.cpuid", 10.0),
        ("unburst_counted_pct.cpuid", 4.0),
        ("guest_loss_pct.cpuid", 3.0),
    ] {
        let figure = of(name);
        assert!((figure.value - value).abs() < 1e-9, "{figure:?}");
    }
    // Only storms have one.
    let windows = |load: &str| Window::of(load).count();
    assert_eq!((windows("one"), windows("self_ipi")), (4, 5));
}

#[test]
fn machines_without_kvm_are_named_as_not_measured() {
    let mut experiment = Observing::new(Depth::Quick, None);
    experiment.rounds = 1;
    experiment.window = Duration::from_millis(5);
    let prints = |_: &GuestSpec| vec![json!({"storm": "x"}), json!({"done": true})];
    let fakes = Fakes::printing(prints, Fault::None);
    let run = Run::of("observer", Box::new(experiment), fakes);
    run.is_complete();
    assert!(run.summary().figures.is_empty());
    assert!(
        run.text("report.html")
            .contains("Not measured: one: its machines have no KVM")
    );
    run.nothing_is_left();
}
