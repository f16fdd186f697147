//! What the kernels say.

use super::figures::{Weighed, calls_of};
use super::plan::{DEBIAN, Plan, TAILORED, TRUSTING, UNHARDENED, back};
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::{ReportText, Section, table};
use tare_tailor::cut::Cut;

/// Figures of the first table, with their rows' names.
const ROWS: &[(&str, &str)] = &[
    ("options", "options that are on"),
    ("options_settable", "of them a person can set"),
    ("image_bytes", "bytes of the compressed image"),
    ("boot_insns", "instructions to the first answer"),
    ("boot_ms", "ms to the first answer, translated"),
    ("guest_rss_kib", "KiB of guest memory touched"),
    ("peak_insns", "instructions of a request, peak (median)"),
    ("peak_insns_fastest", "the same, mean of the 30 fastest"),
    ("peak_kernel_insns", "of these in the kernel (median)"),
    (
        "peak_rep_iterations",
        "iterations of REP, which are not among them",
    ),
    (
        "browsing_insns",
        "instructions of a request, browsing (median)",
    ),
    ("rps_max", "requests a second carried, translated"),
    ("response_us", "us to answer at the lowest rate, translated"),
    (
        "answers_differ",
        "fuzzed answers that differ from Debian's kernel",
    ),
];

pub(super) fn report_text(plan: &Plan, weighed: &Weighed, figures: &[Figure]) -> ReportText {
    ReportText {
        title: format!("A kernel cut to {}", plan.app),
        question: "A general kernel pays for what an application never uses. In Kernel Tailoring, cuts in \
                   the configuration took 11 % and cuts in the source 15.8 % of a request's \
                   cycles. What do they take here, does the application still answer the same, \
                   and what is each cut worth?"
            .to_owned(),
        glance: String::new(),
        answer: answer(plan, figures),
        sections: sections(weighed, figures),
        method: method(plan),
        limitations: Vec::new(),
    }
}

fn answer(plan: &Plan, figures: &[Figure]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (kernel, what) in [
        (TAILORED, "The tailored kernel, which gives up no safety,"),
        (
            TRUSTING,
            "With all cuts that trust the application the kernel",
        ),
    ] {
        let of = |figure: &str| value(figures, &format!("{figure}.{kernel}"));
        if let (Some(request), Some(boot)) = (of("request_pct"), of("boot_pct")) {
            sentences.push(format!(
                "{what} answers a request of {} with {} % of the instructions that Debian's \
                 takes, and boots with {} % of them.",
                plan.app,
                number(request),
                number(boot)
            ));
        }
    }
    let equal = value(figures, &format!("request_of_unhardened_pct.{TRUSTING}"));
    sentences.extend(equal.map(|share| {
        format!(
            "Most of the trust can be given by boot parameters alone: against Debian's kernel \
             booted with its hardening off, the trusting kernel takes {} % of a request's \
             instructions, and this is what its build gains.",
            number(share)
        )
    }));
    sentences
}

fn sections(weighed: &Weighed, figures: &[Figure]) -> Vec<Section> {
    vec![
        kernels(figures),
        calls(figures),
        cuts(figures),
        cuts_of_calls(figures),
        rates(weighed),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn cell(figures: &[Figure], name: &str) -> String {
    value(figures, name).map_or("–".to_owned(), number)
}

fn section(title: &str, lead: &str, head: &[&str], rows: &[Vec<String>]) -> Option<Section> {
    (!rows.is_empty()).then(|| Section {
        title: title.to_owned(),
        lead: lead.to_owned(),
        html: table(head, rows),
    })
}

const KERNELS: [&str; 4] = [DEBIAN, UNHARDENED, TAILORED, TRUSTING];

fn kernels(figures: &[Figure]) -> Option<Section> {
    let rows = ROWS.iter().map(|(figure, about)| {
        let cells = KERNELS.map(|kernel| cell(figures, &format!("{figure}.{kernel}")));
        std::iter::once((*about).to_owned()).chain(cells).collect()
    });
    section(
        "The kernels",
        "Instructions are exact; times are the translator's.",
        &["", DEBIAN, UNHARDENED, TAILORED, TRUSTING],
        &rows.collect::<Vec<_>>(),
    )
}

fn calls(figures: &[Figure]) -> Option<Section> {
    let names = figures.iter().filter_map(|figure| {
        let call = figure.name.strip_prefix("syscall_cycles.")?;
        call.strip_suffix(".debian")
    });
    let rows = names.map(|call| {
        let cells = KERNELS.iter().flat_map(|kernel| {
            let figure = format!("syscall_cycles.{call}.{kernel}");
            let median = format!("{figure}.p50");
            [cell(figures, &figure), cell(figures, &median)]
        });
        std::iter::once(call.to_owned()).chain(cells).collect()
    });
    section(
        "Single system calls",
        "Instructions of a call from the program's side: the mean of the 30 fastest, then the \
         median.",
        &[
            "", DEBIAN, "median", UNHARDENED, "median", TAILORED, "median", TRUSTING, "median",
        ],
        &rows.collect::<Vec<_>>(),
    )
}

fn cuts(figures: &[Figure]) -> Option<Section> {
    let has = |name: String| value(figures, &name).is_some();
    let measured = Cut::ALL
        .into_iter()
        .filter(|cut| has(format!("gain_pct.{cut}")) || has(format!("gain_pct.{}", back(*cut))));
    let rows = measured.map(|cut| {
        vec![
            format!("{cut}: {}", cut.about()),
            cell(figures, &format!("gain_pct.{cut}")),
            cell(figures, &format!("gain_pct.{}", back(cut))),
            cut.gives_up().unwrap_or("nothing").to_owned(),
        ]
    });
    section(
        "What each cut takes off a request",
        "Per cent of a request's instructions at the peak (30 fastest): taken alone, on a kernel \
         with no cut; and what comes back when it is taken from the kernel with all. A dash: the \
         kernel stays the same, since something else asks for what the cut would take, or an \
         interruption came first.",
        &["", "alone", "taken back", "safety that it gives up"],
        &rows.collect::<Vec<_>>(),
    )
}

fn cuts_of_calls(figures: &[Figure]) -> Option<Section> {
    let calls = calls_of(figures);
    let rows = Cut::ALL.into_iter().flat_map(|cut| {
        let rows = [("alone", cut.name().to_owned()), ("taken back", back(cut))];
        rows.map(|(how, name)| {
            let figure = |call: &String| format!("call_gain_pct.{name}.{call}");
            let cells = calls.iter().map(|call| cell(figures, &figure(call)));
            let is_measured = calls
                .iter()
                .any(|call| value(figures, &figure(call)).is_some());
            let row = std::iter::once(format!("{cut}, {how}")).chain(cells);
            is_measured.then(|| row.collect::<Vec<_>>())
        })
    });
    let head: Vec<&str> = std::iter::once("")
        .chain(calls.iter().map(String::as_str))
        .collect();
    section(
        "What each cut takes off single system calls",
        "Per cent of a call's instructions, 30 fastest, by the same comparison. Single calls repeat \
         within 0.1 % on one kernel, where a request's count varies by a per cent and more.",
        &head,
        &rows.flatten().collect::<Vec<_>>(),
    )
}

fn rates(weighed: &Weighed) -> Option<Section> {
    let rows = weighed.steps.iter().flat_map(|(kernel, steps)| {
        steps.iter().map(move |step| {
            vec![
                format!("{kernel}, {} a second", number(step.rate)),
                number(step.answered),
                number(step.p50_us),
                number(step.p99_us),
                if step.carried { "yes" } else { "no" }.to_owned(),
            ]
        })
    });
    section(
        "Rising rates",
        "Requests that are due at a steady rate, whatever the server does; response times in us \
         count from when a request was due. All of it is the translator's time.",
        &["", "answered a second", "median", "p99", "carried"],
        &rows.collect::<Vec<_>>(),
    )
}

fn method(plan: &Plan) -> Vec<String> {
    vec![
        "QEMU's translator with one vCPU; a plugin counts every instruction that the guest \
         executes, apart for the kernel's half of the addresses. A request's count also has what \
         it leaves to be done within 15 ms."
            .to_owned(),
        "A string instruction with REP (zeroing, copying) counts once, as on a processor; its \
         iterations are figures of their own (rep_iterations). Runs without these \
         figures counted each iteration."
            .to_owned(),
        format!(
            "{} requests at the peak (one connection), {} visits when browsing (a connection \
             each), one after the other, on every kernel; {} connections with drawn requests, \
             whose answers are compared without their dates.",
            plan.requests, plan.requests, plan.dialogs
        ),
        "options.microvm is the kernel's own configuration of a general guest (defconfig and \
         kvm_guest.config); options.floor is on in every kernel for this processor, whatever \
         one asks (allnoconfig with 64BIT and EXPERT). Neither is built."
            .to_owned(),
        "System calls are timed in the guest on a clock of one nanosecond for each instruction \
         (-icount shift=0,sleep=off), less the cost of reading the clock. This clock counts each \
         iteration of REP; the processor hides ERMS, so that it is one for 8 bytes."
            .to_owned(),
    ]
}
