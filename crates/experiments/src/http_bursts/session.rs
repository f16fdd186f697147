//! Machines under test, from their start to their end.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tare_control::stats::Stats;
use tare_lab::kit::{Bench, RunError};
use tare_load::requests::{Connections, Generator, Target, first_byte};
use tare_machines::appliance::{Appliance, ServerKind, Spec};
use tare_machines::observe::CpuReading;
use tare_machines::observe::counters::instructions;

use super::arms::Arm;
use super::data::Data;
use super::plan::{Plan, ms};
use super::sample::{Boot, CpuSample, Line, Phase, SamplePosition};

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

impl Turn {
    /// What tells its machine's samples from those of others.
    pub(crate) fn boot(self) -> Boot {
        Boot {
            arm: self.arm.name().to_owned(),
            cycle: self.cycle,
        }
    }
}

/// A machine under test. Dropping it ends it.
pub(crate) struct Server {
    pub(crate) turn: Turn,
    pub(crate) machine: Box<dyn Appliance>,
}

impl Server {
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

/// What servers are measured with.
pub(crate) struct Session<'s, 'b> {
    pub(crate) bench: &'s mut Bench<'b>,
    pub(crate) data: &'s mut Data,
    pub(crate) plan: &'s Plan,
}

impl Session<'_, '_> {
    /// Starts the machine of a turn; it need not serve yet.
    pub(crate) fn start(&mut self, root: &Path, turn: Turn) -> Result<Server, RunError> {
        let spec = spec(self.plan, root, turn, "auto");
        let machine = self.bench.executor.start(ServerKind::Image(&spec))?;
        Ok(Server { turn, machine })
    }

    /// Waits until the machine serves, and counts what that took.
    pub(crate) fn serve(&mut self, server: &mut Server) -> Result<(), RunError> {
        let after = server.machine.wait_serving(BOOT, self.bench.interrupt)?;
        let turn = server.turn;
        let line = Line::Serving {
            arm: turn.arm,
            cycle: Some(turn.cycle),
            cpus: turn.cpus,
            after_ns: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX),
        };
        self.data.keep(self.bench.recorder, line)?;
        if turn.arm == Arm::Tare
            && turn.cpus == self.plan.cpus
            && let Some(stats) = self.stats(server, Phase::Start)?
        {
            // Other machines' ring is the experiment's choice.
            if let Some(ring) = stats.ring.filter(|_| turn.ring == "auto") {
                self.value(turn.boot(), "ring", f64::from(ring))?;
            }
            if let Some(count) = instructions(&stats) {
                self.value(turn.boot(), "boot_insns", count)?;
            }
        }
        Ok(())
    }

    /// Asks for the first byte and counts the time from the exec of `tare run`.
    pub(crate) fn first_byte(&mut self, server: &mut Server) -> Result<(), RunError> {
        server.machine.wait_serving(BOOT, self.bench.interrupt)?;
        let at = first_byte(&server.target(), BOOT, self.bench.interrupt)?;
        let after = at
            .ok_or(RunError::NoAnswer)?
            .duration_since(server.machine.started());
        let boot = server.turn.boot();
        self.value(boot.clone(), "first_byte_ms", after.as_secs_f64() * 1e3)?;
        self.stats(server, Phase::Start)?;
        self.data.image = server.machine.image();
        if let Some(bytes) = server.machine.image_bytes() {
            self.value(boot, "image_bytes", bytes as f64)?;
        }
        Ok(())
    }

    /// Reads the machine's statistics, which wakes its I/O thread.
    pub(crate) fn stats(
        &mut self,
        server: &mut Server,
        phase: Phase,
    ) -> Result<Option<Stats>, RunError> {
        let Some(stats) = server.machine.stats()? else {
            return Ok(None);
        };
        let line = Line::Stats {
            place: server.place(phase),
            stats: Box::new(stats.clone()),
        };
        self.data.keep(self.bench.recorder, line)?;
        Ok(Some(stats))
    }

    /// Sleeps for a window and keeps the CPU time in it.
    pub(crate) fn window(
        &mut self,
        server: &mut Server,
        phase: Phase,
        begin: Instant,
        before: &CpuReading,
        until: Instant,
    ) -> Result<CpuReading, RunError> {
        self.bench.interrupt.sleep_until(until)?;
        self.spent(server, phase, begin, before)
    }

    /// Keeps the CPU time since a reading, as a window that began then.
    pub(crate) fn spent(
        &mut self,
        server: &mut Server,
        phase: Phase,
        begin: Instant,
        before: &CpuReading,
    ) -> Result<CpuReading, RunError> {
        let reading = server.machine.cpu()?;
        let sample = CpuSample {
            place: server.place(phase),
            from_ns: u64::try_from(before.at.duration_since(begin).as_nanos()).unwrap_or(0),
            spent: reading.since(before),
        };
        self.data.keep(self.bench.recorder, Line::Cpu(sample))?;
        Ok(reading)
    }

    /// Keeps a sample of a figure.
    pub(crate) fn value(&mut self, boot: Boot, figure: &str, value: f64) -> Result<(), RunError> {
        let recorder = &mut *self.bench.recorder;
        Ok(self.data.value(recorder, Some(boot), figure, value)?)
    }

    /// A load generator for a machine.
    pub(crate) fn generator(&self, server: &Server, mode: Connections) -> Generator {
        Generator::new(&server.target(), mode, ms(self.plan.timeout_ms))
    }
}
