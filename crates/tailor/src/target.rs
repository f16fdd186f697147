//! The machine that a kernel is for, and its parts.

use serde::{Deserialize, Serialize};

/// The machine that a kernel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Tare's monitor: PCI, ACPI, PVH.
    Tare,
    /// QEMU, any of its PC machines.
    Qemu,
    /// Firecracker: virtio over MMIO.
    Firecracker,
}

/// A part that a machine has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A disk with a root file system.
    Disk,
    /// A network card.
    Network,
    /// A source of random numbers.
    Entropy,
    /// More than one CPU.
    SeveralCpus,
    /// Directories of the host (virtio-fs).
    Volumes,
}
