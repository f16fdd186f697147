//! The rules on made loads, a machine each; recorded accounts are replayed in
//! `tests/recorded.rs`.

mod cpusets;
mod helpers;
mod intervals;
mod quotas;

use tare_account::{Device, Role};

use super::*;

/// An emulated machine of QEMU with one vCPU that does nothing.
fn idle() -> Load {
    Load {
        name: "web".to_owned(),
        pid: 4711,
        seconds: 2.0,
        monitor: Monitor::Qemu,
        qemu: CommandLine::default(),
        events: Events::Counted,
        counted_seconds: 2.0,
        timer_line: TimerLine::Certain,
        sent_ipis: 0.0,
        throttled: Vec::new(),
        cpusets: Vec::new(),
        margins: Margins::default(),
        expiries: Vec::new(),
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
        wakeups: 0.0,
    }
}

fn first(load: &Load) -> Finding {
    let diagnosis = diagnose(load, None).rendered(str::to_owned);
    diagnosis.findings.into_iter().next().unwrap()
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
fn hpet_interrupts_include_the_main_loops_part() {
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
fn pit_and_rtc_are_distinguished() {
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
fn a_tick_of_a_program_names_the_call_that_waits_and_its_setting() {
    let mut load = woken(idle(), Source::Timer, 10.0, 0.01);
    load.monitor = Monitor::Tare;
    let plain = first(&load);
    assert!(plain.remedy.contains("instead of in steps"), "{plain:?}");
    load.expiries = vec![Expired {
        origin: "epoll_wait of redis-server (thread 1)".to_owned(),
        thread_name: "redis-server".to_owned(),
        per_second: 10.0,
    }];
    let found = first(&load);
    let line = "time limits and timers of the program that ran out: epoll_wait of redis-server \
                (thread 1) 10/s";
    assert!(found.evidence.iter().any(|it| it == line), "{found:?}");
    assert!(found.remedy.contains("--hz 1"), "{found:?}");
    assert!(
        found.remedy.contains("saves about 0.9 % of a core"),
        "{found:?}"
    );
}

#[test]
fn failed_polls_are_distinguished_from_those_that_pay() {
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
    assert_eq!(
        found.evidence,
        ["0 interrupts and 0 exits in the 2.0 s that were counted"]
    );
    // A burst of 24 ms that saw no halt says nothing.
    load.counted_seconds = 0.024;
    assert_eq!(first(&load).cause, Cause::Guest);
    load.counted_seconds = 2.0;
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
    assert!(found.what.contains("between vCPUs, 36,000/s"), "{found:?}");
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
    load.vcpus[0].taken_by = vec![Taker {
        name: "stress (99)".to_owned(),
        is_own: false,
        share: 0.6,
    }];
    load.vcpus[0].allowed = vec![0];
    let found = first(&load);
    assert_eq!((found.cause, found.basis), (Cause::Steal, Basis::Measured));
    assert!(
        found
            .evidence
            .iter()
            .any(|e| e.contains("stress (99) 60 %"))
    );
    let mut second = load.vcpus[0].clone();
    second.index = 1;
    load.vcpus.push(second);
    let found = first(&load);
    assert_eq!(found.cause, Cause::PinnedTogether);
    assert!(found.what.contains("vCPUs 0 and 1"), "{found:?}");
    // Of a sample that shows too little only the names are known.
    let mut sampled = load.clone();
    sampled.counted_seconds = sampled.seconds * 0.1;
    sampled
        .vcpus
        .iter_mut()
        .for_each(|vcpu| vcpu.taken_by[0].share = 0.01);
    let evidence = &first(&sampled).evidence[1];
    assert_eq!(
        evidence,
        "meanwhile their CPUs ran, among others: stress (99)"
    );
    // Others had that CPU too.
    assert!(found.evidence[1].contains("stress (99)"), "{found:?}");
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
        + parts.kernel_threads
        + parts.unknown;
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
    let priced = |execution| {
        let measured = Measured::of(execution, figures).unwrap();
        let findings = diagnose(&load, Some(&measured)).findings;
        let exits = findings.into_iter().find(|f| f.cause == Cause::Exits);
        (
            exits.as_ref().unwrap().share,
            exits.unwrap().evidence.join("; "),
        )
    };
    // 1,000 a second of 100 us each; 0.2 of the time would make it all theirs.
    let (share, evidence) = priced(Execution::Emulated);
    assert!((share - 0.1).abs() < 1e-9, "{share}");
    assert!(evidence.contains("100,000 ns each, as tare weigh vmexit measured it"));
    let (share, evidence) = priced(Execution::Hardware);
    assert!((share - 0.004).abs() < 1e-9, "{share}");
    assert!(evidence.contains("about 4,000 ns each, by a built-in estimate"));
    assert!(!evidence.contains("its share is"), "{evidence}");
    // A tenth of a core is less than the prices of all of them together.
    load.vcpus[0].cpu = 0.1;
    load.vcpus[0].exits = [(Exit::Cpuid, 10_000.0)].into();
    let measured = Measured::of(Execution::Emulated, figures).unwrap();
    let findings = diagnose(&load, Some(&measured)).findings;
    let exits = findings
        .into_iter()
        .find(|f| f.cause == Cause::Exits)
        .unwrap();
    let evidence = exits.evidence.join("; ");
    assert!((exits.share - 0.1).abs() < 1e-9, "{exits:?}");
    assert!(
        evidence.ends_with(
            "its share comes to 10,000 ns each: the vCPU's time is less than the estimated costs of these exits"
        ),
        "{evidence}"
    );
}

/// The evidence of what exits are charged with, if it is not their price.
fn charged(load: &Load) -> Option<String> {
    let findings = diagnose(load, None).findings.into_iter();
    let mut exits = findings.filter(|found| found.cause == Cause::Exits);
    let evidence = exits.next().unwrap().evidence.into_iter();
    let mut charged = evidence.filter(|line| line.starts_with("its share comes to"));
    charged.next()
}

#[test]
fn exits_within_wake_ups_are_the_reason_where_each_has_less_than_its_price() {
    // Of 0.5 of a core the wake-ups have 0.3: 100 a second of 3 ms.
    let mut load = woken(idle(), Source::Device, 100.0, 0.5);
    let (hz, share) = (100.0, 0.3);
    load.vcpus[0].awake = [(Source::Device, Awake { hz, share })].into();
    load.vcpus[0].exits = [(Exit::Cpuid, 10_000.0)].into();
    assert_eq!(
        charged(&load).unwrap(),
        "its share comes to 1,600 ns each: 60 % of these exits are attributed to wake-ups"
    );
}

#[test]
fn on_hardware_the_kernels_clocks_are_the_reason_where_each_has_another_price() {
    let mut load = idle();
    load.execution = Execution::Hardware;
    load.vcpus[0].cpu = 0.5;
    load.vcpus[0].exits = [(Exit::Cpuid, 100_000.0)].into();
    let mut with_guest = |guest| {
        load.vcpus[0].guest = Some(guest);
        charged(&load)
    };
    assert_eq!(
        with_guest(0.3).unwrap(),
        "its share comes to 2,000 ns each: the kernel's clocks show more time outside the guest \
         than the estimated costs of these exits"
    );
    assert_eq!(
        with_guest(0.48).unwrap(),
        "its share comes to 200 ns each: the kernel's clocks show less time outside the guest \
         than the estimated costs of these exits"
    );
    assert_eq!(with_guest(0.43), None);
}

#[test]
fn exits_at_a_timer_that_does_not_interrupt_are_exits() {
    let hpet = Exit::Memory {
        page: 0xfed0_0000,
        device: Device::Hpet,
    };
    let pit = Exit::Port {
        port: 0x40,
        device: Device::Pit,
    };
    let rtc = Exit::Port {
        port: 0x71,
        device: Device::Rtc,
    };
    let deadline = Exit::Msr { index: 0x6e0 };
    let count = Exit::Apic { register: 0x390 };
    let end = Exit::Apic { register: 0xb0 };
    for exit in [hpet, pit, rtc, deadline, count, end] {
        let mut load = idle();
        load.vcpus[0].cpu = 0.98;
        load.vcpus[0].exits = [(exit, 96_000.0)].into();
        // A tick beside it explains none of it.
        load.vcpus[0].interrupts = [(Source::Timer, 250.0), (Source::Hpet, 30.0)].into();
        let found = first(&load);
        assert_eq!(found.cause, Cause::Exits, "{found:?}");
        assert!(found.what.contains("96,000/s"), "{found:?}");
        assert!(found.share > 0.8 && !found.remedies.is_empty(), "{found:?}");
    }
}

#[test]
fn time_awake_is_the_interrupts_that_ended_the_halt() {
    let mut load = woken(idle(), Source::Timer, 250.0, 0.25);
    load.vcpus[0].halts = 300.0;
    load.vcpus[0].interrupts = [(Source::Timer, 250.0), (Source::Device, 50.0)].into();
    let awake = |hz, share| Awake { hz, share };
    load.vcpus[0].awake = [
        (Source::Timer, awake(250.0, 0.013)),
        (Source::Device, awake(50.0, 0.23)),
    ]
    .into();
    let findings = diagnose(&load, None).findings;
    let share = |cause| findings.iter().find(|f| f.cause == cause).unwrap().share;
    assert_eq!(findings[0].cause, Cause::DeviceInterrupts);
    assert!(share(Cause::DeviceInterrupts) >= 0.23, "{findings:?}");
    assert!(share(Cause::PeriodicTick) < 0.03, "{findings:?}");
}

#[test]
fn without_bpf_what_is_unknown_is_not_zero() {
    let mut load = idle();
    load.events = Events::Unknown;
    load.vcpus[0].cpu = 0.98;
    let found = first(&load);
    assert_eq!(found.cause, Cause::Unknown);
    assert!(found.what.contains("BPF is unavailable"), "{found:?}");
    assert!(found.remedy.contains("sudo tare why 4711"), "{found:?}");
    let diagnosis = diagnose(&load, None);
    assert!((diagnosis.breakdown.unknown - 0.98).abs() < 1e-9);
    assert!(
        diagnosis
            .findings
            .iter()
            .all(|f| f.cause != Cause::GuestSpins)
    );
}

#[test]
fn a_masked_pit_and_a_pit_in_qemu_are_named() {
    let mut load = idle();
    load.threads.push(thread("kvm-pit/4711", Role::Kvm, 0.019));
    let raised = Raised {
        hz: 1000.0,
        by_monitor_hz: 0.0,
    };
    load.raised.insert(Source::Pit, raised);
    let found = first(&load);
    assert_eq!(found.cause, Cause::Pit);
    assert!(found.what.contains("masks"), "{found:?}");
    assert!((found.share - 0.019).abs() < 1e-9);
    let mut load = woken(idle(), Source::Pit, 1000.0, 0.05);
    load = raised_by_monitor(load, Source::Pit, 1000.0);
    load.threads[0].cpu = 0.03;
    load.threads[0].wakeups = 1000.0;
    let found = first(&load);
    assert_eq!(found.cause, Cause::Pit);
    assert!((found.share - 0.08).abs() < 1e-9, "{found:?}");
}

#[test]
fn options_of_qemu_are_named_in_the_remedy() {
    let with = |line: &str| {
        let mut load = idle();
        load.threads[0].cpu = 0.025;
        load.threads[0].wakeups = 950.0;
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        load.qemu = CommandLine::new(&args);
        let found = first(&load);
        assert!(
            found.what.contains("VMM main loop, 950/s wake-ups"),
            "{found:?}"
        );
        found.remedy
    };
    let usb = with("qemu -M pc -device piix3-usb-uhci -device usb-tablet");
    assert_eq!(
        usb,
        "start QEMU without -device piix3-usb-uhci -device usb-tablet"
    );
    assert_eq!(with("qemu -M microvm"), "start QEMU with -machine pit=off");
    assert!(with("qemu -M q35").contains("strace -c -f -p 4711"));
}

/// Loads of all kinds, by a generator that is the same every time.
fn some_load(seed: u64) -> Load {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut load = idle();
    if next(2) == 0 {
        load.execution = Execution::Hardware;
    }
    if next(8) == 0 {
        load.events = Events::Unknown;
    }
    let exits = [
        Exit::Cpuid,
        Exit::Hypercall,
        Exit::Msr { index: 0x6e0 },
        Exit::Apic { register: 0xb0 },
        Exit::Apic { register: 0x300 },
        Exit::Apic { register: 0x390 },
        Exit::Memory {
            page: 0xfed0_0000,
            device: Device::Hpet,
        },
        Exit::Port {
            port: 0x71,
            device: Device::Rtc,
        },
    ];
    let sources = [
        Source::Hpet,
        Source::Pit,
        Source::Rtc,
        Source::Timer,
        Source::Ipi,
        Source::SelfIpi,
        Source::Device,
    ];
    let mut vcpu = load.vcpus.remove(0);
    for index in 0..=next(3) {
        vcpu.index = index as u32;
        vcpu.cpu = next(1001) as f64 / 1000.0;
        vcpu.guest =
            (load.execution == Execution::Hardware).then(|| vcpu.cpu * next(101) as f64 / 100.0);
        vcpu.polling.lost = vcpu.cpu * next(3) as f64 / 10.0;
        vcpu.polling.lost_hz = next(2) as f64;
        vcpu.halts = [0.0, 3.0, 900.0][next(3) as usize];
        vcpu.exits.clear();
        vcpu.interrupts.clear();
        vcpu.awake.clear();
        for exit in exits {
            if next(3) == 0 {
                vcpu.exits.insert(exit, next(100_000) as f64);
            }
        }
        for source in sources {
            if next(3) == 0 {
                vcpu.interrupts.insert(source, next(3_000) as f64);
                let share = vcpu.cpu * next(50) as f64 / 100.0;
                if next(2) == 0 {
                    vcpu.awake.insert(source, Awake { hz: 300.0, share });
                }
            }
        }
        load.vcpus.push(vcpu.clone());
    }
    let roles = [
        Role::Emulator,
        Role::Io,
        Role::Kvm,
        Role::Vhost,
        Role::Worker,
        Role::Other,
    ];
    for role in roles {
        if next(2) == 0 {
            load.threads
                .push(thread("some", role, next(400) as f64 / 1000.0));
        }
    }
    for source in [Source::Hpet, Source::Pit, Source::Rtc, Source::Device] {
        if next(2) == 0 {
            load = raised_by_monitor(load, source, next(2_000) as f64);
        }
    }
    load
}

#[test]
fn every_part_of_the_breakdown_is_in_a_finding() {
    for seed in 1..3_000 {
        let load = some_load(seed);
        let diagnosis = diagnose(&load, None);
        let parts = diagnosis.breakdown.parts();
        for (index, (name, share)) in parts.iter().enumerate() {
            let findings = diagnosis.findings.iter();
            let explained: f64 = findings.map(|found| found.parts.parts()[index].1).sum();
            assert!(
                (share - explained).abs() <= 0.01,
                "{seed}: {name} {share}, explained {explained}: {diagnosis:#?}"
            );
        }
        let sum: f64 = parts.iter().map(|(_, share)| share).sum();
        assert!((sum - diagnosis.breakdown.total).abs() < 1e-6, "{seed}");
    }
}

#[test]
fn every_cause_but_the_guests_work_has_a_remedy_for_every_vmm() {
    let causes = [
        Cause::GuestSpins,
        Cause::PollingLoses,
        Cause::Polling,
        Cause::Hpet,
        Cause::Pit,
        Cause::Rtc,
        Cause::PeriodicTick,
        Cause::IpiStorm,
        Cause::SelfIpis,
        Cause::DeviceInterrupts,
        Cause::EmulatorThread,
        Cause::Unknown,
    ];
    let vmms = [
        Monitor::Tare,
        Monitor::Qemu,
        Monitor::Libvirt,
        Monitor::Firecracker,
        Monitor::CloudHypervisor,
        Monitor::Other,
    ];
    for monitor in vmms {
        let load = Load { monitor, ..idle() };
        for cause in causes {
            assert!(
                !advice::for_cause(cause, &load).is_empty(),
                "{cause:?} {monitor:?}"
            );
        }
        assert!(!advice::steal(&load, &[&load.vcpus[0]]).is_empty());
        assert!(!advice::exits(&Exit::Cpuid, &load).is_empty());
    }
}
