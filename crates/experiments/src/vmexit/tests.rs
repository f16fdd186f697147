//! The weighing against fakes that print what the image prints.

use tare_lab::kit::Spread;
use tare_machines::appliance::GuestSpec;
use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::{Run, figure};

/// 100 cycles for the loop, 2,100 for everything else; no hypercall.
fn prints(spec: &GuestSpec) -> Vec<Value> {
    if spec.engine == "qemu-kvm" || spec.ring == "3" {
        let mut lines = vec![json!({"khz": 2_000_000})];
        let kinds = spec.cmdline.split_once("kind=").unwrap().1;
        let kinds = kinds
            .split(' ')
            .next()
            .unwrap()
            .split(',')
            .filter(|kind| *kind != "hypercall");
        lines.extend(kinds.map(|k| json!({"kind": k, "iterations": 10, "cycles": [40]})));
        lines.push(json!({"done": true}));
        return lines;
    }
    let cycles = match spec.label.as_str() {
        "control" => 10_000,
        _ => 210_000,
    };
    let sampled = match spec.label.as_str() {
        "hypercall" => json!({"unavailable": "no such instruction"}),
        kind => json!({"kind": kind, "iterations": 100, "cycles": [cycles - 400, cycles, cycles]}),
    };
    vec![
        json!({"khz": 2_000_000}),
        json!({"begin": true}),
        sampled,
        json!({"total": 400}),
        json!({"done": true}),
    ]
}

/// The machine in QEMU comes after those of two rounds.
pub(crate) const QEMU: usize = 2 * KINDS.len() + 1;

pub(crate) fn run(fault: Fault) -> Run {
    let short = Vmexit {
        rounds: 2,
        ..Vmexit::new(Depth::Quick, None)
    };
    let fakes = Fakes::printing(prints, fault);
    Run::of("vmexit", Box::new(short), fakes)
}

#[test]
fn each_kind_has_a_price_and_what_is_unavailable_is_said() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    for (kind, _) in KINDS.iter().filter(|(kind, _)| *kind != "hypercall") {
        // Six batches of two machines are two samples.
        let figure = figure(&summary, &format!("exit_ns.{kind}"));
        assert_eq!((figure.n, figure.spread), (2, Spread::Range));
    }
    // QEMU measures the kinds that Tare could.
    assert_eq!(figure(&summary, "exit_ns.ipi_cluster.qemu").value, 2.0);
    let alone = figure(&summary, "exit_ns.gate.ring3");
    assert_eq!((alone.value, alone.n, alone.ends()), (2.0, 1, None));
    assert_eq!(figure(&summary, "exit_ns.control").value, 50.0);
    assert_eq!(figure(&summary, "exit_ns.cpuid").value, 1050.0);
    assert!(
        summary
            .figures
            .iter()
            .all(|f| !f.name.contains(".hypercall"))
    );
    let html = run.text("report.html");
    assert!(html.contains("Not measured: hypercall: no such instruction."));
    assert!(html.contains("costs 1000 (no interval) ns where the kernel serves it"));
    run.nothing_is_left();
}

#[test]
fn the_standard_form_boots_enough_machines_for_an_interval() {
    for depth in [Depth::Standard, Depth::Full] {
        assert!(Vmexit::new(depth, None).rounds >= 6, "{}", depth.name());
    }
}

#[test]
fn a_kind_that_ends_its_machine_is_unavailable_and_the_rest_goes_on() {
    let run = run(Fault::Ends(3));
    run.is_complete();
    figure(&run.summary(), "exit_ns.cr3");
    assert!(
        run.text("report.html")
            .contains("&lt;b&gt;the guest&lt;/b&gt;")
    );
}
