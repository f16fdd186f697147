//! The report: cost of each kind of exit.

use tare_control::stats::Kvm;

use super::{CONTROL, KINDS, Vmexit};
use crate::figure::Figure;
use crate::number::number;
use crate::report::svg::{Bar, bars};
use crate::report::{ReportText, Section, table};

pub(super) fn report_text(experiment: &Vmexit, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "What each kind of exit costs here".to_owned(),
        question: "Some instructions of a guest are not executed by the CPU: the guest is left, \
                   the kernel or the monitor does what the instruction asks for, and the guest \
                   goes on. Each kind has its cost; an account of exits multiplies by it."
            .to_owned(),
        glance: String::new(),
        answer: answer(experiment, figures),
        sections: sections(experiment, figures),
        method: method(experiment),
        limitations: limitations(experiment),
    }
}

fn of<'a>(figures: &'a [Figure], kind: &str) -> Option<&'a Figure> {
    let name = format!("exit_ns.{kind}");
    figures.iter().find(|f| f.name == name)
}

/// Median beyond the loop's own, ns.
fn net(figures: &[Figure], kind: &str) -> Option<f64> {
    Some(of(figures, kind)?.value - of(figures, CONTROL)?.value)
}

fn answer(experiment: &Vmexit, figures: &[Figure]) -> Vec<String> {
    let mut sentences = Vec::new();
    let pairs = [
        ("pio_in_kernel", "pio_in_user", "port read"),
        ("mmio_kernel", "mmio_user", "memory-mapped read"),
    ];
    for (kernel, user, what) in pairs {
        if let (Some(kernel), Some(user)) = (net(figures, kernel), net(figures, user)) {
            sentences.push(format!(
                "A {what} costs {} ns where the kernel serves it and {} ns where the monitor does.",
                number(kernel.round()),
                number(user.round())
            ));
        }
    }
    if let (Some(each), Some(one)) = (net(figures, "ipi_each"), net(figures, "ipi_cluster")) {
        sentences.push(format!(
            "To wake three CPUs takes {} ns by a command for each and {} ns by one for all.",
            number(each.round()),
            number(one.round())
        ));
    }
    let nets = KINDS.iter().filter(|(kind, _)| *kind != CONTROL);
    let nets = nets.filter_map(|(kind, what)| Some((net(figures, kind)?, *what)));
    if let Some((ns, what)) = nets.max_by(|a, b| a.0.total_cmp(&b.0)) {
        sentences.push(format!(
            "The dearest is: {what}, {} ns.",
            number(ns.round())
        ));
    }
    if experiment.data.kvm == Kvm::Emulated {
        sentences.push(
            "This KVM executes every instruction of ring 0 itself: those around an exit cost as \
             much as it does (the table says how many they are), and a write to an MSR is not an exit \
             but one more instruction."
                .to_owned(),
        );
    }
    sentences
}

fn sections(experiment: &Vmexit, figures: &[Figure]) -> Vec<Section> {
    let shown: Vec<Bar> = KINDS
        .iter()
        .filter_map(|(kind, _)| {
            let figure = of(figures, kind)?.clone();
            Some(Bar {
                label: (*kind).to_owned(),
                series: if *kind == CONTROL { 2 } else { 1 },
                figure,
            })
        })
        .collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let chart = Section {
        title: "Price by kind".to_owned(),
        lead: "Median time of one iteration, the loop included; the line across the end is its \
               interval. control is the loop by itself. Lower is better."
            .to_owned(),
        html: bars(&shown, "ns", "Price of each kind of exit in ns"),
    };
    vec![chart, costs(experiment, figures)]
}

fn costs(experiment: &Vmexit, figures: &[Figure]) -> Section {
    let dash = || "–".to_owned();
    let rows: Vec<Vec<String>> = KINDS
        .iter()
        .filter_map(|(kind, what)| {
            let iterations = experiment.iterations.get(kind).filter(|n| **n > 0.0);
            let each = |name: &str| {
                let count = experiment.data.counter(kind, name)?;
                Some(number(count / iterations?))
            };
            let other = |arm: &str| {
                let figure = of(figures, &format!("{kind}.{arm}"));
                figure.map_or_else(dash, |figure| number(figure.value.round()))
            };
            let gross = of(figures, kind);
            let in_ring_3 = other("ring3");
            // A kind that neither ring has is among the limitations.
            (gross.is_some() || in_ring_3 != dash()).then_some(())?;
            Some(vec![
                (*what).to_owned(),
                gross.map_or_else(dash, |gross| number(gross.value.round())),
                other("qemu"),
                in_ring_3,
                net(figures, kind).map_or_else(dash, |ns| number(ns.round())),
                each("exits").unwrap_or_else(dash),
                each("insn_emulation").unwrap_or_else(dash),
            ])
        })
        .collect();
    Section {
        title: "What an iteration is".to_owned(),
        lead:
            "Median ns; the same in QEMU on this KVM, and with the image in ring 3; without the loop; returns to the monitor; instructions that KVM emulated. \
               The last two include what the guest printed and the wait snapshots, over all \
               iterations."
                .to_owned(),
        html: table(
            &["instruction", "ns", "in QEMU", "in ring 3", "net ns", "to the monitor", "emulated"],
            &rows,
        ),
    }
}

fn method(experiment: &Vmexit) -> Vec<String> {
    vec![
        format!(
            "Image {}, 2 vCPUs (4 to wake three at once), a machine for each kind, in {} rounds of rotated order: the loop's \
             iterations double until one batch takes {} ms, then {} batches of that many are the \
             samples.",
            experiment.image,
            experiment.rounds,
            number(experiment.target.as_secs_f64() * 1e3),
            experiment.samples
        ),
        "self_ipi is sent with interrupts on and includes the handler; eoi, timer and deadline \
         are written with interrupts off; ipi counts the sender's time, the second CPU is halted \
         or on its way there."
            .to_owned(),
        "Registers are chosen so that nothing happens: a mask that stays, a scratch register, a \
         deadline that does not come, an end without an interrupt."
            .to_owned(),
    ]
}

fn limitations(experiment: &Vmexit) -> Vec<String> {
    let missing = experiment.data.missing.iter();
    // The first line of what a machine said is enough.
    let first = |why: &str| why.split(" | ").next().unwrap_or(why).to_owned();
    let mut sentences: Vec<String> = missing
        .map(|why| format!("Unavailable here: {}.", first(why)))
        .collect();
    if sentences
        .iter()
        .any(|s| s.contains(": hypercall: ") && s.contains("page fault writing"))
    {
        sentences.push(
            "KVM rewrites a hypercall in the guest's text to the form that it takes; the image's \
             text cannot be written."
                .to_owned(),
        );
    }
    sentences
}
