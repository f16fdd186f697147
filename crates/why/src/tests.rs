//! The rules on made loads, a machine each; recorded accounts are replayed in
//! `tests/recorded.rs`.
#![allow(clippy::unwrap_used)]

use tare_account::Device;
use tare_account::Role;

use super::*;

/// An emulated machine of QEMU with one vCPU that does nothing.
fn idle() -> Load {
    Load {
        monitor: Monitor::Qemu,
        execution: Execution::Emulated,
        host_cpus: 4,
        vcpus: vec![Vcpu {
            allowed: vec![0, 1, 2, 3],
            ..Vcpu::default()
        }],
        threads: vec![thread("qemu-system-x86", Role::Emulator, 0.0005)],
        raised: [].into(),
    }
}

fn thread(name: &str, role: Role, cpu: f64) -> Thread {
    Thread {
        name: name.to_owned(),
        role,
        cpu,
    }
}

fn first(load: &Load) -> Finding {
    diagnose(load, None).findings.into_iter().next().unwrap()
}

/// A vCPU that is woken by `source` and halts again.
fn woken(mut load: Load, source: Source, hz: f64, cpu: f64) -> Load {
    let vcpu = &mut load.vcpus[0];
    vcpu.cpu = cpu;
    vcpu.halts = hz;
    vcpu.interrupts = [(source, hz)].into();
    load
}

fn raised_by_monitor(mut load: Load, source: Source, hz: f64) -> Load {
    let raised = Raised {
        hz,
        by_monitor_hz: hz,
    };
    load.raised.insert(source, raised);
    load
}

#[test]
fn an_idle_machine_has_nothing_to_find() {
    assert_eq!(diagnose(&idle(), None).findings, []);
}

#[test]
fn hpet_interrupts_are_told_with_the_main_loops_part() {
    let mut load = woken(idle(), Source::Hpet, 1000.0, 0.28);
    load = raised_by_monitor(load, Source::Hpet, 1000.0);
    load.threads[0].cpu = 0.024;
    let found = first(&load);
    assert_eq!(found.cause, Cause::Hpet);
    assert!((found.share - 0.304).abs() < 1e-9, "{found:?}");
    assert!(
        found
            .sentence()
            .starts_with("HPET interrupts, 1,000/s, about 30 %")
    );
    assert_eq!(found.remedy, "start QEMU with -machine hpet=off");
    let all = diagnose(&load, None).findings;
    assert!(
        all.iter().all(|f| f.cause != Cause::EmulatorThread),
        "{all:?}"
    );
}

#[test]
fn pit_and_rtc_are_told_apart() {
    let mut load = woken(idle(), Source::Pit, 1000.0, 0.25);
    load.threads.push(thread("kvm-pit/4711", Role::Kvm, 0.01));
    load.raised.insert(
        Source::Pit,
        Raised {
            hz: 1000.0,
            by_monitor_hz: 0.0,
        },
    );
    assert_eq!(first(&load).cause, Cause::Pit);
    let load = woken(idle(), Source::Rtc, 512.0, 0.15);
    let load = raised_by_monitor(load, Source::Rtc, 512.0);
    assert_eq!(first(&load).cause, Cause::Rtc);
}

#[test]
fn a_tick_is_periodic_or_uneven() {
    let mut load = woken(idle(), Source::Timer, 250.0, 0.2);
    load.vcpus[0].timer_regularity = 0.97;
    let found = first(&load);
    assert_eq!(found.cause, Cause::PeriodicTick);
    assert!(found.what.contains("periodic timer, 250/s"), "{found:?}");
    load.vcpus[0].timer_regularity = 0.2;
    assert!(first(&load).what.contains("uneven"));
}

#[test]
fn polling_in_vain_is_told_from_polling_that_pays() {
    let mut load = woken(idle(), Source::Timer, 600.0, 0.5);
    load.vcpus[0].polling = Polling {
        won: 0.02,
        lost: 0.4,
        won_hz: 100.0,
        lost_hz: 500.0,
    };
    let found = first(&load);
    assert_eq!(
        (found.cause, found.basis),
        (Cause::PollingLoses, Basis::Measured)
    );
    load.vcpus[0].polling.won = 0.41;
    assert_eq!(first(&load).cause, Cause::Polling);
}

#[test]
fn a_guest_that_never_halts_spins() {
    let mut load = idle();
    load.vcpus[0].cpu = 1.0;
    let found = first(&load);
    assert_eq!(found.cause, Cause::GuestSpins);
    assert!((found.share - 1.0).abs() < 1e-9);
    // Work that is interrupted and halts is the guest's own.
    load.vcpus[0].cpu = 0.6;
    load.vcpus[0].halts = 20.0;
    load.vcpus[0].interrupts = [(Source::Device, 20.0)].into();
    assert_eq!(first(&load).cause, Cause::Guest);
}

#[test]
fn interrupts_between_vcpus_are_a_storm() {
    let mut load = idle();
    load.vcpus.push(load.vcpus[0].clone());
    load.vcpus[1].index = 1;
    load.vcpus[0].cpu = 1.0;
    let icr = Exit::Apic { register: 0x300 };
    load.vcpus[0].exits = [(icr, 36_000.0)].into();
    load.vcpus[1].cpu = 1.0;
    load.vcpus[1].interrupts = [(Source::Ipi, 36_000.0)].into();
    let found = first(&load);
    assert_eq!(found.cause, Cause::IpiStorm);
    assert!(found.what.contains("36,000/s"), "{found:?}");
    assert!(found.share > 1.9, "{found:?}");
}

#[test]
fn exits_at_a_port_name_port_device_and_remedy() {
    let mut load = idle();
    load.vcpus[0].cpu = 1.0;
    let serial = Exit::Port {
        port: 0x3fd,
        device: Device::Serial,
    };
    load.vcpus[0].exits = [(serial, 55_000.0), (Exit::Cpuid, 10.0)].into();
    let found = first(&load);
    assert_eq!(found.cause, Cause::Exits);
    assert!(
        found.what.contains("0x3fd (serial port), 55,000/s"),
        "{found:?}"
    );
    assert!(found.remedy.contains("console"));
}

#[test]
fn on_hardware_exits_cost_what_the_guest_did_not_run() {
    let mut load = idle();
    load.execution = Execution::Hardware;
    load.vcpus[0].cpu = 1.0;
    load.vcpus[0].guest = Some(0.7);
    load.vcpus[0].exits = [(Exit::Cpuid, 10_000.0)].into();
    let diagnosis = diagnose(&load, None);
    assert!(
        (diagnosis.breakdown.exits - 0.3).abs() < 1e-9,
        "{diagnosis:?}"
    );
    assert!(
        (diagnosis.breakdown.guest - 0.7).abs() < 1e-9,
        "{diagnosis:?}"
    );
}

#[test]
fn threads_of_the_monitor_are_named() {
    let mut load = idle();
    load.threads[0].cpu = 0.4;
    load.threads.push(thread("IO iothread0", Role::Io, 0.1));
    let found = first(&load);
    assert_eq!(found.cause, Cause::EmulatorThread);
    assert!((found.share - 0.5).abs() < 1e-9);
    assert!(found.evidence[0].contains("IO iothread0 10 %"), "{found:?}");
}

#[test]
fn interrupts_of_a_device_are_its_own() {
    let load = woken(idle(), Source::Device, 2000.0, 0.6);
    let load = raised_by_monitor(load, Source::Device, 2000.0);
    let found = first(&load);
    assert_eq!(found.cause, Cause::DeviceInterrupts);
    assert!(found.what.contains("2,000/s"));
}

#[test]
fn waiting_for_a_cpu_is_steal_or_the_machines_own_pinning() {
    let mut load = idle();
    load.vcpus[0].cpu = 0.33;
    load.vcpus[0].waiting = 0.66;
    load.vcpus[0].preempted_by = vec!["stress (99)".to_owned()];
    load.vcpus[0].allowed = vec![0];
    let found = first(&load);
    assert_eq!((found.cause, found.basis), (Cause::Steal, Basis::Measured));
    assert!(found.evidence.iter().any(|e| e.contains("stress (99)")));
    let mut second = load.vcpus[0].clone();
    second.index = 1;
    load.vcpus.push(second);
    let found = first(&load);
    assert_eq!(found.cause, Cause::PinnedTogether);
    assert!(found.what.contains("vCPUs 0 and 1"), "{found:?}");
    // A host that has no further CPU is full, not pinned.
    load.host_cpus = 1;
    assert_eq!(first(&load).cause, Cause::Steal);
}

#[test]
fn the_breakdown_adds_up_to_the_whole() {
    let mut load = woken(idle(), Source::Timer, 300.0, 0.9);
    load.vcpus[0].exits = [(Exit::Hypercall, 9_000.0)].into();
    load.vcpus[0].polling.lost = 0.1;
    load.threads.push(thread("io", Role::Io, 0.05));
    load.threads.push(thread("vhost-4711", Role::Vhost, 0.02));
    let parts = diagnose(&load, None).breakdown;
    let sum = parts.guest
        + parts.polling
        + parts.interrupts
        + parts.exits
        + parts.io_threads
        + parts.emulator_threads
        + parts.kernel_threads;
    assert!((sum - parts.total).abs() < 1e-9, "{parts:?}");
    assert!((parts.total - load.cpu()).abs() < 1e-9);
}

#[test]
fn causes_come_largest_first() {
    let mut load = woken(idle(), Source::Timer, 100.0, 0.1);
    load.threads[0].cpu = 0.5;
    let shares: Vec<f64> = diagnose(&load, None)
        .findings
        .iter()
        .map(|f| f.share)
        .collect();
    assert!(
        shares.len() > 1 && shares.is_sorted_by(|a, b| a >= b),
        "{shares:?}"
    );
}

#[test]
fn exits_cost_what_was_measured_on_that_kind_of_kvm_and_the_evidence_says_so() {
    let mut load = idle();
    load.vcpus[0].cpu = 1.0;
    load.vcpus[0].exits = [(Exit::Cpuid, 1_000.0)].into();
    let figures = [("exit_ns.control", 500.0), ("exit_ns.cpuid", 100_500.0)];
    let told = |execution| {
        let measured = Measured::of(execution, figures).unwrap();
        let findings = diagnose(&load, Some(&measured)).findings;
        let exits = findings.into_iter().find(|f| f.cause == Cause::Exits);
        (
            exits.as_ref().unwrap().share,
            exits.unwrap().evidence.join("; "),
        )
    };
    // 1,000 a second of 100 us each; 0.2 of the time would make it all theirs.
    let (share, evidence) = told(Execution::Emulated);
    assert!((share - 0.1).abs() < 1e-9, "{share}");
    assert!(evidence.contains("100,000 ns each, as tare weigh vmexit measured it"));
    let (share, evidence) = told(Execution::Hardware);
    assert!((share - 0.004).abs() < 1e-9, "{share}");
    assert!(evidence.contains("about 4,000 ns each, by a built-in estimate"));
}
