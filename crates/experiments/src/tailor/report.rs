//! What the kernels say.

use tare_lab::kit::{Figure, ReportText, Row, Template, number, row, table, value};
use tare_tailor::counter::ITERATIONS_INSIDE;
use tare_tailor::cut::Cut;

use super::figures::{Weighed, calls_of};
use super::plan::{CHANGES, Change, FIRECRACKER, Plan, TAILORED_LTO, back};

/// Figures of the first table, with their rows' names.
const ROWS: &[(&str, &str)] = &[
    ("options_settable", "options on that a person can set"),
    ("options", "all that are on (see Method)"),
    ("image_bytes", "bytes of the compressed image"),
    ("code_kib", "KiB of code built in, as it says itself"),
    ("calls_answered", "system calls answered"),
    ("cves", "CVE records of a file that is compiled"),
    (
        "kernel_boot_insns",
        "instructions to the first process, root empty",
    ),
    (
        "boot_insns",
        "instructions to the first answer, root unpacked",
    ),
    ("boot_ms", "ms to the first answer, translated"),
    ("guest_rss_kib", "KiB of guest memory touched"),
    ("peak_insns", "instructions of a request, peak (median)"),
    ("peak_insns_fastest", "the same, mean of the fastest tenth"),
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
    let text = Template::new(include_str!("report.md"), super::METRICS, figures)
        .set("app", &plan.app)
        .set("boots", plan.boots)
        .set("requests", plan.requests)
        .set("dialogs", plan.dialogs)
        .only_if("no_firecracker", !has(figures, FIRECRACKER))
        .only_if("no_cves", value(figures, "cve_records").is_none())
        .only_if("no_lto", !has(figures, TAILORED_LTO))
        .maybe(
            "iterations_inside",
            weighed.iterations_inside.then_some(ITERATIONS_INSIDE),
        );
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
        text.tabled("changes", changes(figures)),
        text.tabled("calls", calls),
        text.tabled("cuts", cuts),
        text.section("single", cuts_of_calls(figures)),
        text.tabled("rates", rates(weighed)),
    ];
    text.report_with([], sections, &[])
}

/// Whether a kernel was measured.
fn has(figures: &[Figure], kernel: &str) -> bool {
    let of = |figure: &str| value(figures, &format!("{figure}.{kernel}"));
    of("image_bytes").or(of("peak_insns")).is_some()
}

/// What each change between kernels gives, per cent; of those that were measured.
fn changes(figures: &[Figure]) -> impl Iterator<Item = Row> {
    CHANGES.iter().filter_map(|change| {
        let of = |figure: &str| changed(figures, figure, change);
        let cells = [
            ("request", of("peak_insns")),
            ("fastest", of("peak_insns_fastest")),
            ("iterations", of("peak_rep_iterations")),
            ("boot", of("kernel_boot_insns")),
        ];
        let is_measured = cells.iter().any(|(_, cell)| cell.is_some());
        is_measured.then(|| {
            let about = ("change", Some(change.about.to_owned()));
            std::iter::once(about).chain(cells).collect()
        })
    })
}

/// By how much a figure changes, per cent.
fn changed(figures: &[Figure], figure: &str, change: &Change) -> Option<String> {
    let of = |kernel: &str| value(figures, &format!("{figure}.{kernel}"));
    let (before, after) = (of(change.from)?, of(change.to)?);
    (before > 0.0).then(|| format!("{:+.1}", 100.0 * (after / before - 1.0)))
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
                ("p50", &time(step.p50_us)),
                ("p99", &time(step.p99_us)),
                ("carried", if step.carried { "yes" } else { "no" }),
            ])
        })
    })
}

/// A response time, if there was a right answer.
fn time(us: Option<f64>) -> String {
    us.map_or_else(|| "-".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tailor::figures::{CALLS_ANSWERED, CODE_KIB, CVE_RECORDS, CVES};
    use crate::tailor::plan::{DEBIAN, TAILORED, UNHARDENED};
    use crate::tailor::sample::Line;
    use tare_lab::kit::Depth;
    use tare_tailor::counter::Count;

    fn request(weighed: &mut Weighed, kernel: &str, insns: u64) {
        let count = Count {
            kernel: insns,
            ..Count::default()
        };
        weighed.requests(kernel, "peak", &[count]);
    }

    fn report(weighed: &Weighed) -> ReportText {
        let plan = Plan::new(Depth::Standard, None);
        report_text(&plan, weighed, &weighed.figures())
    }

    fn changes_of(text: &ReportText) -> String {
        let mut sections = text.sections.iter();
        let found = sections.find(|it| it.title == "What each change gives");
        found.map_or(String::new(), |it| it.html.clone())
    }

    #[test]
    fn each_change_stands_alone_and_missing_kernels_are_named() {
        let mut weighed = Weighed::default();
        for (kernel, insns) in [(DEBIAN, 1000), (UNHARDENED, 900), (TAILORED, 700)] {
            request(&mut weighed, kernel, insns);
        }
        let text = report(&weighed);
        let html = changes_of(&text);
        assert!(html.contains("-10.0") && html.contains("-30.0"), "{html}");
        assert!(!html.contains("Firecracker"), "{html}");
        let [clang, cves, config] = text.limitations.as_slice() else {
            panic!("{:?}", text.limitations);
        };
        assert!(clang.contains("clang, lld and llvm") && config.contains("--config FILE"));
        assert!(cves.contains("--cves DIR"));
        request(&mut weighed, FIRECRACKER, 1400);
        request(&mut weighed, TAILORED_LTO, 630);
        weighed.take(&Line::single(CVE_RECORDS, "", 300.0));
        let text = report(&weighed);
        let html = changes_of(&text);
        assert!(html.contains("+40.0") && html.contains("-50.0"), "{html}");
        assert!(html.contains("ThinLTO") && html.contains("-10.0"), "{html}");
        assert!(text.limitations.is_empty(), "{:?}", text.limitations);
    }

    #[test]
    fn the_attack_surface_of_three_kernels_is_a_row_each() {
        let mut weighed = Weighed::default();
        for (kernel, by) in [(DEBIAN, 4.0), (FIRECRACKER, 2.0), (TAILORED, 1.0)] {
            for (metric, one) in [(CODE_KIB, 3001.0), (CALLS_ANSWERED, 89.0), (CVES, 207.0)] {
                weighed.take(&Line::single(metric, kernel, by * one));
            }
        }
        weighed.take(&Line::single(CVE_RECORDS, "", 5130.0));
        let text = report(&weighed);
        let kernels = text.sections.iter().find(|it| it.title == "The kernels");
        let html = &kernels.unwrap().html;
        for right in [
            "3001", "6002", "12,004", "89", "178", "356", "207", "414", "828",
        ] {
            assert!(html.contains(&format!(">{right}<")), "{right}: {html}");
        }
        let method = format!("{:?}", text.method);
        assert!(method.contains("Of 5130 CVE records"), "{method}");
    }
}
