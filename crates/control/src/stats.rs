//! Statistics of a running machine, as JSON at `GET /v1/stats`.
//!
//! Counters only grow while the machine runs; times are nanoseconds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
pub use tare_account::Expiry;
use tare_host::process::threads_by_own_number;

use crate::halt::HaltPolicy;

/// What executes the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kvm {
    /// KVM on VT-x, SVM or another hardware mechanism.
    Hardware,
    /// KVM whose ring 0 is executed by its instruction emulator.
    Emulated,
    /// No KVM: QEMU's translator.
    #[default]
    None,
}

/// All statistics of one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Name of the run.
    pub name: String,
    /// Process ID of the monitor.
    pub pid: u32,
    /// What executes the guest.
    pub kvm: Kvm,
    /// The processor ring in which a library-OS image is to run, 0 or 3. An image that
    /// needs ring 0 stays there.
    #[serde(default)]
    pub ring: Option<u8>,
    /// Time since the monitor began, ns.
    pub uptime_ns: u64,
    /// Per vCPU, by index.
    pub vcpus: Vec<VcpuStats>,
    /// Per device, in bus order.
    pub devices: Vec<DeviceStats>,
    /// Per host thread.
    pub threads: Vec<ThreadStats>,
    /// Memory.
    pub memory: MemoryStats,
    /// How halted vCPUs wait.
    #[serde(default)]
    pub halt: Option<HaltStats>,
    /// Time limits and timers of the guest's program that ran out, as its image counts them.
    #[serde(default)]
    pub expiries: Vec<Expiry>,
}

/// How the halted vCPUs of a machine wait, and what that costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltStats {
    /// The policy in force.
    pub policy: HaltPolicy,
    /// Longest poll before a vCPU is scheduled out, ns; `None` is the kernel's.
    pub window_ns: Option<u64>,
    /// Where a budget stands: `idle` (no window is worth having), `within` (the
    /// best costs less), `spending` and `saving` (a better one has turns),
    /// `contended` (others want the CPU).
    pub standing: Option<String>,
    /// Halts that have ended, all vCPUs.
    pub halts: u64,
    /// Of them, those that ended while polled.
    pub caught: u64,
    /// Time spent polling, ns.
    pub polled_ns: u64,
    /// Share of one CPU spent polling since the begin, in millionths.
    pub polled_ppm: u64,
    /// How often a budget was reconsidered.
    pub looks: u64,
    /// How often the window was changed.
    pub changes: u64,
    /// Why a budget cannot be kept here, if it cannot.
    pub unavailable: Option<String>,
}

/// Counters of one vCPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VcpuStats {
    /// Index, also the APIC ID.
    pub index: u8,
    /// Returns from KVM_RUN to the monitor by kind: `pio_in`, `pio_out`,
    /// `mmio_read`, `mmio_write`, `hlt`, `interrupted`, ...
    pub exits: BTreeMap<String, u64>,
    /// KVM's own counters, by KVM's names (`halt_exits`, `halt_wait_ns`,
    /// `irq_injections`, `insn_emulation`, ...); empty where it has none.
    pub kvm: BTreeMap<String, u64>,
    /// Which of these are of the moment (`guest_mode`, `blocking`): they do not only grow.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub states: BTreeSet<String>,
    /// KVM's histograms of waits, log2 buckets of ns (`halt_wait_hist`, ...).
    pub histograms: BTreeMap<String, Vec<u64>>,
}

impl VcpuStats {
    /// All returns to the monitor.
    pub(crate) fn user_exits(&self) -> u64 {
        self.exits.values().sum()
    }

    /// Exits that the guest caused, as far as KVM tells: returns to the
    /// monitor, halts, injected interrupts. Zero between two samples means
    /// that the vCPU did not run.
    pub fn activity(&self) -> u64 {
        let kernel = |name: &str| self.kvm.get(name).copied().unwrap_or(0);
        self.user_exits() + kernel("halt_exits") + kernel("irq_injections")
    }
}

/// Counters of one device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceStats {
    /// `serial`, `net`, `blk`, `console` (ports of a program's streams), `rng`, ...
    pub kind: String,
    /// PCI address such as `00:01.0`; empty for a device that has none.
    pub address: String,
    /// Counters by name. Every virtio device has `interrupts`,
    /// `notifications`, `malformed`; net has `rx_bytes`, `rx_frames`,
    /// `rx_dropped`, `tx_bytes`, `tx_frames`, `tx_dropped`; blk has `reads`,
    /// `read_bytes`, `writes`, `write_bytes`, `flushes`, `io_errors`, `in_flight_sum` (over
    /// `coalesce_completions`: the mean queue depth), and of its
    /// coalescing `coalesce_completions`, `coalesce_delivered` (their quotient
    /// over a time is R), `coalesce_held`, `coalesce_longest_hold_ns`, and R's
    /// distribution: `coalesce_r0250_completions` are those in epochs whose R was
    /// 0.250.
    pub counters: BTreeMap<String, u64>,
}

impl Stats {
    /// Gives the threads the IDs that they have outside of the machine's PID namespace, as far as `/proc`
    /// shows them.
    pub(crate) fn number_threads_outside(&mut self) {
        let outside = threads_by_own_number(self.pid);
        for thread in &mut self.threads {
            thread.tid = *outside.get(&thread.tid).unwrap_or(&thread.tid);
        }
    }
}

/// CPU time of one host thread of the monitor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadStats {
    /// Thread ID in the machine's PID namespace, as the control socket gives it; outside of it
    /// [`crate::client::Client::stats`] has that of the host (`NSpid` of `/proc/PID/task/TID/status`).
    pub tid: u32,
    /// `vcpu0`, `io`, `main`, ...
    pub name: String,
    /// User mode, ns (for a vCPU thread, guest code counts here or in `system_ns`).
    pub user_ns: u64,
    /// Kernel mode, ns.
    pub system_ns: u64,
    /// Time on a CPU by the scheduler's account (/proc/.../schedstat), ns.
    pub run_ns: u64,
    /// Time runnable but waiting for a CPU, ns.
    pub wait_ns: u64,
}

/// Memory of the monitor, bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Size of guest memory.
    pub guest_bytes: u64,
    /// Guest memory that is resident.
    pub guest_resident_bytes: u64,
    /// Of that, in transparent huge pages.
    #[serde(default)]
    pub guest_huge_bytes: u64,
    /// Resident set of the monitor without guest memory.
    pub monitor_resident_bytes: u64,
}

#[cfg(test)]
mod tests {
    use tare_host::process::own_number;

    use super::*;

    #[test]
    fn threads_without_an_entry_keep_their_numbers() {
        let own = own_number().unwrap();
        let Some((inside, outside)) = threads_by_own_number(own).pop_first() else {
            return tare_vmtest::lacks("this kernel shows one ID of a thread");
        };
        let thread = |tid| ThreadStats {
            tid,
            ..ThreadStats::default()
        };
        let mut stats = Stats {
            name: String::new(),
            pid: own,
            kvm: Kvm::None,
            ring: None,
            uptime_ns: 0,
            vcpus: Vec::new(),
            devices: Vec::new(),
            threads: vec![thread(inside), thread(u32::MAX)],
            memory: MemoryStats::default(),
            halt: None,
            expiries: Vec::new(),
        };
        stats.number_threads_outside();
        let tids: Vec<u32> = stats.threads.iter().map(|it| it.tid).collect();
        assert_eq!(tids, [outside, u32::MAX]);
    }
}
