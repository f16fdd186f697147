//! The report: both TCPs under each impairment.

use tare_tcp::wire::COMPARED;

use super::{BYTES, KEYS, LONG, Tcp};
use crate::figure::{Figure, find, value};
use crate::report::{ReportText, Section, table};

pub(super) fn report_text(experiment: &Tcp, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "Our TCP beside Linux's on the same wire".to_owned(),
        question: "A library OS brings its own TCP. How fast does it deliver where packets are \
                   lost, late, doubled or damaged, and how much does it send again, beside Linux's \
                   over the same wire?"
            .to_owned(),
        glance: String::new(),
        answer: answer(experiment, figures),
        sections: vec![Section {
            title: "Goodput and what is sent again".to_owned(),
            lead:
                "Medians. Slowdown is Linux's goodput over Tare's in the rounds in which both delivered; \
                   the goal is at most 1.25. Again is the share of data segments that hold nothing \
                   new; the goal is at most 1.5 times Linux's. Failed is Tare's transfers that \
                   did not arrive whole; the goal is 0."
                    .to_owned(),
            html: table(
                &[
                    "impairment",
                    "Tare, Mbit/s",
                    "Linux, Mbit/s",
                    "slowdown",
                    "Tare again, %",
                    "Linux again, %",
                    "again, ratio",
                    "Tare failed",
                ],
                &rows(figures),
            ),
        }],
        method: method(experiment),
        limitations: limitations(),
    }
}

fn rows(figures: &[Figure]) -> Vec<Vec<String>> {
    let text = |name: String| find(figures, &name).map_or_else(|| "–".to_owned(), Figure::text);
    let keys = KEYS.into_iter().zip(COMPARED);
    let row = |(key, compared): (&str, tare_tcp::wire::Named)| {
        vec![
            compared.name.to_owned(),
            text(format!("goodput.{key}.tare")),
            text(format!("goodput.{key}.linux")),
            text(format!("slowdown.{key}")),
            text(format!("again_pct.{key}.tare")),
            text(format!("again_pct.{key}.linux")),
            text(format!("again_ratio.{key}")),
            text(format!("failed.{key}")),
        ]
    };
    keys.map(row).collect()
}

fn answer(experiment: &Tcp, figures: &[Figure]) -> Vec<String> {
    let value = |figure: &str, key: &str| value(figures, &format!("{figure}.{key}"));
    let has_failed = |key: &str| value("failed", key).is_some_and(|failed| failed > 0.0);
    // An impairment under which a transfer failed counts, and not as a good one.
    let within = |figure: &str, most: f64| {
        let counts = |key: &&&str| value(figure, key).is_some() || has_failed(key);
        let is_good =
            |key: &&&str| value(figure, key).is_some_and(|value| value <= most) && !has_failed(key);
        let all = KEYS.iter().filter(counts);
        (all.clone().filter(is_good).count(), all.count())
    };
    let (fast, of_fast) = within("slowdown", 1.25);
    let (lean, of_lean) = within("again_ratio", 1.5);
    let mut sentences = vec![
        format!(
            "Tare delivers at least 0.8 of Linux's goodput under {fast} of {of_fast} impairments."
        ),
        format!("It sends at most 1.5 times Linux's share again under {lean} of {of_lean}."),
    ];
    if !experiment.long.is_empty() {
        let right = experiment
            .long
            .iter()
            .filter(|(_, is_right)| *is_right)
            .count();
        sentences.push(format!(
            "{} MiB arrive whole and right under {right} of {}.",
            LONG >> 20,
            experiment.long.len()
        ));
    }
    sentences
}

fn method(experiment: &Tcp) -> Vec<String> {
    vec![
        format!(
            "{} MiB from a sender to Linux, {} times under each impairment and for each sender in turn; the \
             time runs from before the connection to the last byte. Both arms of a round have \
             the same seed.",
            BYTES >> 20,
            experiment.rounds
        ),
        "The wire is a thread of tare that moves frames between taps in network namespaces of \
         their own, in real time; Linux's sender is another thread with a tap, Tare's is the \
         library OS's network stack in the wire's thread. ARP passes unimpaired."
            .to_owned(),
        "Segments are counted where they enter the wire. Both have a MTU of 1,500 bytes and no \
         segmentation offload. Namespaces are new for each transfer, so that Linux remembers nothing."
            .to_owned(),
        "Ratios of shares have half a segment added, so that a transfer without any sent again \
         compares."
            .to_owned(),
    ]
}

fn limitations() -> Vec<String> {
    vec![
        "A busy host delays the wire's thread, and with it both arms.".to_owned(),
        "One connection at a time, and only the sender differs: receiving and fairness between \
         connections are not measured."
            .to_owned(),
        "Linux's buffers are what this host has as defaults; its sender's congestion control is \
         CUBIC, as Tare's, whatever the host's default."
            .to_owned(),
    ]
}
