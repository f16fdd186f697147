//! The cost of each kind of exit (KVM Message Passing 2015): instructions that
//! leave the guest, in loops that double until they take long enough, as
//! kvm-unit-tests does it.
//!
//! Each kind has a machine of its own, since an instruction that this KVM cannot
//! do ends the machine: then the kind is unavailable, and the rest goes on. What
//! had a cost in Tare is then measured in QEMU on the same KVM, all in one machine, and
//! with the image in ring 3.

mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;

use super::guest_bench::{self, ArmRound, Data};
use crate::appliance::GuestSpec;
use crate::bench::{Bench, RunError};
use crate::experiment::Experiment;
use crate::figure::Figure;
use crate::goal::Goal;
use crate::report::ReportText;
use crate::request::Depth;

/// What a turn is planned to take beside its samples.
const TURN: Duration = Duration::from_millis(500);
/// The same for QEMU's, which measures all kinds.
const QEMU_TURN: Duration = Duration::from_secs(10);
/// What the figures of QEMU end in.
const QEMU: &str = "qemu";
/// What the figures of the image in ring 3 end in.
const RING_3: &str = "ring3";
/// The kind that is only the loop.
const CONTROL: &str = "control";

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
        let (rounds, samples, target_ms) = match depth {
            Depth::Quick => (1, 6, 5),
            Depth::Standard => (2, 6, 15),
            Depth::Full => (10, 10, 200),
        };
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

    fn turn(
        &mut self,
        bench: &mut Bench<'_>,
        kind: &'static str,
        round: usize,
    ) -> Result<(), RunError> {
        let place = ArmRound { arm: kind, round };
        let (samples, target_us) = (self.samples, self.target.as_micros());
        let cmdline = format!("kind={kind} samples={samples} target_us={target_us} hold");
        let spec = place.machine(&self.image, cpus(kind), cmdline);
        let (mut khz, mut sampled, mut total, mut why) = (None, None, None, None);
        let snapshots = guest_bench::run(bench, place, &spec, |record| {
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

    /// The kinds with a known cost, in one QEMU machine.
    fn in_qemu(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let costed: Vec<&str> = KINDS
            .iter()
            .map(|(kind, _)| *kind)
            .filter(|kind| !self.data.samples.values(&figure(kind)).is_empty())
            .collect();
        self.together(bench, QEMU, "qemu-kvm", "0", &costed)
    }

    /// All kinds with the image in ring 3; those that ring 3 has not say so.
    fn in_ring_3(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        self.together(bench, RING_3, "tare", "3", &KINDS.map(|(kind, _)| kind))
    }

    /// Several kinds in one machine.
    fn together(
        &mut self,
        bench: &mut Bench<'_>,
        arm: &'static str,
        engine: &'static str,
        ring: &'static str,
        kinds: &[&str],
    ) -> Result<(), RunError> {
        let place = ArmRound { arm, round: 0 };
        let (samples, target_us) = (self.samples, self.target.as_micros());
        let kinds = kinds.join(",");
        let cmdline = format!("kind={kinds} samples={samples} target_us={target_us} hold");
        let spec = GuestSpec {
            engine,
            ring,
            ..place.machine(&self.image, 4, cmdline)
        };
        let (mut khz, mut all) = (None, Vec::new());
        let result = guest_bench::run(bench, place, &spec, |record| {
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
            if record.get("cycles").is_some() {
                all.push(record.clone());
            }
        });
        let why = guest_bench::optional(result.map(|_| ()))?;
        for sampled in &all {
            let kind = sampled.get("kind").and_then(Value::as_str);
            if let (Some(khz), Some(kind)) = (khz, kind) {
                self.add_cost(&format!("{kind}.{arm}"), sampled, khz);
            }
        }
        self.data.unavailable(arm, why);
        Ok(())
    }

    /// Keeps the samples of a kind.
    fn add_cost(&mut self, kind: &str, sampled: &Value, khz: f64) {
        let iterations = sampled.get("iterations").and_then(Value::as_f64);
        let ns = 1e6 / khz / iterations.unwrap_or(f64::NAN);
        for cycles in guest_bench::numbers(sampled, "cycles") {
            self.data.samples.add(&figure(kind), "ns", cycles * ns);
        }
    }

    fn planned_turn(&self) -> Duration {
        TURN + self.target * u32::try_from(self.samples * 2).unwrap_or(1)
    }
}

/// The figure of a kind.
fn figure(kind: &str) -> String {
    format!("exit_ns.{kind}")
}

/// vCPUs of the machine of a kind.
fn cpus(kind: &str) -> u8 {
    match kind {
        "ipi_each" | "ipi_cluster" | "ipi_hypercall" => 4,
        _ => 2,
    }
}

impl Experiment for Vmexit {
    fn planned(&self) -> Duration {
        self.planned_turn() * u32::try_from(self.rounds * KINDS.len()).unwrap_or(u32::MAX)
            + QEMU_TURN
            + self.planned_turn()
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "rounds": self.rounds,
            "samples": self.samples, "target_us": self.target.as_micros() as u64,
            "kinds": KINDS,
        })
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for round in 0..self.rounds {
            // Rotated by a third of the list, so that no kind is always early.
            for (kind, _) in guest_bench::rotated(&KINDS, round * 5) {
                guest_bench::announce(bench, round, self.rounds, kind);
                let result = self.turn(bench, kind, round);
                // Every cost is relative to the empty loop.
                let why = match kind {
                    CONTROL => result.map(|()| None)?,
                    _ => guest_bench::optional(result)?,
                };
                self.data.unavailable(kind, why);
                bench.progress.done(self.planned_turn());
            }
        }
        bench.progress.step("all kinds in QEMU");
        self.in_qemu(bench)?;
        bench.progress.done(QEMU_TURN);
        bench.progress.step("all kinds in ring 3");
        self.in_ring_3(bench)?;
        bench.progress.done(self.planned_turn());
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        let place = |f: &Figure| {
            let kind = f.name.split('.').nth(1).unwrap_or("").to_owned();
            let index = KINDS.iter().position(|(name, _)| *name == kind);
            let arm = [QEMU, RING_3].map(|arm| f.name.ends_with(arm));
            (arm, index)
        };
        figures.sort_by_key(place);
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        &[]
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
