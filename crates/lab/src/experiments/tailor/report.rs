//! What the kernels say.

use super::figures::{Weighed, calls_of};
use super::plan::{Plan, back};
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::{ReportText, Row, Template, row, table};
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
    let text = Template::new(include_str!("report.md"), figures)
        .set("app", &plan.app)
        .set("requests", plan.requests)
        .set("dialogs", plan.dialogs);
    let kernels = ROWS
        .iter()
        .map(|(figure, about)| row([("figure", figure), ("about", about)]));
    let calls = figures.iter().filter_map(|figure| {
        let call = figure.name.strip_prefix("syscall_cycles.")?;
        Some(row([("call", call.strip_suffix(".debian")?)]))
    });
    let cuts = Cut::ALL.into_iter().map(|cut| {
        row([
            ("cut", cut.name()),
            ("about", cut.about()),
            ("back", &back(cut)),
            ("gives_up", cut.gives_up().unwrap_or("nothing")),
        ])
    });
    let sections = [
        text.tabled("kernels", kernels),
        text.tabled("calls", calls),
        text.tabled("cuts", cuts),
        text.section("single", cuts_of_calls(figures)),
        text.tabled("rates", rates(weighed)),
    ];
    let mut report = text.report();
    report.sections = sections.into_iter().flatten().collect();
    report
}

/// What each cut takes off single calls, alone and taken back; a column for each call.
fn cuts_of_calls(figures: &[Figure]) -> String {
    let calls = calls_of(figures);
    let rows = Cut::ALL.into_iter().flat_map(|cut| {
        let rows = [("alone", cut.name().to_owned()), ("taken back", back(cut))];
        rows.map(|(how, name)| {
            let figure = |call: &String| value(figures, &format!("call_gain_pct.{name}.{call}"));
            let cells = calls
                .iter()
                .map(|call| figure(call).map_or("–".to_owned(), number));
            let row = std::iter::once(format!("{cut}, {how}")).chain(cells);
            let is_measured = calls.iter().any(|call| figure(call).is_some());
            is_measured.then(|| row.collect::<Vec<_>>())
        })
    });
    let rows: Vec<Vec<String>> = rows.flatten().collect();
    let head: Vec<&str> = std::iter::once("")
        .chain(calls.iter().map(String::as_str))
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        table(&head, &rows)
    }
}

fn rates(weighed: &Weighed) -> impl Iterator<Item = Row> {
    weighed.steps.iter().flat_map(|(kernel, steps)| {
        steps.iter().map(move |step| {
            row([
                ("kernel", kernel),
                ("rate", &number(step.rate)),
                ("answered", &number(step.answered)),
                ("p50", &number(step.p50_us)),
                ("p99", &number(step.p99_us)),
                ("carried", if step.carried { "yes" } else { "no" }),
            ])
        })
    })
}
