//! A virtual machine, the program that runs it, and the roles of its threads.

use serde::{Deserialize, Serialize};

/// A KVM virtual machine: a process that holds a `kvm-vm` descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// Process ID of the monitor.
    pub pid: u32,
    /// Start of the process in clock ticks since boot: distinguishes it from a later
    /// process of the same ID.
    pub started_ticks: u64,
    /// Tare's name of the run, QEMU's `-name`, Firecracker's `--id`, else the
    /// process's name.
    pub name: String,
    /// Which program runs it.
    pub monitor: Monitor,
    /// The monitor's command line.
    pub command: Vec<String>,
    /// Its vCPUs' indices, ascending.
    pub vcpus: Vec<u32>,
}

/// A program that runs virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Monitor {
    /// `tare-monitor`.
    Tare,
    /// QEMU, also below libvirt.
    Qemu,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// Another program.
    Other,
}

/// What a thread of a monitor (or a kernel thread working for it) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs the vCPU of this index.
    Vcpu(u32),
    /// The monitor's first thread: event loop, timers, device emulation.
    Emulator,
    /// I/O of devices (QEMU's iothreads, Tare's `io`, device threads).
    Io,
    /// A pool's thread, started for blocking work.
    Worker,
    /// A vhost worker of the kernel.
    Vhost,
    /// KVM's own thread for the VM (`kvm-pit/PID`, `kvm-nx-lpage-re`).
    Kvm,
    /// A separate process that works for the machine: passt, a vhost-user daemon.
    Helper,
    /// Anything else.
    Other,
}
