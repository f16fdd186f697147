//! The page around an experiment's text.

use std::fmt::Write as _;
use std::path::Path;

use tare_control::stats::Kvm;

use super::text::{escape, list, table_of_html};
use super::{Report, Section};
use crate::figure::{Figure, needed};
use crate::goal::{Bound, Goal, Judgement, judge};
use crate::number::number;
use crate::summary::{Status, Summary};

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(crate) fn html(report: &Report<'_>) -> String {
    let text = &report.text;
    let mut out = head(&text.title);
    header(&mut out, report);
    let _ = writeln!(out, "<p>{}</p>", escape(&text.question));
    if !text.glance.is_empty() {
        let _ = writeln!(out, "<div class=\"answer glance\">{}</div>", text.glance);
    }
    for sentence in &text.answer {
        let _ = writeln!(out, "<p>{}</p>", escape(sentence));
    }
    out.push_str(&contents(&text.sections));
    for section in &text.sections {
        push_section(&mut out, section);
    }
    push_section(&mut out, &figures(report));
    push_list(&mut out, "Limitations", &text.limitations);
    push_list(&mut out, "How it was measured", &text.method);
    push_section(&mut out, &machine(report.summary));
    push_section(&mut out, &files(report.command, report.directory));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// A page of sections alone.
pub(crate) fn bare(title: &str, lead: &str, sections: &[Section]) -> String {
    let mut out = head(title);
    let (title, lead) = (escape(title), escape(lead));
    let _ = writeln!(out, "<h1>{title}</h1>\n<p>{lead}</p>");
    for section in sections {
        push_section(&mut out, section);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(title)
    )
}

fn header(out: &mut String, report: &Report<'_>) {
    let summary = report.summary;
    // A report that is made again from samples does not know how long the run took.
    let took = match summary.duration_s as u64 {
        0 => String::new(),
        seconds => {
            let took = humantime::format_duration(std::time::Duration::from_secs(seconds));
            format!("<span>took {took}</span>")
        }
    };
    let _ = writeln!(
        out,
        "<h1>{}</h1>\n<div class=\"meta\"><span>tare weigh {}</span><span>{}</span>\
         {took}<span>revision {}</span>\
         {}</div>",
        escape(&report.text.title),
        escape(&summary.experiment),
        escape(&summary.started.replace('T', " ").replace('Z', " UTC")),
        escape(&summary.revision),
        kvm_badge(summary),
    );
    if let Some(why) = &summary.not_judged {
        let _ = writeln!(
            out,
            "<div class=\"banner\"><strong>Goals {}.</strong></div>",
            escape(why)
        );
    } else if let Some(busy) = summary.machine.busy() {
        let _ = writeln!(
            out,
            "<div class=\"banner\"><strong>Read times with care: {}.</strong></div>",
            escape(&busy)
        );
    }
    let what = match summary.status {
        Status::Complete => return,
        Status::Failed => "Some samples failed; they are not in the figures:",
        Status::Broken => "Broken off; what was measured until then is below.",
        Status::Interrupted => "Interrupted; what was measured until then is below.",
    };
    let failures = list(&summary.failures);
    let _ = writeln!(
        out,
        "<div class=\"banner\"><strong>{what}</strong>{failures}</div>"
    );
}

/// Which KVM; empty if no machine reported it.
fn kvm_badge(summary: &Summary) -> String {
    let text = match summary.machine.kvm {
        _ if summary.figures.is_empty() => return String::new(),
        Kvm::Hardware => "KVM: hardware",
        Kvm::Emulated => "KVM: ring 0 emulated",
        Kvm::None => "KVM: not used",
    };
    format!("<span class=\"badge kvm\">{text}</span>")
}

fn push_section(out: &mut String, section: &Section) {
    let (id, title) = (anchor(&section.title), escape(&section.title));
    let _ = writeln!(out, "<section id=\"{id}\">\n<h2>{title}</h2>");
    if !section.lead.is_empty() {
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escape(&section.lead));
    }
    let _ = writeln!(out, "{}</section>", section.html);
}

/// A title as the name of its section: letters and digits, the rest as dashes.
fn anchor(title: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    title.chars().map(plain).collect()
}

/// Links to the sections of a report that has several.
fn contents(sections: &[Section]) -> String {
    if sections.len() < 3 {
        return String::new();
    }
    let fixed = ["Figures", "Limitations", "How it was measured"];
    let titles = sections
        .iter()
        .map(|section| section.title.as_str())
        .chain(fixed);
    let items = titles.map(|title| {
        format!(
            "<li><a href=\"#{}\">{}</a></li>\n",
            anchor(title),
            escape(title)
        )
    });
    format!(
        "<nav aria-label=\"Contents\"><ul>{}</ul></nav>\n",
        items.collect::<String>()
    )
}

fn push_list(out: &mut String, title: &str, sentences: &[String]) {
    if !sentences.is_empty() {
        let section = Section {
            title: title.to_owned(),
            lead: String::new(),
            html: list(sentences),
        };
        push_section(out, &section);
    }
}

/// The table of all figures with their goals.
fn figures<'a>(report: &Report<'a>) -> Section {
    let head = [
        "figure",
        "value",
        "95\u{a0}% interval",
        "unit",
        "is a",
        "n",
        "goal",
    ];
    let mut last = "";
    let mut row = |figure: &'a Figure| {
        let base = figure.name.split('.').next().unwrap_or_default();
        let class = if base == last { "" } else { "group" };
        last = base;
        let cells = vec![
            format!("<code>{}</code>", escape(&figure.name)),
            number(figure.value),
            escape(&figure.ends_text()),
            escape(&figure.unit),
            figure.statistic.text().to_owned(),
            figure.n.to_string(),
            goal_cell(figure, report.goals, report.summary.machine.kvm),
        ];
        (class, cells)
    };
    let rows: Vec<_> = report.summary.figures.iter().map(&mut row).collect();
    let html = table_of_html(&head, &rows, |_| false);
    Section {
        title: "Figures".to_owned(),
        lead: format!(
            "What each figure is stands beside its unit; n counts what was repeated, such as \
             booted machines or runs. A median of two to five samples has their range, one \
             sample has neither, and both decide no goal. A high percentile needs ten samples of \
             each machine beyond it, so the 90th {} and the 99th {}; with fewer it is not given.",
            needed(0.9),
            needed(0.99)
        ),
        html,
    }
}

fn goal_cell(figure: &Figure, goals: &[Goal], kvm: Kvm) -> String {
    let Some(verdict) = judge(figure, goals, kvm) else {
        return String::new();
    };
    let (class, mark) = match verdict.verdict {
        Judgement::Met => ("met", "✓ met"),
        Judgement::Missed => ("missed", "✗ missed"),
        Judgement::Undecided => ("undecided", "? undecided"),
    };
    let limit = number(verdict.bound.limit());
    let sign = match verdict.bound {
        Bound::AtMost(_) => '≤',
        Bound::AtLeast(_) => '≥',
    };
    format!("{sign}&nbsp;{limit} <span class=\"badge {class}\">{mark}</span>")
}

fn machine(summary: &Summary) -> Section {
    let host = &summary.machine;
    let optional = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let kvm = match host.kvm {
        Kvm::Hardware => "hardware virtualisation",
        Kvm::Emulated => {
            "emulates guest ring 0: instructions are counted there one by one, its times are not \
             comparable with hardware; ring 3 runs at the processor's speed"
        }
        Kvm::None => match host.has_kvm {
            Some(true) => {
                "not used, though the host has it; guests, if there were any, ran in QEMU's \
                 translator"
            }
            Some(false) => "the host has none; guests, if there were any, ran in QEMU's translator",
            None => "not used; guests, if there were any, ran in QEMU's translator",
        },
    };
    let rows = [
        ("processor", host.cpu.clone()),
        ("CPUs", host.cores.to_string()),
        ("memory", format!("{} MiB", host.memory_mib)),
        ("kernel", host.kernel.clone()),
        ("KVM", kvm.to_owned()),
        (
            "halt_poll_ns",
            optional(host.halt_poll_ns.map(|ns| ns.to_string())),
        ),
        ("frequency governor", optional(host.governor.clone())),
        (
            "load average before",
            optional(host.load_average.map(|l| format!("{l:.2}"))),
        ),
        (
            "load average after",
            optional(host.load_average_after.map(|l| format!("{l:.2}"))),
        ),
        (
            "CPU time of others meanwhile",
            optional(host.others_cpu_pct.map(|pct| format!("{pct:.1} %"))),
        ),
        (
            "own threads waited for a CPU",
            optional(
                host.own_wait_pct
                    .map(|pct| format!("{pct:.1} % of the time")),
            ),
        ),
    ];
    let versions = summary.versions.iter();
    let versions = versions.map(|(program, version)| (program.as_str(), version.clone()));
    let rows = rows.into_iter().chain(versions).chain(digests(summary));
    let items = rows.map(|(name, value)| {
        format!(
            "<li><span class=\"soft\">{}:</span> {}</li>\n",
            escape(name),
            escape(&value)
        )
    });
    Section {
        title: "The machine".to_owned(),
        lead: String::new(),
        html: format!("<ul>\n{}</ul>\n", items.collect::<String>()),
    }
}

/// Digest of the program, and that of the image which was measured; of all images where that is
/// unknown.
fn digests(summary: &Summary) -> impl Iterator<Item = (&str, String)> {
    let digests = summary.digests.as_ref();
    let program = digests.and_then(|it| it.program.clone());
    let images = digests.map(|it| &it.images).filter(|it| !it.is_empty());
    let images = images.map(|images| {
        let subject = summary.subject.as_ref();
        let measured = subject.and_then(|name| images.get_key_value(name));
        let shown: Vec<_> = match measured {
            Some(image) => vec![image],
            None => images.iter().collect(),
        };
        let texts = shown
            .iter()
            .map(|(name, digest)| format!("{name} {digest}"));
        texts.collect::<Vec<_>>().join(", ")
    });
    let program = program.map(|digest| ("SHA-256 of the program", digest));
    let images = images.map(|texts| ("SHA-256 of images", texts));
    program.into_iter().chain(images)
}

/// The `summary.json` of the run that this one is compared with, if it is.
pub(crate) const AGAINST: &str = "against.json";

/// Files of a run, and what each holds.
const FILES: [(&str, &str); 7] = [
    ("summary.json", "figures and verdicts"),
    ("figures.csv", "the same as a table"),
    ("report.md", "the same for a pull request"),
    ("metrics.txt", "the same as OpenMetrics"),
    ("raw.jsonl", "every sample"),
    (AGAINST, "figures of the earlier run beside this one"),
    (
        "samples.csv",
        "its numbers as a table, with order, block and what tells them apart; its last line says \
         if it was cut",
    ),
];

fn link((name, about): (&str, &str)) -> String {
    format!("<li><a href=\"{name}\">{name}</a>: {about}</li>\n")
}

/// Links to the files that there are: a run that is kept with the source has the summary and the
/// samples alone.
fn files(command: &str, directory: &Path) -> Section {
    let (here, missing): (Vec<_>, Vec<_>) = FILES
        .into_iter()
        .partition(|(name, _)| directory.join(name).is_file());
    let missing = missing.into_iter().map(|(name, _)| name);
    let missing: Vec<&str> = missing.filter(|name| *name != AGAINST).collect();
    let others = if missing.is_empty() {
        "makes them again from raw.jsonl".to_owned()
    } else {
        format!("DIR writes {} from raw.jsonl too", missing.join(", "))
    };
    Section {
        title: "The run".to_owned(),
        lead: format!(
            "Files beside this one, and the command. tare report {others}; tare compare sets two \
             runs side by side."
        ),
        html: format!(
            "<ul>{}</ul>\n<pre tabindex=\"0\">{}</pre>\n",
            here.into_iter().map(link).collect::<String>(),
            escape(command.trim_end())
        ),
    }
}
