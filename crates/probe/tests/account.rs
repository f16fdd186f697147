//! Accounts of real machines against what their guests did.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, id};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets, CpuSet, sched_setaffinity, set_capabilities};
use support::{Own, Storm, alone, counted, times};
use tare_account::{Access, Account, Device, ExitKind, Injector, IpiMode, IrqLine, Step};
use tare_probe::kvm::{Counting, Limits, Observer};
use tare_probe::vm::{self, FindError, Monitor, Role};
use tare_probe::{Source, Unavailable};

const WINDOW: Duration = Duration::from_secs(2);

fn count(account: &Account, kind: &ExitKind) -> u64 {
    let exits = account.exits();
    let found = exits.iter().find(|exit| exit.kind == *kind);
    found.map_or(0, |exit| exit.count)
}

fn port(port: u16, access: Access, device: Device) -> ExitKind {
    ExitKind::Port {
        port,
        access,
        device,
    }
}

#[test]
fn every_exit_is_counted_by_what_caused_it() {
    let _alone = alone();
    let body = [
        times(100, &[0xe6, 0x70]),
        times(50, &[0xe4, 0x71]),
        times(30, &[0x31, 0xc0, 0x0f, 0xa2]),
        // RDMSR of the APIC's base: always intercepted.
        times(20, &[0xb9, 0x1b, 0, 0, 0, 0x0f, 0x32]),
        times(40, &[0xa3, 0, 0, 0xd0, 0xfe]),
    ]
    .concat();
    let Some(own) = Own::new(&body) else { return };
    let vm = vm::of_pid(id()).unwrap();
    assert_eq!(vm.monitor, Monitor::Other);
    let mut observer = Observer::counting(&[vm], Counting::Every);
    own.run();
    let Some(account) = counted(observer.turn().remove(0)) else {
        return;
    };
    assert_eq!(
        count(&account, &port(0x70, Access::Write, Device::Rtc)),
        100
    );
    assert_eq!(count(&account, &port(0x71, Access::Read, Device::Rtc)), 50);
    assert_eq!(count(&account, &ExitKind::Cpuid { leaf: 0 }), 30);
    let base = ExitKind::Msr {
        index: 0x1b,
        access: Access::Read,
    };
    assert_eq!(count(&account, &base), 20);
    let hpet = ExitKind::Memory {
        page: 0xfed0_0000,
        access: Access::Write,
        device: Device::Hpet,
    };
    assert_eq!(count(&account, &hpet), 40);
    // KVM_EXIT_MMIO, and KVM_EXIT_IO by which the guest ends.
    assert_eq!(count(&account, &ExitKind::UserSpace { reason: 6 }), 40);
    assert_eq!(count(&account, &ExitKind::UserSpace { reason: 2 }), 151);
    assert!(account.observer.bpf_runs.is_none_or(|runs| runs >= 240));
}

#[test]
fn windows_follow_each_other_without_gap_or_overlap() {
    const READS: u32 = 30_000;
    let _alone = alone();
    let body = [
        &[0xb9][..],
        &READS.to_le_bytes(),
        &[0xe4, 0x71, 0x49, 0x75, 0xfb],
    ]
    .concat();
    let Some(own) = Own::new(&body) else { return };
    let vms = [vm::of_pid(id()).unwrap()];
    let mut observer = Observer::counting(&vms, Counting::Every);
    let guest = std::thread::spawn(move || {
        own.run();
        own
    });
    let (mut reads, mut turns) = (0, 0);
    loop {
        let ended = guest.is_finished();
        let Some(account) = counted(observer.turn().remove(0)) else {
            return;
        };
        reads += count_reads(&account);
        turns += 1;
        if ended {
            break;
        }
    }
    assert_eq!(reads, u64::from(READS), "{turns} turns");
}

#[test]
fn a_storm_is_watched_within_a_budget_and_its_counts_are_scaled() {
    const READS: u32 = 200_000;
    const BUDGET: f64 = 0.004;
    let _alone = alone();
    // IN from the RTC's data port, again and again.
    let count = READS.to_le_bytes();
    let body = [&[0xb9][..], &count, &[0xe4, 0x71, 0x49, 0x75, 0xfb]].concat();
    let Some(own) = Own::new(&body) else { return };
    let vms = [vm::of_pid(id()).unwrap()];
    let mut observer = Observer::counting(&vms, Counting::Within(BUDGET));
    let storm = std::thread::spawn(move || {
        own.run();
        own
    });
    while !storm.is_finished() {
        std::thread::sleep(Duration::from_millis(150));
        observer.refresh();
    }
    let Some(account) = counted(observer.turn().remove(0)) else {
        return;
    };
    let figures = (
        account.counted_share,
        account.observer,
        account.window_ns / 1_000_000,
    );
    // On a busy computer a storm may be slow enough to be counted whole.
    let paid = account.observer.bpf_ns.unwrap_or(0) as f64 / account.window_ns as f64;
    assert!(account.counted_share < 0.9 || paid < BUDGET, "{figures:?}");
    let reads = count_reads(&account);
    // What was seen happened; how much was not seen depends on when the storm had a CPU.
    let seen = reads as f64 * account.counted_share;
    assert!(
        seen >= 1.0 && seen < f64::from(READS + 1),
        "{reads} {figures:?}"
    );
    println!("{reads} of {READS}, {figures:?}");
}

fn count_reads(account: &Account) -> u64 {
    count(account, &port(0x71, Access::Read, Device::Rtc))
}

/// Halts, interrupts and exits of a machine's vCPUs in a second.
fn rates(account: &Account) -> [f64; 3] {
    let halts: u64 = account.vcpus().map(|(_, vcpu)| vcpu.halts.count).sum();
    let interrupts: u64 = account.interrupts.iter().map(|it| it.count).sum();
    let exits: u64 = account.exits().iter().map(|exit| exit.count).sum();
    let each = |count: u64| count as f64 / account.window_ns as f64 * 1e9;
    [halts, interrupts, exits].map(each)
}

/// Accounts of the same time.
struct Both {
    /// Everything was counted.
    whole: Account,
    /// What came in bursts was.
    sampled: Account,
    bursts: u64,
}

/// Looks at a guest that gets too little of a CPU.
const ATTEMPTS: usize = 3;
/// Part of the time in which a guest can run that it must have a CPU, where what it does is
/// scaled by the time that was counted.
const LEAST_CPU: f64 = 0.25;
/// The same part, from which on all bursts must have come.
const ENOUGH_CPU: f64 = 0.5;
/// Refreshes in which one burst must have come: a rest ends after 3 s, a look after 250 ms.
const REFRESHES_A_BURST: u64 = 16;
/// Part by which a rate may differ beside chance.
const RATE: f64 = 0.05;

/// Looks until there were this many bursts; again where the guest had too little of a CPU to
/// show what it does. It gives fewer bursts only of a guest that had [`ENOUGH_CPU`].
fn in_bursts(storm: &Storm, limits: Limits, bursts: u64, least_cpu: f64) -> Option<Both> {
    let vms = [vm::of_pid(storm.pid()).unwrap()];
    let mut whole = Observer::counting(&vms, Counting::Every);
    let mut sampling = Observer::within(&vms, limits);
    for _ in 0..ATTEMPTS {
        whole.turn();
        sampling.turn();
        let before = sampling.bursts();
        for _ in 0..bursts * REFRESHES_A_BURST {
            if sampling.bursts() - before >= bursts {
                break;
            }
            std::thread::sleep(sampling.next_refresh());
            sampling.refresh();
        }
        let both = Both {
            sampled: counted(sampling.turn().remove(0))?,
            whole: whole.turn().remove(0),
            bursts: sampling.bursts() - before,
        };
        println!(
            "{} bursts, {:.3} of {} ms, on a CPU {:.2}: {:.0?} of {:.0?}",
            both.bursts,
            both.sampled.counted_share,
            both.sampled.window_ns / 1_000_000,
            both.on_cpu(),
            rates(&both.sampled),
            rates(&both.whole)
        );
        // With little CPU the guest, and the observer beside it, may not get as far as its bursts.
        let has_cpu = both.on_cpu() >= least_cpu;
        if has_cpu && (both.bursts >= bursts || both.on_cpu() >= ENOUGH_CPU) {
            return Some(both);
        }
    }
    tare_vmtest::lacks("the guest gets too little of a CPU");
    None
}

impl Both {
    /// Part of the time in which its vCPU did not wait for a CPU.
    fn on_cpu(&self) -> f64 {
        let (thread, _) = self.whole.vcpus().next().unwrap();
        let waited = thread.off_cpu.run_delay_ns as f64 / self.whole.window_ns as f64;
        (1.0 - waited).max(0.0)
    }

    /// Each rate is that of all the time, within three times the deviation of the sample.
    #[track_caller]
    fn expect_equal_rates(&self) {
        assert_eq!(self.whole.counted_share, 1.0);
        let share = self.sampled.counted_share;
        assert!(share < 0.9, "{share}");
        let counted_s = self.sampled.window_ns as f64 / 1e9 * share;
        // A burst in which the guest waits for a CPU has none of its events: the rate of one
        // deviates by no more than if each had all or none.
        let on_cpu = self.on_cpu();
        let of_bursts = 3.0 * ((1.0 - on_cpu) / on_cpu / self.bursts as f64).sqrt();
        for (counted, truth) in rates(&self.sampled).into_iter().zip(rates(&self.whole)) {
            let of_counts = 3.0 * (truth / counted_s).sqrt();
            let most = truth * (RATE + of_bursts) + of_counts;
            assert!(
                (counted - truth).abs() <= most,
                "{counted} of {truth}, within {most}"
            );
        }
    }
}

#[test]
fn rates_that_are_counted_in_bursts_are_those_of_all_the_time() {
    const BURSTS: u64 = 80;
    // A tick is paced by a clock: a host that is busy delays it, and loses few.
    let Some(storm) = Storm::new("mode=tick hz=1000", &[]) else {
        return;
    };
    let limits = Limits {
        counting: Counting::Within(0.1),
        // However few events come, they are counted in bursts.
        closed_share: Some(0.0),
        ..Limits::default()
    };
    let Some(both) = in_bursts(&storm, limits, BURSTS, LEAST_CPU) else {
        return;
    };
    assert!(both.bursts >= BURSTS, "{} bursts", both.bursts);
    let truth = rates(&both.whole);
    assert!(truth.iter().all(|rate| *rate > 0.0), "{truth:?}");
    both.expect_equal_rates();
}

#[test]
fn a_live_storm_is_counted_in_bursts() {
    const BURSTS: u64 = 40;
    let Some(storm) = Storm::new("mode=exit kind=self_ipi", &[]) else {
        return;
    };
    let Some(both) = in_bursts(&storm, Limits::default(), BURSTS, LEAST_CPU) else {
        return;
    };
    let truth = rates(&both.whole);
    assert!(both.bursts >= BURSTS, "{} bursts: {truth:?}", both.bursts);
    assert!(truth.iter().any(|rate| *rate > 1_000.0), "{truth:?}");
    both.expect_equal_rates();
}

/// A process that wants this CPU all the time, until it is dropped.
struct Hog(std::process::Child);

impl Hog {
    fn new(cpu: usize) -> Self {
        // A separate session: the scheduler shares a CPU out between sessions first.
        let child = Command::new("setsid")
            .args(["sh", "-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        pin(child.id(), cpu);
        Self(child)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// All threads of a process run there from now on.
fn pin(pid: u32, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let tid = thread.unwrap().file_name().to_str().unwrap().parse();
        sched_setaffinity(Pid::from_raw(tid.unwrap()), &set).unwrap();
    }
}

/// The observer comes onto the CPU when the guest has none, and its programs take a part of
/// the guest's time. How near a rate comes, models hold (`kvm/scale.rs`) to 1 %: here the bursts
/// are few.
#[test]
fn a_storm_beside_another_process_on_its_cpu_has_its_own_rate() {
    const BURSTS: u64 = 40;
    const NEAR: f64 = 0.15;
    let Some(storm) = Storm::new("mode=exit kind=self_ipi", &[]) else {
        return;
    };
    pin(storm.pid(), 0);
    let _hog = Hog::new(0);
    let Some(both) = in_bursts(&storm, Limits::default(), BURSTS, 0.05) else {
        return;
    };
    assert_eq!(both.whole.counted_share, 1.0);
    let share = both.sampled.counted_share;
    assert!(share < 0.9, "{share}");
    for (counted, truth) in rates(&both.sampled).into_iter().zip(rates(&both.whole)) {
        assert!(
            (counted - truth).abs() <= truth * NEAR,
            "{counted} of {truth}"
        );
    }
}

/// Why the tasks of a machine's processes are not read; an error if BPF cannot be used here.
fn unowned(account: &Account) -> Result<Option<&Unavailable>, ()> {
    let missing = account.unavailable.iter();
    let (owners, others): (Vec<_>, Vec<_>) = missing
        .filter(|it| it.source == Source::Bpf)
        .partition(|it| it.name == "owners");
    assert!(owners.len() <= 1, "{owners:?}");
    match others.first() {
        None => Ok(owners.first().copied()),
        Some(missing) => {
            tare_vmtest::skip(missing.to_string());
            Err(())
        }
    }
}

#[test]
fn machines_that_the_map_of_processes_has_no_room_for_have_not_ended() {
    let (Some(first), Some(second)) = (
        Storm::new("mode=tick hz=100", &[]),
        Storm::new("mode=tick hz=100", &[]),
    ) else {
        return;
    };
    let vms = [&first, &second].map(|storm| vm::of_pid(storm.pid()).unwrap());
    // A machine's process, and threads of the kernel such as kvm-pit.
    let processes: BTreeSet<u32> = vm::threads(&vms[0]).iter().map(|it| it.pid).collect();
    let limits = Limits {
        owners: u32::try_from(processes.len()).ok(),
        ..Limits::default()
    };
    let mut observer = Observer::within(&vms, limits);
    // Each runs until it has been seen on a CPU.
    let ran = |account: &Account| account.threads.iter().any(|it| it.on_cpu.total_ns > 0);
    let mut all_ran = false;
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(300));
        observer.refresh();
        let accounts = observer.turn();
        for account in &accounts {
            assert!(!account.ended, "{account:#?}");
        }
        let Ok(unowned) = accounts.iter().map(unowned).collect::<Result<Vec<_>, _>>() else {
            return;
        };
        // The account of the machine with the room says nothing of the other.
        assert!(unowned[0].is_none(), "{unowned:?}");
        let why = &unowned[1].unwrap().why;
        assert!(why.contains("os error"), "{why}");
        all_ran = accounts.iter().all(ran);
        if all_ran {
            break;
        }
    }
    assert!(all_ran, "a machine was never seen on a CPU");
    // It comes and goes, and one account says so once (`unowned`).
    for _ in 0..3 {
        observer.follow(&vms[..1]);
        observer.follow(&vms);
        let accounts = observer.turn();
        assert_eq!(unowned(&accounts[0]), Ok(None));
        assert!(matches!(unowned(&accounts[1]), Ok(Some(_))));
    }
    // There is room as soon as the first is forgotten.
    observer.follow(&vms[1..]);
    assert_eq!(unowned(&observer.turn()[0]), Ok(None));
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(300));
        let account = observer.turn().remove(0);
        assert!(!account.ended, "{account:#?}");
        if ran(&account) {
            return;
        }
    }
    panic!("the second machine was never seen on a CPU again");
}

#[test]
fn a_guest_that_touches_many_addresses_does_not_fill_the_maps() {
    let _alone = alone();
    // Writes to 6,000 pages above 2 GiB.
    let each = [0xa3, 0, 0, 0, 0];
    let walk = [
        &[0xbf, 0, 0, 0, 0x80][..],
        &times(6_000, &[0x89, 0x07, 0x81, 0xc7, 0, 0x10, 0, 0]),
        &times(10, &each),
    ]
    .concat();
    let Some(own) = Own::new(&walk) else { return };
    let vms = [vm::of_pid(id()).unwrap()];
    let mut observer = Observer::counting(&vms, Counting::Every);
    own.run();
    let Some(account) = counted(observer.turn().remove(0)) else {
        return;
    };
    let exits = account.exits();
    assert!(exits.len() < 2_100, "{} kinds", exits.len());
    assert!(account.overflowed > 3_000, "{}", account.overflowed);
    assert_eq!(count(&account, &ExitKind::Various), account.overflowed);
    assert!(account.unavailable.iter().all(|it| it.name != "counts"));
}

#[test]
fn a_periodic_timer_is_identified_by_line_injector_and_period() {
    let Some(storm) = Storm::new("mode=pit hz=100", &[]) else {
        return;
    };
    let vm = vm::of_pid(storm.pid()).unwrap();
    assert_eq!(vm.monitor, Monitor::Qemu);
    // Intervals are counted too, so nothing may be sampled.
    let mut observer = Observer::counting(&[vm], Counting::Every);
    std::thread::sleep(WINDOW);
    let Some(account) = counted(observer.turn().remove(0)) else {
        return;
    };
    let line = account
        .lines
        .iter()
        .find(|line| line.line == IrqLine::Gsi(0))
        .unwrap();
    // A busy host delays and merges interrupts, but makes none.
    let due = account.window_ns / 10_000_000;
    assert!(
        line.count >= 5 && line.count <= due + due / 5 + 1,
        "{line:?}"
    );
    assert!(
        matches!(
            line.injector,
            Injector::Thread {
                role: Role::Kvm,
                ..
            }
        ),
        "{:?}",
        line.injector
    );
    let mean = line.intervals.mean_ns().unwrap();
    // An interval is a period, or longer where the host stalled: no share of the window
    // is asserted, since any stall takes from it.
    // Both are read while the timer runs on: an interrupt in between is in one of them alone.
    assert!(line.count.abs_diff(line.intervals.count()) <= 2, "{line:?}");
    assert!(mean > 8_000_000, "{mean}");
    // Without names of threads the vCPU is found by what it does.
    let (thread, vcpu) = account.vcpus().next().unwrap();
    assert_eq!((thread.role, vcpu.index), (Role::Vcpu(0), 0));
    // Each interrupt ends a halt, unless it came before the vCPU halted again.
    assert!(vcpu.halts.count <= line.count + line.count / 10 + 2);
    assert!(vcpu.halts.count >= 1);
    assert!(vcpu.halts.waits.count() >= vcpu.halts.count - 2);
}

#[test]
fn an_ipi_is_followed_from_its_sender_to_the_handler() {
    let Some(storm) = Storm::new("mode=ipi", &["-smp", "2"]) else {
        return;
    };
    let vm = vm::of_pid(storm.pid()).unwrap();
    // Halts and the steps of wake-ups are compared, so none may be sampled.
    let mut observer = Observer::counting(&[vm], Counting::Every);
    std::thread::sleep(WINDOW);
    let Some(account) = counted(observer.turn().remove(0)) else {
        return;
    };
    let ipi = account.ipis.first().unwrap();
    assert_eq!((ipi.sender, ipi.mode), (0, IpiMode::Fixed));
    let taken = account
        .interrupts
        .iter()
        .find(|it| it.vector == ipi.vector)
        .unwrap();
    assert_eq!((taken.apic_id, &taken.injector), (1, &Injector::OtherVcpu));
    assert!(
        taken.count.abs_diff(ipi.count) <= ipi.count / 50 + 5,
        "{taken:?} {ipi:?}"
    );
    let (_, target) = account.vcpus().find(|(_, vcpu)| vcpu.index == 1).unwrap();
    let woken = target.wakeups.step(Step::Send).unwrap().count();
    assert!(woken > 0 && woken <= target.halts.count + 20, "{woken}");
    let total = target.wakeups.step(Step::Total).unwrap();
    let parts: u64 = target
        .wakeups
        .steps
        .iter()
        .filter(|(step, _)| *step != Step::Total)
        .map(|(_, histogram)| histogram.sum_ns)
        .sum();
    // The wake-up at the window's begin has its total in it and not all its steps, and on a busy
    // host it may be as long as many others. A bucket is an eighth wide.
    let longest = total.quantile_ns(1.0).unwrap() * 9 / 8 + 1;
    let most = parts + parts / 100 + longest;
    assert!(
        total.sum_ns <= most,
        "{} > {parts}, {longest}",
        total.sum_ns
    );
    assert!(total.sum_ns >= parts / 2, "{} << {parts}", total.sum_ns);
}

#[test]
fn a_machine_that_ends_in_the_window_is_accounted_until_then() {
    let Some(mut storm) = Storm::new("mode=quiet", &[]) else {
        return;
    };
    let vm = vm::of_pid(storm.pid()).unwrap();
    // Loading the programs takes long on a busy host: it ends once it is watched.
    let mut observer = Observer::start(&[vm]);
    std::thread::sleep(Duration::from_millis(300));
    observer.refresh();
    storm.kill();
    assert!(!observer.all_ended());
    // On a busy host the process takes its time to be gone.
    let is_seen = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        observer.refresh();
        observer.all_ended()
    });
    assert!(is_seen);
    let account = observer.turn().remove(0);
    assert!(account.ended);
    assert!(account.window_ns < 20_000_000_000, "{}", account.window_ns);
    assert!(!account.threads.is_empty());
}

/// Of this thread alone.
fn drop_capabilities() {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).unwrap();
}

#[test]
fn without_the_privilege_for_bpf_the_rest_is_reported() {
    let _alone = alone();
    let Some(own) = Own::new(&times(3, &[0xe6, 0x70])) else {
        return;
    };
    let observed = std::thread::spawn(move || {
        drop_capabilities();
        let mut observer = Observer::start(&[vm::of_pid(id()).unwrap()]);
        own.run();
        observer.turn().remove(0)
    });
    let account = observed.join().unwrap();
    let bpf = account
        .unavailable
        .iter()
        .find(|it| it.source == Source::Bpf);
    assert!(bpf.unwrap().why.contains("CAP_BPF"), "{bpf:?}");
    assert_eq!(account.observer.bpf_ns, None);
    let (vcpu, _) = account.vcpus().next().unwrap();
    assert!(vcpu.on_cpu.total_ns > 0);
}

#[test]
fn a_process_of_another_user_is_named_as_such() {
    if !rustix::process::geteuid().is_root() {
        tare_vmtest::lacks("a process of another user needs root");
        return;
    }
    let mut sleep = Command::new("sleep").arg("60").uid(65_534).spawn().unwrap();
    let pid = sleep.id();
    let found = std::thread::spawn(move || {
        drop_capabilities();
        (vm::of_pid(pid), vm::list())
    });
    let (found, listing) = found.join().unwrap();
    let _ = sleep.kill();
    let _ = sleep.wait();
    assert!(
        matches!(found, Err(FindError::NotPermitted { pid: named }) if named == pid),
        "{found:?}"
    );
    let why = listing.unavailable.first().unwrap();
    assert_eq!(why.source, Source::Proc);
    assert!(why.why.contains("needs root"), "{why}");
}

#[test]
fn a_process_without_a_machine_is_an_error_with_its_id() {
    let mut sleep = Command::new("sleep").arg("60").spawn().unwrap();
    let found = vm::find(&sleep.id().to_string());
    let _ = sleep.kill();
    let _ = sleep.wait();
    assert!(
        matches!(found, Err(FindError::NoVm { ref name, .. }) if name == "sleep"),
        "{found:?}"
    );
    let gone = vm::of_pid(sleep.id());
    assert!(matches!(gone, Err(FindError::NoProcess(_))), "{gone:?}");
    assert!(matches!(
        vm::find("no such name"),
        Err(FindError::NoName(_))
    ));
}
