//! One machine under test, from its start to its end.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arms::Arm;
use super::data::Data;
use super::plan::{Plan, ms};
use super::sample::{CpuSample, Line, Phase, SamplePosition};
use crate::appliance::{Appliance, Spec};
use crate::bench::{Bench, RunError};
use crate::load::{Connections, Generator, Target, first_byte};
use crate::observe::CpuReading;
use crate::observe::counters::instructions;
use tare_control::stats::Stats;

/// Longest time from exec to serving.
pub(crate) const BOOT: Duration = Duration::from_secs(30);
/// The file that is requested.
pub(crate) const FILE: &str = "kib.txt";

/// The file's content: 1 KiB of text.
pub(crate) fn body() -> Vec<u8> {
    let line = b"Tare is the weight of the packaging, to be subtracted from gros\n";
    line.repeat(16)
}

/// The machine of a turn, on an engine.
pub(crate) fn spec(plan: &Plan, root: &Path, turn: Turn, engine: &'static str) -> Spec {
    Spec {
        label: turn.arm.name().to_owned(),
        image: plan.image.clone(),
        root: Some(root.to_owned()),
        port: 80,
        cmdline: String::new(),
        engine,
        ring: turn.ring,
        idle: turn.arm.idle(),
        cpus: turn.cpus,
        memory_mib: plan.memory_mib,
    }
}

/// What a machine is started for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The arm.
    pub(crate) arm: Arm,
    /// The cycle, from 0.
    pub(crate) cycle: usize,
    /// vCPUs.
    pub(crate) cpus: u8,
    /// Processor ring of the image, as `tare run --ring` takes it.
    pub(crate) ring: &'static str,
}

/// A machine under test with everything around it. Dropping it ends the machine.
pub(crate) struct Session<'s, 'b> {
    pub(crate) bench: &'s mut Bench<'b>,
    pub(crate) data: &'s mut Data,
    pub(crate) plan: &'s Plan,
    pub(crate) turn: Turn,
    pub(crate) machine: Box<dyn Appliance>,
}

impl<'s, 'b> Session<'s, 'b> {
    /// Starts the turn's machine; it need not serve yet.
    pub(crate) fn start(
        bench: &'s mut Bench<'b>,
        data: &'s mut Data,
        plan: &'s Plan,
        root: &Path,
        turn: Turn,
    ) -> Result<Self, RunError> {
        let machine = bench.executor.start(&spec(plan, root, turn, "auto"))?;
        Ok(Self {
            bench,
            data,
            plan,
            turn,
            machine,
        })
    }

    /// Waits until the machine serves, and counts what that took.
    pub(crate) fn serve(&mut self) -> Result<(), RunError> {
        let after = self.machine.wait_serving(BOOT, self.bench.interrupt)?;
        self.bench.recorder.sample(&Line::Serving {
            arm: self.turn.arm,
            cpus: self.turn.cpus,
            after_ns: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX),
        })?;
        let one_cpu = self.turn.cpus == self.plan.cpus;
        if self.turn.arm == Arm::Tare
            && one_cpu
            && let Some(stats) = self.stats(Phase::Start)?
            && let Some(count) = instructions(&stats)
        {
            self.value("boot_insns", "insns", count)?;
        }
        Ok(())
    }

    /// Asks for the first byte and counts the time from the exec of `tare run`.
    pub(crate) fn first_byte(&mut self) -> Result<(), RunError> {
        self.machine.wait_serving(BOOT, self.bench.interrupt)?;
        let at = first_byte(&self.target(), BOOT, self.bench.interrupt)?;
        let after = at
            .ok_or(RunError::NoAnswer)?
            .duration_since(self.machine.started());
        self.value("first_byte_ms", "ms", after.as_secs_f64() * 1e3)?;
        self.stats(Phase::Start)?;
        self.data.image = self.machine.image();
        if let Some(bytes) = self.machine.image_bytes() {
            self.value("image_bytes", "bytes", bytes as f64)?;
        }
        Ok(())
    }

    /// Reads the machine's statistics, which wakes its I/O thread.
    pub(crate) fn stats(&mut self, phase: Phase) -> Result<Option<Stats>, RunError> {
        let place = self.place(phase);
        let Some(stats) = self.machine.stats()? else {
            return Ok(None);
        };
        self.data.stats(self.bench.recorder, place, &stats)?;
        Ok(Some(stats))
    }

    /// Sleeps for a window and keeps the CPU time in it.
    pub(crate) fn window(
        &mut self,
        phase: Phase,
        begin: Instant,
        before: &CpuReading,
        until: Instant,
    ) -> Result<CpuReading, RunError> {
        self.bench.interrupt.sleep_until(until)?;
        let reading = self.machine.cpu()?;
        let sample = CpuSample {
            place: self.place(phase),
            from_ns: u64::try_from(before.at.duration_since(begin).as_nanos()).unwrap_or(0),
            spent: reading.since(before),
        };
        self.data.cpu(self.bench.recorder, sample)?;
        Ok(reading)
    }

    /// Keeps a sample of a figure.
    pub(crate) fn value(
        &mut self,
        figure: &str,
        unit: &'static str,
        value: f64,
    ) -> Result<(), RunError> {
        Ok(self.data.value(self.bench.recorder, figure, unit, value)?)
    }

    /// A load generator for this machine.
    pub(crate) fn generator(&self, mode: Connections) -> Generator {
        Generator::new(&self.target(), mode, ms(self.plan.timeout_ms))
    }

    /// Where a sample of `phase` belongs.
    pub(crate) fn place(&self, phase: Phase) -> SamplePosition {
        SamplePosition {
            arm: self.turn.arm,
            cycle: self.turn.cycle,
            phase,
        }
    }

    fn target(&self) -> Target {
        Target {
            address: self.machine.address(),
            path: format!("/{FILE}"),
            body: Arc::from(body()),
        }
    }
}
