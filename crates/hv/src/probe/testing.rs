//! Probes of KVMs that do not exist, for tests.

use std::time::Duration;

use kvm_bindings::kvm_cpuid_entry2;

use super::instructions::INSTRUCTIONS;
use super::{Capabilities, InstructionResult, KvmKind, Probe, ProbeOutcome};
use crate::disable_exits::DisableExits;

/// A KVM with these leaves whose emulator lacks the instructions of these names.
pub(crate) fn probe(supported: Vec<kvm_cpuid_entry2>, lacking: &[&str]) -> Probe {
    let instructions = INSTRUCTIONS
        .iter()
        .map(|instruction| InstructionResult {
            instruction,
            outcome: if lacking.contains(&instruction.name) {
                ProbeOutcome::NotEmulated
            } else {
                ProbeOutcome::Works
            },
        })
        .collect();
    Probe {
        kind: KvmKind::Emulated,
        emulated_instructions: Some(402),
        loop_instructions: 402,
        loop_time: Duration::from_micros(300),
        instructions,
        shown_regardless: Vec::new(),
        capabilities: capabilities(),
        elapsed: Duration::from_millis(3),
        supported,
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        irqfd: true,
        ioeventfd_any_length: true,
        gsi_routes: 4096,
        halt_poll: true,
        disable_exits: DisableExits::HLT,
        stats_fd: true,
        tsc_deadline: true,
        x2apic_api: true,
        max_vcpus: 1024,
        tsc_khz: Some(2_450_000),
    }
}
