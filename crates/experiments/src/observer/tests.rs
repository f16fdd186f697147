//! The samples from records, without a machine.

use tare_machines::appliance::GuestSpec;
use tare_machines::appliance::fake::{Fakes, Fault};

use tare_lab::kit::Statistic;

use super::*;
use crate::testing::{Run, kept};

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
    observing.take("cpuid", 0, &json!({"machines": 1, "windows": windows}));
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
    observing.take("one", 0, &json!({"machines": 1, "windows": windows}));
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
    observing.take("cpuid", 0, &json!({"machines": 1, "windows": windows}));
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
    observing.take("cpuid", 0, &json!({"machines": 1, "windows": windows}));
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
    let windows = |load: &str| Window::of(load, 0).len();
    assert_eq!((windows("one"), windows("self_ipi")), (3, 4));
}

/// Weighs with machines of no KVM, in short windows.
fn on_fakes(mut experiment: Observing) -> Run {
    experiment.window = Duration::from_millis(5);
    let prints = |_: &GuestSpec| vec![json!({"storm": "x"}), json!({"done": true})];
    let fakes = Fakes::printing(prints, Fault::None);
    let run = Run::of("observer", Box::new(experiment), fakes);
    run.is_complete();
    run
}

#[test]
fn each_round_boots_the_machines_of_each_load_anew_in_rotated_order() {
    let experiment = Observing::new(Depth::Quick, None);
    let (boots, machines) = (experiment.boots, [1, 8, 30, 1, 1]);
    let run = on_fakes(experiment);
    assert_eq!(run.fakes.started, boots * machines.iter().sum::<usize>());
    let rounds = run.lines("round");
    let order = |round: usize| -> Vec<String> {
        let of = rounds.iter().filter(|line| line["round"] == round);
        of.map(|line| line["arm"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(order(0), LOADS.map(|load| load.name));
    assert_eq!(order(1)[..2], ["ticking", "many"]);
    assert_eq!(rounds.len(), boots * LOADS.len());
    let first = |line: &&Value| line["record"]["windows"][0]["window"].clone();
    let cpuid = rounds.iter().filter(|line| line["arm"] == "cpuid");
    assert_eq!(
        cpuid.map(|line| first(&line)).collect::<Vec<_>>(),
        ["alone", "without_burst"]
    );
    run.is_rebuilt_from_its_samples();
    run.nothing_is_left();
}

/// What changes along a boot is as often against a window as for it.
#[test]
fn each_window_comes_before_each_other_as_often_as_after_it() {
    for load in STORMS {
        let orders: Vec<Vec<Window>> = (0..8).map(|boot| Window::of(load, boot)).collect();
        let place = |order: &[Window], window| order.iter().position(|it| *it == window).unwrap();
        for one in WINDOWS {
            let mut places: Vec<usize> = orders.iter().map(|order| place(order, one)).collect();
            places.sort_unstable();
            assert_eq!(places, [0, 0, 1, 1, 2, 2, 3, 3], "{one:?}");
            for other in WINDOWS.into_iter().filter(|other| *other != one) {
                let before = orders
                    .iter()
                    .filter(|order| place(order, one) < place(order, other));
                assert_eq!(before.count(), 4, "{one:?} and {other:?}");
            }
        }
    }
}

/// In whatever order a boot's windows are, it is one sample.
#[test]
fn a_boot_is_one_pair_of_watched_and_unwatched() {
    let cost = json!({
        "window_ns": 1_000_000_000_u64, "counted_share": 0.1, "start_ns": 80_000_000,
        "cost": {"user_space_ns": 4_000_000, "bpf_ns": 9_000_000, "bpf_runs": 7},
    });
    let mut observing = Observing::new(Depth::Standard, None);
    let boots = 8;
    for boot in 0..boots {
        // Boots differ far more than watched and unwatched ones of each.
        let pace = 1_000.0 + 500.0 * boot as f64;
        let windows: Vec<Value> = Window::of("cpuid", boot)
            .into_iter()
            .map(|of| {
                let (share, watched) = match of {
                    Window::Alone => (0.99, &Value::Null),
                    Window::Same => (1.01, &Value::Null),
                    Window::Watched | Window::WithoutBurst => (0.97, &cost),
                };
                let mut window = window(pace * share, watched);
                window["window"] = json!(of.name());
                if of == Window::WithoutBurst {
                    window["watched"]["without_burst"] = json!(true);
                }
                window
            })
            .collect();
        observing.take("cpuid", boot, &json!({"machines": 1, "windows": windows}));
    }
    let figures = observing.figures();
    for (metric, value) in [(LOSS, 3.0), (CONTROL, (1.0 - 1.01 / 0.99) * 100.0)] {
        let figure = metric.find(&figures, "cpuid").unwrap();
        let (low, high) = figure.interval().unwrap();
        assert_eq!(
            (figure.n, figure.statistic),
            (boots, Statistic::PairedRatio)
        );
        assert!((figure.value - value).abs() < 1e-9, "{figure:?}");
        assert!(value - 1e-9 < high && low < value + 1e-9, "{figure:?}");
        assert!(high - low < 1e-9, "{figure:?}");
    }
    assert_eq!(COST.find(&figures, "cpuid").unwrap().n, boots);
}

#[test]
fn kept_rounds_of_one_boot_are_read_and_named_so() {
    for name in ["2026-11-23-observer", "2026-11-26-observer"] {
        let record = kept(name);
        let mut observing = Observing::new(Depth::Standard, None);
        observing.replan(&record.plan().unwrap()["plan"]);
        observing.replay(&record).unwrap();
        let figures = observing.figures();
        for load in STORMS {
            assert_eq!(LOSS.find(&figures, load).unwrap().n, 8, "{name}");
        }
        let report = observing.report(&figures);
        assert!(report.limitations[0].contains("booted once"), "{name}");
        assert!(!report.method.concat().contains("anew"), "{name}");
    }
    let of_boots = Observing::new(Depth::Quick, None).report(&[]);
    assert!(of_boots.limitations.is_empty());
    assert!(of_boots.method.concat().contains("anew"));
}

#[test]
fn machines_without_kvm_are_named_as_not_measured() {
    let mut experiment = Observing::new(Depth::Quick, None);
    experiment.boots = 1;
    let run = on_fakes(experiment);
    assert!(run.summary().figures.is_empty());
    assert!(
        run.text("report.html")
            .contains("Not measured: one: its machines have no KVM")
    );
    run.nothing_is_left();
}
