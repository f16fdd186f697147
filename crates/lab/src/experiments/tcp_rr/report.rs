//! What the transactions say.

use std::collections::BTreeMap;

use super::{ARMS, OF_KVM, RR};
use crate::experiments::guest_bench::not_measured;
use crate::experiments::ping_pong::{PingPong, Where};
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::svg::percentiles;
use crate::report::{ReportText, Section, table};

pub(super) fn report_text(experiment: &PingPong, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "One byte each way: TCP transactions on one CPU and on two".to_owned(),
        question: "A client and a server on one machine exchange single bytes over the loopback. \
                   In KVM Message Passing 2015, two vCPUs took three times as long as bare metal, 25 µs more, with \
                   1.99 halts and 9.58 MSR writes a transaction, 8 of them to the APIC's timer; on \
                   one vCPU there was nearly none of it."
            .to_owned(),
        glance: String::new(),
        answer: answer(figures),
        sections: sections(experiment, figures),
        method: method(experiment),
        limitations: not_measured(&experiment.data).collect(),
    }
}

fn answer(figures: &[Figure]) -> Vec<String> {
    let get = |name: &str| value(figures, name);
    let mut sentences = Vec::new();
    for (arm, what) in [
        ("libos", "In the library OS"),
        ("qemu", "In QEMU on the same KVM"),
        ("linux", "In a Linux guest of QEMU"),
        ("host", "On the host"),
    ] {
        let one = get(&format!("rr_us.1vcpu.{arm}"));
        let two = get(&format!("rr_us.2vcpu.{arm}"));
        if let (Some(one), Some(two)) = (one, two) {
            sentences.push(format!(
                "{what} a transaction takes {} µs at the median on one CPU and {} µs on two.",
                number(one),
                number(two)
            ));
        }
    }
    let of = |kind: &str| get(&format!("exits_per_rr.{kind}.2vcpu"));
    if let (Some(halts), Some(ipis), Some(timers)) = (of("halt"), of("ipi"), of("timer")) {
        sentences.push(format!(
            "On two vCPUs a transaction costs {} halts, {} interrupts to the other vCPU and {} \
             timer writes; {} more follow the timer's own interrupts.",
            number(halts),
            number(ipis),
            number(timers),
            of("timer_renewed").map_or("–".to_owned(), number)
        ));
    }
    sentences
}

fn sections(experiment: &PingPong, figures: &[Figure]) -> Vec<Section> {
    let names = experiment.names();
    let distributions = experiment.data.distributions(RR, &names);
    if distributions.is_empty() {
        return Vec::new();
    }
    let chart = Section {
        title: "Transactions by percentile".to_owned(),
        lead: "From one answer to the next, on a logarithmic scale; dots: median and 99th \
               percentile. Lower is better."
            .to_owned(),
        html: percentiles(&names, &distributions, "Transaction time by percentile"),
    };
    let mut sections = vec![chart, exits(experiment, figures)];
    sections.extend(by_kind(figures));
    sections
}

/// What the guest counts.
const OWN: [&str; 4] = ["halt", "ipi", "timer", "timer_renewed"];

/// What a transaction costs, as the guest and as KVM count it.
fn exits(experiment: &PingPong, figures: &[Figure]) -> Section {
    let guests = ARMS.iter().filter(|arm| match arm.place {
        Where::Tare { .. } | Where::Qemu { .. } => !experiment.data.of(RR, arm.name).is_empty(),
        Where::Linux { .. } | Where::Host { .. } => false,
    });
    let rows = guests.map(|arm| {
        let of = |base: &str| {
            let found = value(figures, &format!("{base}.{}", arm.suffix));
            found.map_or("–".to_owned(), number)
        };
        let own = OWN.map(|kind| of(&format!("exits_per_rr.{kind}")));
        let kvms = OF_KVM.iter().map(|(_, figure)| of(figure));
        let name = std::iter::once(arm.about.to_owned());
        name.chain(own).chain(kvms).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    Section {
        title: "What a transaction costs".to_owned(),
        lead: "Halts, interrupts sent and timer writes as the library OS counts them, those that \
               follow the timer's own interrupt apart; then KVM's \
               halts, injected interrupts, interrupt windows, exits and emulated \
               instructions, and what the monitor served, over the warm-up too, with a few printed \
               bytes. QEMU's machines have no such statistics here."
            .to_owned(),
        html: table(
            &[
                "",
                "halts",
                "IPIs",
                "timers",
                "timers again",
                "KVM: halts",
                "injected",
                "windows",
                "exits",
                "emulated",
                "ports",
                "MMIO",
            ],
            &rows,
        ),
    }
}

/// Exits of a transaction as trace points tell them: whose names are not the
/// counters' of the guest or of KVM's statistics.
fn by_kind(figures: &[Figure]) -> Option<Section> {
    let counted = |name: &str| {
        let own = OWN.contains(&name);
        own || OF_KVM
            .iter()
            .any(|(_, figure)| figure.ends_with(&format!(".{name}")))
    };
    let mut rows: BTreeMap<&str, [String; 2]> = BTreeMap::new();
    for figure in figures {
        let mut parts = figure.name.split('.');
        let (Some("exits_per_rr"), Some(kind), Some(cpus), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let column = usize::from(cpus == "2vcpu");
        if !counted(kind) {
            rows.entry(kind)
                .or_insert_with(|| ["–", "–"].map(str::to_owned))[column] = number(figure.value);
        }
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(kind, cells)| std::iter::once(kind.to_owned()).chain(cells).collect())
        .collect();
    (!rows.is_empty()).then(|| Section {
        title: "Exits of a transaction, by kind".to_owned(),
        lead: "From trace points, in a turn of its own that gives no times; the warm-up is \
               counted and divided by too. kvm_halt_seen are halts that KVM waited for; user_N \
               returns to the monitor with KVM_EXIT N."
            .to_owned(),
        html: table(&["exit", "one vCPU", "two vCPUs"], &rows),
    })
}

fn method(experiment: &PingPong) -> Vec<String> {
    vec![
        format!(
            "Image {}; {} turns of {} transactions for each arm, arms in rotated order, a new \
             machine for each turn, 20 transactions before the first that counts.",
            experiment.image, experiment.turns, experiment.exchanges
        ),
        "Both ends set TCP_NODELAY. In the guest the client has the first core and the server \
         the last; on the host the threads are pinned to one CPU or to two."
            .to_owned(),
        "Statistics are read while the guest sleeps before its first transaction and after its \
         last, before it prints."
            .to_owned(),
        "QEMU's arms have one turn each: its firmware takes seconds where KVM emulates.".to_owned(),
        "The Linux guest has Debian's cloud kernel and the program of the host's arm, threads \
         pinned alike. Where KVM emulates ring 0, QEMU translates it: its times are emulation's."
            .to_owned(),
    ]
}
