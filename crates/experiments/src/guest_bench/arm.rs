//! Where something is measured, and with which settings.

use tare_lab::kit::{IfFails, Row, row};
use tare_machines::appliance::GuestSpec;

use super::ArmRound;

/// An arm of an experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    /// Name in figures.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) about: &'static str,
    /// What executes it.
    pub(crate) runs_in: RunsIn,
}

/// What executes an arm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunsIn {
    /// An image in Tare's own monitor.
    Tare(Settings),
    /// The same in QEMU on the same KVM, as the kernel is set.
    Qemu(Settings),
    /// A Linux guest in QEMU: on KVM where that is hardware's, else translated.
    Linux {
        /// vCPUs.
        cpus: u8,
    },
    /// Threads of the host.
    Host {
        /// CPUs that they are pinned to.
        cpus: usize,
    },
}

/// Settings of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// vCPUs.
    pub(crate) cpus: u8,
    /// How a halted vCPU waits, as `tare run --halt` takes it.
    pub(crate) halt: &'static str,
    /// Processor ring of the image.
    pub(crate) ring: &'static str,
    /// What its command line has besides.
    pub(crate) cmdline: &'static str,
}

/// A number of vCPUs in ring 0, where counts of instructions and halts compare with those of earlier
/// runs, on a KVM that waits as the kernel has it.
pub(crate) const fn cpus(cpus: u8) -> Settings {
    Settings {
        cpus,
        halt: "kernel",
        ring: "0",
        cmdline: "",
    }
}

/// The same in ring 3.
pub(crate) const fn in_ring_3(settings: Settings) -> Settings {
    Settings {
        ring: "3",
        ..settings
    }
}

impl Arm {
    /// An arm.
    pub(crate) const fn new(name: &'static str, about: &'static str, runs_in: RunsIn) -> Self {
        Self {
            name,
            about,
            runs_in,
        }
    }

    /// Whether its machines run in ring 3, which earlier versions' did not.
    pub(crate) fn is_in_ring_3(&self) -> bool {
        matches!(self.runs_in, RunsIn::Tare(settings) if settings.ring == "3")
    }

    /// How many of `rounds` it has: QEMU's firmware takes seconds under emulation, so that its
    /// arms have their turn in the first round alone.
    pub(crate) fn turns(&self, rounds: usize) -> usize {
        match self.runs_in {
            RunsIn::Tare(_) | RunsIn::Host { .. } => rounds,
            RunsIn::Qemu(_) | RunsIn::Linux { .. } => rounds.min(1),
        }
    }

    /// What follows where it fails: what not every host has is named in the report.
    pub(crate) fn if_fails(&self) -> IfFails {
        match self.runs_in {
            RunsIn::Tare(settings) if settings.halt == "dedicated" => IfFails::Drop,
            RunsIn::Tare(_) => IfFails::BreakOff,
            RunsIn::Qemu(_) | RunsIn::Linux { .. } | RunsIn::Host { .. } => IfFails::GoOn,
        }
    }

    /// The machine of a turn.
    pub(crate) fn machine(&self, round: usize, image: &str, cmdline: &str) -> GuestSpec {
        let (engine, settings) = match self.runs_in {
            RunsIn::Tare(settings) => ("tare", settings),
            RunsIn::Qemu(settings) => ("qemu-kvm", settings),
            RunsIn::Linux { cpus: count } => ("qemu", cpus(count)),
            RunsIn::Host { .. } => ("tare", cpus(1)),
        };
        let cmdline = format!("{cmdline} {}", settings.cmdline)
            .trim_end()
            .to_owned();
        GuestSpec {
            engine,
            halt: settings.halt,
            ring: settings.ring,
            ..self.round(round).machine(image, settings.cpus, cmdline)
        }
    }

    /// Its place in the record.
    pub(crate) fn round(&self, round: usize) -> ArmRound {
        let arm = self.name;
        ArmRound { arm, round }
    }

    /// Its row in a report's tables: `about` and `arm`.
    pub(crate) fn row(&self) -> Row {
        row([("about", self.about), ("arm", self.name)])
    }
}
