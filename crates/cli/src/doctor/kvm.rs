//! KVM: its kind, by running code, and its settings.

use std::fs;

use tare_hv::{Kvm, KvmKind, OpenError, Probe};

use super::finding::Finding;

const HALT_POLL_PARAMETERS: [&str; 4] = [
    "halt_poll_ns",
    "halt_poll_ns_grow",
    "halt_poll_ns_grow_start",
    "halt_poll_ns_shrink",
];

pub(super) fn findings() -> Vec<Finding> {
    let kvm = match Kvm::open() {
        Ok(kvm) => kvm,
        Err(error) => return vec![unusable(&error)],
    };
    match Probe::run(&kvm) {
        Ok(probe) => vec![
            kind(&probe),
            instructions(&probe),
            vcpus(&probe),
            halt_poll(&probe),
            statistics(&probe),
            exits(&probe),
        ],
        Err(error) => vec![
            Finding::limited(
                "kvm",
                format!("/dev/kvm opens, but the test fails: {error}"),
            )
            .remedy("use --engine qemu"),
        ],
    }
}

/// The error's message names the remedy.
fn unusable(error: &OpenError) -> Finding {
    let finding = Finding::missing("kvm", error.to_string());
    match error {
        OpenError::Missing | OpenError::Open(_) => finding.remedy("tare run uses QEMU instead"),
        _ => finding.remedy("until then use tare run --engine qemu"),
    }
}

fn kind(probe: &Probe) -> Finding {
    let each_ns = probe.loop_time.as_nanos() / u128::from(probe.loop_instructions.max(1));
    match probe.kind {
        KvmKind::Hardware => Finding::ok("kvm", "hardware virtualisation"),
        KvmKind::Emulated => Finding::limited(
            "kvm",
            format!(
                "KVM emulates guest ring 0 ({each_ns} ns per instruction) and executes ring 3 \
                 at full speed, so images run in ring 3"
            ),
        )
        .remedy("use --ring 0 to count every instruction of a guest exactly"),
    }
}

fn instructions(probe: &Probe) -> Finding {
    let broken: Vec<&str> = probe
        .broken()
        .map(|result| result.instruction.name)
        .collect();
    match broken.as_slice() {
        [] => Finding::ok(
            "instructions",
            format!(
                "all {} tested instructions work in ring 0",
                probe.instructions.len()
            ),
        ),
        names => Finding::limited(
            "instructions",
            format!("do not work in ring 0: {}", names.join(", ")),
        )
        .remedy("tare hides them from guests; an image that still uses one ends with exit code 74"),
    }
}

fn vcpus(probe: &Probe) -> Finding {
    Finding::ok(
        "vcpus",
        format!("up to {} per machine", probe.capabilities.max_vcpus),
    )
}

fn halt_poll(probe: &Probe) -> Finding {
    let parameters: Vec<String> = HALT_POLL_PARAMETERS
        .iter()
        .filter_map(|name| {
            let value = fs::read_to_string(format!("/sys/module/kvm/parameters/{name}")).ok()?;
            Some(format!("{name} {}", value.trim()))
        })
        .collect();
    let values = match parameters.as_slice() {
        [] => "cannot read KVM's parameters".to_owned(),
        values => values.join(", "),
    };
    if probe.capabilities.halt_poll {
        Finding::ok("halt polling", format!("can be set per machine; {values}"))
    } else {
        Finding::limited(
            "halt polling",
            format!("can be set only for the whole host; {values}"),
        )
        .remedy("use Linux 5.8 or newer, which has KVM_CAP_HALT_POLL")
    }
}

fn statistics(probe: &Probe) -> Finding {
    if probe.capabilities.stats_fd {
        Finding::ok("kvm statistics", "available per machine and vCPU")
    } else {
        Finding::missing("kvm statistics", "KVM has no statistics descriptors")
            .remedy("use Linux 5.14 or newer, which has KVM_GET_STATS_FD")
    }
}

fn exits(probe: &Probe) -> Finding {
    let names: Vec<&str> = probe.capabilities.disable_exits.names().collect();
    match names.as_slice() {
        [] => Finding::limited("exits", "KVM can disable none (KVM_CAP_X86_DISABLE_EXITS)"),
        names => Finding::ok("exits", format!("KVM can disable: {}", names.join(", "))),
    }
}
