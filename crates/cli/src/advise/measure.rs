//! Measures what the rules need to know about a running target.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tare_account::Account;
use tare_advise::{Facts, Halting, Layout, Platform, Quota, Resources};
use tare_host::shell::quoted;
use tare_launch::Interrupted;
use tare_pin::{self as pin, Host, PlanError, Target, TargetKind, affinity};
use tare_policy::placement::{Class, CpuMask};
use tare_probe::sched::{Cause, Observer, Times};
use tare_probe::vm::{Monitor, Role, Vm};
use tare_probe::{Unavailable, kvm};
use tare_why::{Load, Source};

use super::advised::facts_of;
use super::disks;
use crate::failure::Failure;
use crate::signals::Requests;

/// Busy time below which a target has run too little to be classified, thousandths
/// of a CPU.
const IDLE_MILLICPUS: u64 = 20;
/// Halts a second above which a machine's halts count as waits for input and output.
const IO_HALTS_PER_S: u64 = 50;
/// Timer interrupts for each device interrupt above which a machine counts as waiting for its
/// timers.
const TIMERS_ONLY: f64 = 20.0;

/// How often to look for a signal.
const SLICE: Duration = Duration::from_millis(50);

/// Watches a target for a while; an error if a signal comes.
pub(super) fn measure(
    target: &Target,
    name: &str,
    host: &Host,
    window: Duration,
    requests: &Requests,
) -> Result<(Facts, Vec<Unavailable>), Failure> {
    let tasks = target.tasks();
    if tasks.is_empty() {
        return Err(PlanError::NoThread(name.to_owned()).into());
    }
    let mut facts = facts_of(host, name);
    facts.platform = Some(platform(target));
    let quotas = target.quotas();
    let disks = match &target.kind {
        TargetKind::Vm(vm) => disks::Window::begin(vm),
        _ => None,
    };
    let Watched {
        times,
        account,
        unavailable,
    } = watch(target, window, requests)?;
    facts.disks = disks.map(disks::Window::end).unwrap_or_default();
    let now = target.quotas();
    facts.quotas = during(&quotas, &now, &target.owned(&now));
    if let Some(times) = &times {
        judge(&mut facts, times, halt(target));
    }
    facts.translated = matches!(target.kind, TargetKind::Machine(..));
    if let Some(account) = &account {
        facts.emulated = account.emulated;
        facts.halting = Some(halting(account));
        waits_for_timers(&mut facts, &Load::from(account));
    }
    facts.layout = layout(target, host);
    facts.resources = resources(target, &facts);
    Ok((facts, unavailable))
}

/// Quotas with how often each was exhausted since `then`; for one that the target `owned`, also the
/// command that removes it.
fn during(then: &[pin::Quota], now: &[pin::Quota], owned: &[&pin::Quota]) -> Vec<Quota> {
    let of = |now: &pin::Quota| {
        let then = then
            .iter()
            .find(|then| then.file == now.file)
            .map_or(now.throttled_periods, |then| then.throttled_periods);
        let file = quoted(&now.file.to_string_lossy());
        Quota {
            millicpus: now.millicpus,
            throttled: now.throttled_periods.saturating_sub(then),
            group: now.group.to_string_lossy().into_owned(),
            off: owned
                .contains(&now)
                .then(|| format!("echo {} > {file}", now.none)),
        }
    };
    now.iter().map(of).collect()
}

fn platform(target: &Target) -> Platform {
    match &target.kind {
        TargetKind::Process(_) => Platform::Process,
        TargetKind::Container(_) => Platform::Container,
        TargetKind::Vm(vm) if vm.monitor == Monitor::Tare => Platform::TareVm,
        TargetKind::Vm(_) | TargetKind::Machine(..) => Platform::Vm,
    }
}

/// What a window showed.
struct Watched {
    /// Time on and off CPUs, for a machine of its vCPUs.
    times: Option<Times>,
    /// A machine's account.
    account: Option<Account>,
    unavailable: Vec<Unavailable>,
}

fn watch(target: &Target, window: Duration, requests: &Requests) -> Result<Watched, Interrupted> {
    let mut unavailable = Vec::new();
    let mut observer = Observer::start().map_err(|why| unavailable.push(why)).ok();
    if let Some(observer) = &mut observer {
        let group = observer.group();
        for (task, role) in target.tasks() {
            match &target.kind {
                TargetKind::Vm(_) | TargetKind::Machine(..) if role.is_vcpu() => {
                    observer.watch_thread(group, task.id.tid);
                }
                TargetKind::Vm(_) | TargetKind::Machine(..) => {}
                _ => observer.watch_process(group, task.id.pid),
            }
        }
        observer.turn();
    }
    let account = match &target.kind {
        TargetKind::Vm(vm) => account(vm, window, requests)?,
        _ => {
            pause_until(Instant::now() + window, requests)?;
            None
        }
    };
    let times = observer.as_mut().and_then(|observer| {
        let times = observer.turn().pop();
        unavailable.extend(observer.unavailable());
        times
    });
    Ok(Watched {
        times,
        account,
        unavailable,
    })
}

/// The account of a machine for a window, or until it ends.
fn account(vm: &Vm, window: Duration, requests: &Requests) -> Result<Option<Account>, Interrupted> {
    let vms = std::slice::from_ref(vm);
    let accounts = kvm::observe(vms, window, |end| pause_until(end, requests));
    Ok(accounts?.pop())
}

fn pause_until(end: Instant, requests: &Requests) -> Result<(), Interrupted> {
    loop {
        requests.check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SLICE));
    }
}

/// The wait that a halted vCPU shows; QEMU's translator waits on a condition.
fn halt(target: &Target) -> Option<Cause> {
    match &target.kind {
        TargetKind::Vm(_) => Some(Cause::Halt),
        TargetKind::Machine(..) => Some(Cause::Lock),
        TargetKind::Container(_) | TargetKind::Process(_) => None,
    }
}

fn judge(facts: &mut Facts, times: &Times, halt: Option<Cause>) {
    let ready_ns = times.off_ns(Cause::RunQueue);
    let runnable_ns = times.on_cpu.sum_ns + ready_ns;
    facts.busy_millicpus = times.busy_millicpus();
    facts.ready_permille = (ready_ns * 1000).checked_div(runnable_ns).unwrap_or(0);
    facts.migrations_per_s = per_second(times.migrations, times.window_ns);
    let halts_per_s = per_second(times.voluntary_switches, times.window_ns);
    let io_ns = match halt {
        None => times.io_ns(),
        Some(halt) if halts_per_s >= IO_HALTS_PER_S => times.off_ns(halt),
        Some(_) => 0,
    };
    if facts.busy_millicpus >= IDLE_MILLICPUS {
        facts.class = Class::of(runnable_ns, io_ns);
    }
}

/// A machine whose own timers end its halts does not wait for input or output.
fn waits_for_timers(facts: &mut Facts, load: &Load) {
    let sum = |sources: &[Source]| sources.iter().map(|it| load.taken(*it)).sum::<f64>();
    let timers = sum(&[Source::Timer, Source::Hpet, Source::Pit, Source::Rtc]);
    let is_io = matches!(facts.class, Some(Class::IoBound | Class::UltraIoBound));
    if is_io && timers > 0.0 && load.taken(Source::Device) < timers / TIMERS_ONLY {
        (facts.class, facts.timer_driven) = (None, true);
    }
}

fn per_second(count: u64, window_ns: u64) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / u128::from(window_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn halting(account: &Account) -> Halting {
    let vcpus = account
        .threads
        .iter()
        .filter_map(|thread| thread.vcpu.as_ref());
    let (mut halts, mut polled, mut wasted_ns) = (0, 0, 0);
    for vcpu in vcpus {
        halts += vcpu.halts.count;
        polled += vcpu.halts.polls_attempted;
        wasted_ns += vcpu.halts.poll_wasted_ns;
    }
    Halting {
        halts_per_s: per_second(halts, account.window_ns),
        polled_permille: (polled * 1000).checked_div(halts).unwrap_or(0).min(1000),
        wasted_millicpus: wasted_ns * 1000 / account.window_ns.max(1),
    }
}

fn resources(target: &Target, facts: &Facts) -> Resources {
    let quota_millicpus = facts.quotas.iter().map(|quota| quota.millicpus).min();
    let set = target
        .tasks()
        .iter()
        .filter_map(|(task, _)| affinity::get(task.id.tid).ok())
        .fold(CpuMask::EMPTY, |all, cpus| all.or(&cpus));
    let set_millicpus = u64::from(set.count()) * 1000;
    Resources {
        assigned_millicpus: quota_millicpus.map_or(set_millicpus, |quota| quota.min(set_millicpus)),
        quota_millicpus,
        vcpus: target.vcpus().unwrap_or(0) as u64,
        ..facts.resources
    }
}

fn layout(target: &Target, host: &Host) -> Layout {
    let online = host.online();
    let mut layout = Layout::default();
    let mut nodes = BTreeSet::new();
    let mut pinned = CpuMask::EMPTY;
    let mut cores = Vec::new();
    let mut helpers = Vec::new();
    for (task, role) in target.tasks() {
        let Ok(cpus) = affinity::get(task.id.tid) else {
            continue;
        };
        layout.threads += 1;
        layout.bound_threads += u64::from(cpus.and(&online) != online);
        nodes.extend(cpus.iter().filter_map(|cpu| host.node_of(cpu)));
        match role {
            Role::Vcpu(_) if cpus.count() == 1 => {
                pinned = pinned.or(&cpus);
                cores.extend(cpus.iter().filter_map(|cpu| host.core_of(cpu)));
                let isolated = cpus.is_within(&host.isolated());
                layout.isolated_vcpus += u64::from(isolated);
            }
            Role::Vcpu(_) => {}
            _ => helpers.push(cpus),
        }
    }
    layout.nodes = nodes.len() as u64;
    let different: BTreeSet<u16> = cores.iter().copied().collect();
    layout.sibling_vcpus = (cores.len() - different.len()) as u64;
    let all: BTreeSet<u16> = host.cpus.iter().map(|cpu| cpu.core).collect();
    layout.free_cores = (all.len() - different.len()) as u64;
    let on_vcpus = helpers.iter().filter(|cpus| !cpus.and(&pinned).is_empty());
    layout.helpers_on_vcpus = on_vcpus.count() as u64;
    layout
}

#[cfg(test)]
mod tests {
    use tare_account::ObserverCost;

    use super::*;

    /// Two seconds with 0.2 s on a CPU, 0.3 s in reads and 1.5 s on a condition, which
    /// is how QEMU's translator halts.
    fn times(switches: u64) -> Times {
        let stretches = |ms: u64| serde_json::json!({"buckets": [], "sum_ns": ms * 1_000_000});
        serde_json::from_value(serde_json::json!({
            "group": 0, "window_ns": 2_000_000_000_u64, "on_cpu": stretches(200),
            "off_cpu": [
                {"cause": "lock", "stretches": stretches(1500)},
                {"cause": "disk", "stretches": stretches(300)},
            ],
            "voluntary_switches": switches, "involuntary_switches": 0, "migrations": 0,
            "threads_begun": 0, "observer": ObserverCost::default(),
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_that_halts_often_waits_for_input_and_output_in_the_translator_too() {
        let class = |switches, halt| {
            let mut facts = Facts::default();
            judge(&mut facts, &times(switches), halt);
            facts.class
        };
        assert_eq!(class(400, Some(Cause::Lock)), Some(Class::UltraIoBound));
        assert_eq!(class(20, Some(Cause::Lock)), Some(Class::CpuBound));
        assert_eq!(class(400, Some(Cause::Halt)), Some(Class::CpuBound));
        assert_eq!(class(400, None), Some(Class::IoBound));
    }

    #[test]
    fn a_machine_that_only_its_timers_wake_is_not_called_i_o_bound() {
        let account: Account = serde_json::from_str(include_str!(
            "../../../why/tests/accounts/periodic_tick-qemu.json"
        ))
        .unwrap();
        let mut load = Load::from(&account);
        let judged = |load: &Load, class| {
            let mut facts = Facts {
                class: Some(class),
                ..Facts::default()
            };
            waits_for_timers(&mut facts, load);
            (facts.class, facts.timer_driven)
        };
        assert_eq!(judged(&load, Class::IoBound), (None, true));
        let cpu_bound = (Some(Class::CpuBound), false);
        assert_eq!(judged(&load, Class::CpuBound), cpu_bound);
        let timers = load.taken(Source::Timer);
        load.vcpus[0]
            .interrupts
            .insert(Source::Device, timers / 10.0);
        let io_bound = (Some(Class::IoBound), false);
        assert_eq!(judged(&load, Class::IoBound), io_bound);
    }

    #[test]
    fn each_quota_has_its_own_count_and_only_its_owner_takes_it_off() {
        let quota = |group: &str, millicpus, throttled_periods| pin::Quota {
            millicpus,
            throttled_periods,
            group: group.into(),
            file: format!("{group}/cpu.max").into(),
            none: "max",
        };
        let then = [quota("/cg/slice/vm", 4000, 5), quota("/cg/slice", 300, 7)];
        let now = [quota("/cg/slice/vm", 4000, 5), quota("/cg/slice", 300, 47)];
        let found = during(&then, &now, &[&now[0]]);
        let counts = found.iter().map(|it| (it.millicpus, it.throttled));
        assert_eq!(counts.collect::<Vec<_>>(), [(4000, 0), (300, 40)]);
        assert_eq!(
            found[0].off.as_deref(),
            Some("echo max > /cg/slice/vm/cpu.max")
        );
        assert_eq!(
            (found[1].group.as_str(), &found[1].off),
            ("/cg/slice", &None)
        );
        // What a quota counted before it bound the target is irrelevant.
        assert_eq!(during(&[], &now, &[])[1].throttled, 0);
    }
}
