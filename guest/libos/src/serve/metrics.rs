//! Figures for Prometheus, in its text format 0.0.4: how families are written, and those of
//! the machine, which each server adds to its own.

use alloc::vec::Vec;

use tare_net::stack::FigureKind;

use super::text::{push_decimal, push_seconds, put};
use crate::sched::{self, CoreStats};
use crate::time::{Instant, SystemTime, UNIX_EPOCH};
use crate::{heap, net, thread};

/// The type of a family that only grows.
pub const COUNTER: &str = "counter";
/// The type of a family that goes up and down.
pub const GAUGE: &str = "gauge";

/// Appends a family with one sample without labels.
pub fn single(out: &mut Vec<u8>, name: &str, kind: &str, help: &str, value: u64) {
    family(out, name, kind, help);
    sample(out, name, None, value);
}

/// Appends what a family of samples is.
pub fn family(out: &mut Vec<u8>, name: &str, kind: &str, help: &str) {
    for part in [
        "# HELP ",
        name,
        " ",
        help,
        "\n# TYPE ",
        name,
        " ",
        kind,
        "\n",
    ] {
        put(out, part.as_bytes());
    }
}

/// Appends one sample, with a label that is a number or without.
pub fn sample(out: &mut Vec<u8>, name: &str, label: Option<(&str, u64)>, value: u64) {
    begin_sample(out, name, label);
    push_decimal(out, value);
    out.push(b'\n');
}

/// Appends one sample in seconds, from nanoseconds.
pub fn sample_seconds(out: &mut Vec<u8>, name: &str, label: Option<(&str, u64)>, ns: u64) {
    begin_sample(out, name, label);
    push_seconds(out, ns);
    out.push(b'\n');
}

fn begin_sample(out: &mut Vec<u8>, name: &str, label: Option<(&str, u64)>) {
    put(out, name.as_bytes());
    if let Some((label, number)) = label {
        for part in ["{", label, "=\""] {
            put(out, part.as_bytes());
        }
        push_decimal(out, number);
        put(out, b"\"}");
    }
    out.push(b' ');
}

/// When the machine began to serve.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    at: Instant,
    unix_s: u64,
}

impl Started {
    /// Now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            at: Instant::now(),
            unix_s: since.as_secs(),
        }
    }

    /// When it was.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Appends the machine's figures: memory, time, cores, network.
    pub fn expose(&self, out: &mut Vec<u8>) {
        self.expose_process(out);
        expose_cores(out);
        expose_network(out);
    }

    fn expose_process(&self, out: &mut Vec<u8>) {
        let heap = heap::stats();
        for (name, help, value) in [
            ("tare_heap_bytes", "Memory for the heap.", heap.total),
            ("tare_heap_used_bytes", "Memory allocated.", heap.used),
            (
                "process_start_time_seconds",
                "Start, seconds since 1970.",
                self.unix_s,
            ),
        ] {
            single(out, name, GAUGE, help, value);
        }
        family(out, "tare_uptime_seconds", GAUGE, "Time since the start.");
        let up = self.at.elapsed().as_nanos() as u64;
        sample_seconds(out, "tare_uptime_seconds", None, up);
    }
}

/// A family with a sample for each core.
fn per_core(out: &mut Vec<u8>, name: &str, help: &str, figure: fn(&CoreStats) -> u64) {
    family(out, name, COUNTER, help);
    for core in 0..thread::cores() {
        let value = figure(&sched::core_stats(core));
        sample(out, name, Some(("core", core as u64)), value);
    }
}

fn expose_cores(out: &mut Vec<u8>) {
    type Seconds = (&'static str, &'static str, fn(&CoreStats) -> u64);
    let seconds: [Seconds; 2] = [
        ("tare_core_halted_seconds_total", "Time halted.", |core| {
            core.halted_ns
        }),
        (
            "tare_core_spun_seconds_total",
            "Time spun before halts.",
            |core| core.spun_ns,
        ),
    ];
    for (name, help, figure) in seconds {
        family(out, name, COUNTER, help);
        for core in 0..thread::cores() {
            let ns = figure(&sched::core_stats(core));
            sample_seconds(out, name, Some(("core", core as u64)), ns);
        }
    }
    per_core(out, "tare_core_halts_total", "Halts.", |core| core.halts);
    per_core(
        out,
        "tare_core_spins_total",
        "Spins before a halt.",
        |core| core.spins,
    );
    per_core(
        out,
        "tare_core_spins_caught_total",
        "Spins that made a halt needless.",
        |core| core.spins_caught,
    );
    per_core(
        out,
        "tare_core_idle_turns_total",
        "Idle turns of pollers.",
        |core| core.idle_turns,
    );
    per_core(
        out,
        "tare_core_switches_total",
        "Thread switches.",
        |core| core.switches,
    );
    per_core(
        out,
        "tare_core_ipis_sent_total",
        "Wake-up interrupts sent.",
        |core| core.ipis_sent,
    );
    per_core(
        out,
        "tare_core_timers_armed_total",
        "Deadlines armed.",
        |core| core.timers_armed + core.timers_renewed,
    );
}

fn expose_network(out: &mut Vec<u8>) {
    for figure in net::stats().figures() {
        let kind = match figure.kind {
            FigureKind::Counter => COUNTER,
            FigureKind::Gauge => GAUGE,
        };
        single(out, figure.name, kind, figure.help, figure.value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What Prometheus' parser takes: a family's HELP and TYPE, then its samples, once.
    #[test]
    fn the_machines_figures_are_well_formed() {
        let mut out = Vec::new();
        Started::now().expose(&mut out);
        let text = String::from_utf8(out).expect("text");
        let mut families = HashSet::new();
        let mut family = "";
        let mut samples = 0;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["#", "HELP", name, _, ..] => {
                    assert!(families.insert(name), "{name} twice");
                    family = name;
                }
                ["#", "TYPE", name, kind] => {
                    assert!(name == family && matches!(kind, "counter" | "gauge"));
                    assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                }
                [name, value] => {
                    assert_eq!(name.split('{').next(), Some(family));
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                    samples += 1;
                }
                _ => panic!("{line}"),
            }
        }
        assert!(samples >= families.len() && families.len() > 20, "{text}");
    }
}
