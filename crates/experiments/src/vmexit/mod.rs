//! The cost of each kind of exit (KVM Message Passing 2015): instructions that
//! leave the guest, in loops that double until they take long enough, as
//! kvm-unit-tests does it.
//!
//! Each kind has its own machine, since an instruction that this KVM cannot
//! do ends the machine: then the kind is unavailable, and the rest goes on. What
//! had a cost in Tare is then measured in QEMU on the same KVM, all in one machine, and
//! with the image in ring 3.

#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bar, Bench, Data, Depth, Entry, Experiment, Figure, IfFails, Make, ReportText, Row, RunError,
    Template, Turn, bars, has_data, metrics, number, replanned, rounds, row, times,
};

use super::guest_bench::{self, Arm, RunsIn, cpus, in_ring_3};

/// What a turn is planned to take beside its samples.
const TURN: Duration = Duration::from_millis(500);
/// The same for QEMU's, which measures all kinds.
const QEMU_TURN: Duration = Duration::from_secs(10);
/// The kind that is only the loop.
const CONTROL: &str = "control";

metrics! {
    EXIT_NS: less("exit_ns", "ns");
}

/// Several kinds in one machine: those that had a cost in Tare, and all, of which those that
/// ring 3 has not say so.
static TOGETHER: [Arm; 2] = [
    Arm::new("qemu", "all kinds in QEMU", RunsIn::Qemu(cpus(4))),
    Arm::new(
        "ring3",
        "all kinds in ring 3",
        RunsIn::Tare(in_ring_3(cpus(4))),
    ),
];

/// Kinds of exit with what they are; the image knows them by these names.
const KINDS: [(&str, &str); 19] = [
    (CONTROL, "the loop by itself"),
    ("cpuid", "CPUID"),
    ("hypercall", "VMCALL or VMMCALL"),
    (
        "pio_in_kernel",
        "IN from the PIC's mask, served in the kernel",
    ),
    (
        "pio_out_kernel",
        "OUT to the PIC's mask, served in the kernel",
    ),
    (
        "pio_in_user",
        "IN from the UART's status, served by the monitor",
    ),
    (
        "pio_out_user",
        "OUT to the UART's scratch register, served by the monitor",
    ),
    ("mmio_kernel", "read of the IOAPIC, served in the kernel"),
    (
        "mmio_user",
        "read in a PCI device's BAR, served by the monitor",
    ),
    ("tsc_deadline", "WRMSR of the TSC deadline"),
    ("timer_count", "write of the APIC timer's initial count"),
    ("eoi", "write of the APIC's end of interrupt"),
    ("self_ipi", "interrupt to the own CPU, with its handling"),
    ("ipi", "interrupt command to a second CPU"),
    ("ipi_each", "interrupts to three CPUs, a command for each"),
    (
        "ipi_cluster",
        "the same by one command to the x2APICs' cluster",
    ),
    ("ipi_hypercall", "the same by one call of KVM"),
    ("cr3", "CR3 read and written with what it held"),
    ("gate", "call of ring 3's service gate, refused"),
];

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "vmexit",
    about: "the cost of each kind of exit: cpuid, ports, memory, timers, interrupts, CR3",
    metrics: METRICS,
    goals: &[],
    make: Make::OfImage(|depth, image| Box::new(Vmexit::new(depth, image))),
};

/// The experiment and what it has measured.
pub(crate) struct Vmexit {
    depth: Depth,
    image: String,
    rounds: usize,
    samples: usize,
    target: Duration,
    data: Data,
    /// Iterations of all machines, by kind.
    iterations: BTreeMap<&'static str, f64>,
}

impl Vmexit {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (rounds, samples, target_ms) = depth.of([(1, 6, 5), (6, 6, 15), (10, 10, 200)]);
        Self {
            depth,
            image: image.unwrap_or_else(|| "vmexit".to_owned()),
            rounds,
            samples,
            target: Duration::from_millis(target_ms),
            data: Data::default(),
            iterations: BTreeMap::new(),
        }
    }

    fn cmdline(&self, kinds: &str) -> String {
        let (samples, target_us) = (self.samples, self.target.as_micros());
        format!("kind={kinds} samples={samples} target_us={target_us} hold")
    }

    /// A machine for one kind.
    fn one(
        &mut self,
        bench: &mut Bench<'_>,
        kind: &'static str,
        round: usize,
    ) -> Result<(), RunError> {
        let vcpus = match kind {
            "ipi_each" | "ipi_cluster" | "ipi_hypercall" => 4,
            _ => 2,
        };
        let arm = Arm::new(kind, "", RunsIn::Tare(cpus(vcpus)));
        let spec = arm.machine(round, &self.image, &self.cmdline(kind));
        let (mut khz, mut sampled, mut total, mut why) = (None, None, None, None);
        let snapshots = guest_bench::run(bench, arm.round(round), &spec, |record| {
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
            total = total.or(record.get("total").and_then(Value::as_f64));
            why = why.take().or(record
                .get("unavailable")
                .map(|why| why.as_str().unwrap_or("it did not say why").to_owned()));
            if record.get("cycles").is_some() {
                sampled = Some(record.clone());
            }
        })?;
        if let (Some(khz), Some(sampled)) = (khz, sampled) {
            self.add_cost(kind, &sampled, khz);
        }
        *self.iterations.entry(kind).or_default() += total.unwrap_or(0.0);
        if let Some(end) = &snapshots.end {
            self.data.count(kind, snapshots.begin.as_ref(), end);
        }
        self.data.unavailable(kind, why);
        Ok(())
    }

    /// Several kinds in one machine.
    fn together(&mut self, bench: &mut Bench<'_>, arm: &Arm) -> Result<(), RunError> {
        let costs = |kind: &&str| !self.data.samples.values(&EXIT_NS.of(kind)).is_empty();
        let kinds = KINDS
            .iter()
            .map(|(kind, _)| *kind)
            .filter(|kind| matches!(arm.runs_in, RunsIn::Tare(_)) || costs(kind));
        let cmdline = self.cmdline(&kinds.collect::<Vec<_>>().join(","));
        let spec = arm.machine(0, &self.image, &cmdline);
        let (mut khz, mut all) = (None, Vec::new());
        let result = guest_bench::run(bench, arm.round(0), &spec, |record| {
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
            if record.get("cycles").is_some() {
                all.push(record.clone());
            }
        });
        for sampled in &all {
            let kind = sampled.get("kind").and_then(Value::as_str);
            if let (Some(khz), Some(kind)) = (khz, kind) {
                self.add_cost(&format!("{kind}.{}", arm.name), sampled, khz);
            }
        }
        result.map(drop)
    }

    /// Keeps what a kind cost in one machine: the median of its batches, which share a boot and
    /// are not independent.
    fn add_cost(&mut self, kind: &str, sampled: &Value, khz: f64) {
        let iterations = sampled.get("iterations").and_then(Value::as_f64);
        let ns = 1e6 / khz / iterations.unwrap_or(f64::NAN);
        let batches: Vec<f64> = guest_bench::numbers(sampled, "cycles").collect();
        if let Some(batches) = tare_stats::summarize(&batches) {
            self.data.samples.put(EXIT_NS, kind, batches.median * ns);
        }
    }
}

impl Experiment for Vmexit {
    has_data!();

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "rounds": self.rounds,
            "samples": self.samples, "target_us": self.target.as_micros() as u64,
            "kinds": KINDS,
        })
    }

    fn was_recorded_in_part(&self) -> bool {
        true
    }

    fn replan(&mut self, plan: &Value) {
        replanned(plan, "rounds", &mut self.rounds);
    }

    fn turns(&self) -> Vec<Turn> {
        let planned = TURN + times(self.target, self.samples * 2);
        // Every cost is relative to the empty loop.
        let turn = |_, index: usize, _| {
            Some(
                Turn::new(index, KINDS[index].0, planned).if_fails(match index {
                    0 => IfFails::BreakOff,
                    _ => IfFails::GoOn,
                }),
            )
        };
        // Rotated by a quarter of the list, so that no kind is always early.
        let mut turns = rounds(self.rounds, &[KINDS.len()], 5, turn);
        for (arm, planned) in TOGETHER.iter().zip([QEMU_TURN, planned]) {
            turns.push(Turn {
                step: arm.about.to_owned(),
                ..Turn::new(turns.len(), arm.name, planned).if_fails(IfFails::GoOn)
            });
        }
        turns
    }

    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        match TOGETHER.iter().find(|arm| arm.name == turn.label) {
            Some(arm) => self.together(bench, arm),
            None => self.one(bench, KINDS[turn.index].0, turn.round),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        let place = |f: &Figure| {
            let kind = f.name.split('.').nth(1).unwrap_or("").to_owned();
            let index = KINDS.iter().position(|(name, _)| *name == kind);
            let arm = TOGETHER.each_ref().map(|arm| f.name.ends_with(arm.name));
            (arm, index)
        };
        figures.sort_by_key(place);
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        let missing = &self.data.missing;
        let is_read_only =
            |why: &String| why.starts_with("hypercall: ") && why.contains("page fault writing");
        let most = most_expensive(figures);
        let text = Template::new(include_str!("report.md"), METRICS, figures)
            .maybe("most_kind", most.map(|(kind, _)| kind))
            .maybe("most", most.map(|(_, what)| what))
            .only_if("emulated", self.data.kvm == Kvm::Emulated)
            .set("image", &self.image)
            .set("rounds", self.rounds)
            .set("target_ms", number(self.target.as_secs_f64() * 1e3))
            .set("samples", self.samples)
            .only_if("text_is_read_only", missing.iter().any(is_read_only));
        let about = "Price of each kind of exit in ns";
        let chart = bars(&shown(figures), "ns", None, about);
        let rows = KINDS.iter().map(|(kind, what)| costs(self, kind, what));
        let sections = [text.section("prices", chart), text.tabled("costs", rows)];
        // The first line of what a machine said is enough.
        let first = |why: &String| why.split(" | ").next().unwrap_or(why).to_owned();
        text.report_with([], sections, &missing.iter().map(first).collect::<Vec<_>>())
    }
}

/// The kind that costs most, and what it is.
fn most_expensive(figures: &[Figure]) -> Option<(&'static str, &'static str)> {
    let others = KINDS.into_iter().filter(|(kind, _)| *kind != CONTROL);
    let costs = others.filter_map(|kind| Some((kind, EXIT_NS.value(figures, kind.0)?)));
    let most = costs.max_by(|a, b| a.1.total_cmp(&b.1));
    most.map(|(kind, _)| kind)
}

fn shown(figures: &[Figure]) -> Vec<Bar> {
    let shown = KINDS.iter().filter_map(|(kind, _)| {
        Some(Bar {
            label: (*kind).to_owned(),
            series: if *kind == CONTROL { 2 } else { 1 },
            figure: EXIT_NS.find(figures, kind)?.clone(),
        })
    });
    shown.collect()
}

fn costs(experiment: &Vmexit, kind: &str, what: &str) -> Row {
    let iterations = experiment.iterations.get(kind).filter(|n| **n > 0.0);
    let each = ["exits", "insn_emulation"].map(|name| {
        let count = experiment.data.counter(kind, name).zip(iterations);
        let each = count.map(|(count, iterations)| number(count / iterations));
        (name, each)
    });
    let kind = row([("kind", kind), ("what", what)]);
    kind.into_iter().chain(each).collect()
}
