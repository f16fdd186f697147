//! The experiment's report: question, results, limitations.

use super::arms::Arm;
use super::charts::{distributions, timeline};
use super::data::Data;
use super::findings::limitations;
use super::plan::{Plan, SOURCE_RATE};
use super::tables::{comparison, glance, on_linux, threads};
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::svg::percentiles;
use crate::report::{ReportText, Section};

/// The report of a run, complete or not.
pub(crate) fn report_text(plan: &Plan, data: &Data, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "What waiting costs a web server in a virtual machine".to_owned(),
        question: "An appliance that polls uses a whole core of its host even without requests. \
                   The same web server image waited in three ways, under bursts of requests \
                   and breaks: spin never halts its core; poller follows Toro (pollers declare \
                   idle turns, the core halts when all have been idle for 200 ms); tare \
                   blocks until an interrupt arrives."
            .to_owned(),
        glance: glance(figures),
        answer: answer(data, figures),
        sections: sections(plan, data, figures),
        method: method(plan, data, figures),
        limitations: limitations(data, figures),
    }
}

fn answer(data: &Data, figures: &[Figure]) -> Vec<String> {
    let get = |name: &str| value(figures, name);
    let mut sentences = Vec::new();
    if let (Some(spin), Some(tare), Some(poller)) = (
        get("cpu_idle_pct.spin"),
        get("cpu_idle_pct.tare"),
        get("cpu_1rps_pct.poller"),
    ) {
        sentences.push(format!(
            "With nothing to do, spinning took {} % of a core and blocking {} %. Toro's \
             poller halts too, but a single request keeps it awake for 200 ms: {} % of a core at \
             one request a second.",
            number(spin),
            number(tare),
            number(poller)
        ));
    }
    let latency = (get("latency_p50_us.spin"), get("latency_p50_us.tare"));
    if let (Some(spin), Some(tare)) = latency {
        sentences.push(compared(data, spin, tare));
    }
    let translated = |arm: &str| get(&format!("tcg_insns_per_request.{arm}"));
    if let (Some(linux), Some(tare)) = (translated("linux"), translated("tare")) {
        sentences.push(format!(
            "For the same file Apache on Debian's kernel executed {} instructions a request, \
             Tare's image {}: {} times fewer.",
            number(linux),
            number(tare),
            number(linux / tare)
        ));
    }
    sentences
}

/// Two series differ where p is at most this.
const SIGNIFICANT: f64 = 0.05;

/// The blocking arm's latency against the spinning one's, if they can be
/// distinguished: by machines, since answers of one machine are not independent.
fn compared(data: &Data, spin: f64, tare: f64) -> String {
    let [blocking, spinning] = [Arm::Tare, Arm::Spin].map(|arm| data.median_latencies(arm));
    let Some(p) = tare_stats::permutation(&blocking, &spinning) else {
        return format!(
            "Whether blocking and spinning differ in latency needs {} machines of each; this run \
             has {}.",
            tare_stats::LEAST_UNITS,
            blocking.len().min(spinning.len())
        );
    };
    if p > SIGNIFICANT {
        return format!(
            "This run does not distinguish the latencies of blocking and spinning (p {p:.2} by \
             machines)."
        );
    }
    let percent = ((tare / spin - 1.0) * 100.0).round();
    let than = if percent < 0.0 { "faster" } else { "slower" };
    format!(
        "The blocking machine's median answer was {} % {than} than the spinning one's.",
        percent.abs()
    )
}

fn sections(plan: &Plan, data: &Data, figures: &[Figure]) -> Vec<Section> {
    let names = Arm::ALL.map(Arm::name);
    let mut sections = vec![Section {
        title: "CPU over time".to_owned(),
        lead: "Share of one core that all threads of the monitor used. Every arm has a machine \
               of its own in each cycle; its turns are drawn one after the other. Shaded: load."
            .to_owned(),
        html: timeline(plan, data)
            .figure("CPU use of the three arms over time, under bursts and breaks"),
    }];
    let distributions = distributions(data);
    if !distributions.is_empty() {
        sections.push(Section {
            title: "Latency in the bursts".to_owned(),
            lead: "From the time at which a request was to be sent to the end of its answer, on a \
                   logarithmic scale; dots: median and 99th percentile. Lower is better."
                .to_owned(),
            html: percentiles(
                &names,
                &distributions,
                "Latency by percentile for the three arms",
            ),
        });
        sections.push(comparison(data, figures));
    }
    sections.extend(threads(data));
    sections.extend(on_linux(figures));
    sections
}

fn method(plan: &Plan, data: &Data, figures: &[Figure]) -> Vec<String> {
    let mut sentences = vec![
        format!(
            "Each machine: image {}, {} vCPU, {} MiB, started by tare run with --idle spin, \
             poller or block. Toro gave its guest two cores and used one; one is given here.",
            plan.image, plan.cpus, plan.memory_mib
        ),
        format!(
            "{} cycles; in each, every arm had a new machine, in rotated order, one alive at a \
             time: a burst of {} s, a break of {} s, then one request a second for {} s.",
            plan.cycles,
            number(plan.burst_ms as f64 / 1e3),
            number((plan.settle_ms + plan.break_ms) as f64 / 1e3),
            number(plan.steady_ms as f64 / 1e3)
        ),
    ];
    if plan.idle_at_once && plan.idle_ms > 0 && plan.idle_2cpu_ms > 0 {
        sentences.push(format!(
            "Two more machines that nothing is asked of, with one vCPU and with two, are idle side \
             by side, for {} s and {} s; CPU time and exits are read of each.",
            number(plan.idle_ms as f64 / 1e3),
            number(plan.idle_2cpu_ms as f64 / 1e3)
        ));
    }
    sentences.extend(data.rate.map(|rate| rate_sentence(rate, data.carried)));
    sentences.extend([
        format!(
            "The load is open-loop: send times are fixed beforehand and latency counts from \
             them, over at most {} kept connections on loopback, each answer compared with the \
             1 KiB file.",
            plan.connections
        ),
        format!(
            "CPU time comes from /proc (schedstat) of every thread, read from outside every {} ms. \
             The first {} ms of each break are drawn but not in the figures: connections end \
             and the pollers' 200 ms run out.",
            plan.window_ms, plan.settle_ms
        ),
        observer(figures),
        "Exits are returns from KVM_RUN, halts and injected interrupts of the vCPU together. \
         Instructions are counted on a \
         machine of its own in ring 0, where KVM emulates each; boot_insns counts until the server says that it serves; insns_per_request is the mean \
         of a batch on one connection, insns_per_connection of a batch of connections that the \
         client closes after one answer."
            .to_owned(),
        "first_byte_ms runs from the exec of tare run until the first byte of an answer; the \
         request is sent when the console says that the server serves. first_line_ms.tcg is the \
         same image in QEMU's translator, from the exec of tare run to that line on the console, \
         which is its first."
            .to_owned(),
    ]);
    sentences
}

fn rate_sentence(rate: f64, carried: f64) -> String {
    let (rate, carried) = (number(rate), number(carried));
    if rate == number(SOURCE_RATE) {
        return format!(
            "Bursts of {rate} requests a second, as in Toro; in a closed loop the slowest \
             arm carried {carried}."
        );
    }
    format!(
        "Bursts of {rate} requests a second: this machine does not carry Toro's 100. In a \
         closed loop the slowest arm carried {carried} a second, and the bursts are half of that."
    )
}

/// What observing costs, as measured.
fn observer(figures: &[Figure]) -> String {
    let cost = value(figures, "stats_request_us");
    let us = cost.map_or(String::new(), |us| {
        format!(
            " One such reading cost the monitor {} µs of CPU time.",
            number(us)
        )
    });
    format!(
        "Statistics were read over the control socket at the edges of phases and, in breaks, \
         between windows of CPU time, never inside one: the request wakes the monitor's I/O \
         thread, but no vCPU.{us}"
    )
}
