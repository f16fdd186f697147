//! What is seen beside a run: the scheduler by BPF, the system's counters, and of a
//! machine of Tare the statistics of KVM.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_control::client::Client;
use tare_control::live;
use tare_control::stats::Stats;
use tare_platform::{Watch, cgroup};
use tare_probe::sched::{Group, Observer};

use tare_lab::kit::Interrupt;

/// Ticks of `/proc/stat` a second (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;
/// Under this a record has the time for which threads could have run, and had no CPU.
pub(crate) const WAITING_FOR_A_CPU: &str = "a CPU";

/// Seen beside one run; counters of the whole system unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Observed {
    /// CPU time that was used, s.
    pub(crate) busy_s: f64,
    /// Time that this host's own hypervisor took away, s.
    pub(crate) steal_s: f64,
    /// Context switches.
    pub(crate) context_switches: u64,
    /// Disk requests, as iostat counts them.
    pub(crate) disk_requests: u64,
    /// Bytes to and from disks.
    pub(crate) disk_bytes: u64,
    /// Time in which a disk had a request, over all disks, s.
    pub(crate) disk_busy_s: f64,
    /// Time that requests took together, s: over their number, iostat's await.
    pub(crate) disk_wait_s: f64,
    /// Time for which a quota kept the run off, us.
    pub(crate) throttled_us: Option<u64>,
    /// The run's own threads, where BPF sees them.
    pub(crate) sched: Option<Sched>,
    /// KVM's counters over all vCPUs (exits, halts, interrupts), where Tare's monitor
    /// runs the machine: QEMU's translator has no exits.
    pub(crate) kvm: Option<BTreeMap<String, u64>>,
}

/// The threads of a run, of a machine those of its monitor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sched {
    pub(crate) on_cpu_ns: u64,
    /// By cause.
    pub(crate) off_cpu_ns: BTreeMap<String, u64>,
    /// Off a CPU in input and output.
    pub(crate) io_ns: u64,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
    pub(crate) migrations: u64,
    /// Times that CPU time was charged to control groups, in the runs in which it is counted.
    #[serde(default)]
    pub(crate) charges: Option<u64>,
    /// Control groups that each of them is charged to: the run's own and those above it.
    #[serde(default)]
    pub(crate) charged_groups: Option<u64>,
    /// What observing cost within the window.
    pub(crate) observer_ns: u64,
    /// Of it the programs in the kernel, where their time is known.
    #[serde(default)]
    pub(crate) observer_bpf_ns: Option<u64>,
    /// Stretches on a CPU, as BCC's cpudist counts them.
    #[serde(default)]
    pub(crate) on_cpu: Stretches,
    /// Stretches off a CPU for any cause, as BCC's cpudist -O counts them.
    #[serde(default)]
    pub(crate) off_cpu: Stretches,
}

/// How many stretches of time were this long: by the least power of two of their class, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Stretches(pub(crate) BTreeMap<u64, u64>);

impl Stretches {
    /// Of counts by the least length, ns.
    fn of(counts: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut all = Self::default();
        counts.for_each(|(from_ns, count)| all.add(from_ns, count));
        all
    }

    /// Adds `count` of at least `from_ns` each.
    pub(crate) fn add(&mut self, from_ns: u64, count: u64) {
        let class = from_ns.checked_ilog2().map_or(0, |octave| 1 << octave);
        let counted = self.0.entry(class).or_default();
        *counted = counted.saturating_add(count);
    }

    /// Adds all of another's.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (from_ns, count) in &other.0 {
            self.add(*from_ns, *count);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0
            .values()
            .fold(0, |all, count| all.saturating_add(*count))
    }
}

/// Where a run's processes are found.
#[derive(Clone, Debug)]
pub(crate) enum Members {
    /// In these groups.
    Groups(Vec<PathBuf>),
    /// This process.
    Process(u32),
}

/// Looks on while a step runs.
pub(crate) struct Looking<'a> {
    interrupt: &'a Interrupt,
    observer: Option<&'a mut Observer>,
    members: Members,
    /// A group with a quota.
    quota: Option<PathBuf>,
    machine: Option<Client>,
    group: Option<Group>,
    /// Whether charges of control groups are counted.
    counts_charges: bool,
    charged_groups: Option<u64>,
    before: Counters,
    kvm_before: Option<BTreeMap<String, u64>>,
    pub(crate) observed: Observed,
}

impl<'a> Looking<'a> {
    pub(crate) fn new(
        interrupt: &'a Interrupt,
        observer: Option<&'a mut Observer>,
        members: Members,
        quota: Option<PathBuf>,
    ) -> Self {
        Self {
            interrupt,
            observer,
            members,
            quota,
            machine: None,
            group: None,
            counts_charges: false,
            charged_groups: None,
            before: Counters::default(),
            kvm_before: None,
            observed: Observed::default(),
        }
    }

    /// Asks the machine behind this control socket too.
    pub(crate) fn ask(mut self, socket: Option<&Path>) -> Self {
        self.machine = socket.map(Client::new);
        self
    }

    /// Counts charges of control groups too, which costs the run time.
    pub(crate) fn count_charges(mut self, on: bool) -> Self {
        self.counts_charges = on;
        self
    }

    fn kvm(&mut self) -> Option<BTreeMap<String, u64>> {
        Some(counters(&self.machine.as_mut()?.stats().ok()?))
    }

    fn pids(&self) -> Vec<u32> {
        match &self.members {
            Members::Process(pid) => vec![*pid],
            Members::Groups(dirs) => {
                let texts = dirs
                    .iter()
                    .filter_map(|d| fs::read_to_string(d.join("cgroup.procs")).ok());
                let mut pids: Vec<u32> = texts
                    .flat_map(|text| {
                        text.lines()
                            .filter_map(|l| l.parse().ok())
                            .collect::<Vec<u32>>()
                    })
                    .collect();
                pids.sort_unstable();
                pids.dedup();
                pids
            }
        }
    }
}

impl Sched {
    /// What observing cost, of the run's own time on CPUs, percent; exact, where the
    /// kernel tells the programs' time.
    pub(crate) fn accounted_pct(&self) -> Option<f64> {
        let known = self.observer_bpf_ns.is_some() && self.on_cpu_ns > 0;
        known.then(|| self.observer_ns as f64 / self.on_cpu_ns as f64 * 100.0)
    }
}

impl Watch for Looking<'_> {
    fn begin(&mut self) {
        let pids = self.pids();
        self.charged_groups = pids.first().and_then(|pid| charged_groups(*pid));
        if let Some(observer) = &mut self.observer {
            observer.count_charges(self.counts_charges);
            let group = observer.group();
            for pid in pids {
                observer.watch_process(group, pid);
            }
            observer.turn();
            self.group = Some(group);
        }
        self.kvm_before = self.kvm();
        self.before = Counters::read(self.quota.as_ref());
    }

    fn end(&mut self) {
        let now = Counters::read(self.quota.as_ref());
        self.observed = now.since(&self.before);
        let kvm = self.kvm_before.take().zip(self.kvm());
        self.observed.kvm = kvm.map(|(then, now)| live::grown(&then, &now));
        let Some((observer, group)) = self.observer.as_mut().zip(self.group) else {
            return;
        };
        let times = observer
            .turn()
            .into_iter()
            .find(|times| times.group == group);
        observer.forget(group);
        observer.count_charges(false);
        let (counts_charges, charged_groups) = (self.counts_charges, self.charged_groups);
        self.observed.sched = times.map(|times| Sched {
            on_cpu_ns: times.on_cpu.sum_ns,
            io_ns: times.io_ns(),
            off_cpu_ns: times
                .off_cpu
                .iter()
                .map(|off| (off.cause.phrase().to_owned(), off.stretches.sum_ns))
                .collect(),
            voluntary: times.voluntary_switches,
            involuntary: times.involuntary_switches,
            migrations: times.migrations,
            charges: counts_charges.then_some(times.charges),
            charged_groups: charged_groups.filter(|_| counts_charges),
            observer_ns: times.observer.user_space_ns + times.observer.bpf_ns.unwrap_or(0),
            observer_bpf_ns: times.observer.bpf_ns,
            on_cpu: Stretches::of(times.on_cpu.buckets.iter().map(|it| (it.from_ns, it.count))),
            off_cpu: {
                let off = times.off_cpu.iter();
                let buckets = off.flat_map(|off| &off.stretches.buckets);
                Stretches::of(buckets.map(|it| (it.from_ns, it.count)))
            },
        });
    }

    fn stop(&self) -> bool {
        self.interrupt.check().is_err()
    }
}

/// How many control groups account for a process's CPU time: its own and those above it.
fn charged_groups(pid: u32) -> Option<u64> {
    accounting(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// The same of the text of `/proc/PID/cgroup` (cgroups(7)): in version 1's hierarchy of `cpuacct`,
/// else in version 2's.
fn accounting(text: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let of = |wanted: fn(&str) -> bool| {
        let mut lines = lines.clone();
        lines.find(|(names, _)| names.split(',').any(wanted))
    };
    let (_, path) = of(|name| name == "cpuacct").or_else(|| of(str::is_empty))?;
    let below_root = path.split('/').filter(|name| !name.is_empty()).count();
    Some(below_root as u64 + 1)
}

/// KVM's counters, summed over vCPUs.
fn counters(stats: &Stats) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in stats.vcpus.iter().flat_map(|vcpu| &vcpu.kvm) {
        *sums.entry(name.clone()).or_default() += count;
    }
    sums
}

/// Counters of the system that only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    busy_ticks: u64,
    steal_ticks: u64,
    switches: u64,
    requests: u64,
    sectors: u64,
    disk_busy_ms: u64,
    disk_wait_ms: u64,
    throttled_us: Option<u64>,
}

impl Counters {
    fn read(quota: Option<&PathBuf>) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let disks = fs::read_to_string("/proc/diskstats").unwrap_or_default();
        Self {
            throttled_us: quota.and_then(|dir| cgroup::throttled_us(dir)),
            ..Self::parse(&stat, &disks)
        }
    }

    /// From the texts of `/proc/stat` and `/proc/diskstats` (proc(5)).
    fn parse(stat: &str, disks: &str) -> Self {
        let numbers = |line: &str| -> Vec<u64> {
            line.split_ascii_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect()
        };
        let line = |name: &str| stat.lines().find(|l| l.split(' ').next() == Some(name));
        let cpu = line("cpu").map(numbers).unwrap_or_default();
        let at = |place: usize| cpu.get(place).copied().unwrap_or(0);
        let mut counters = Self {
            busy_ticks: at(0) + at(1) + at(2) + at(5) + at(6),
            steal_ticks: at(7),
            switches: line("ctxt")
                .map(numbers)
                .and_then(|n| n.first().copied())
                .unwrap_or(0),
            ..Self::default()
        };
        for line in disks.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let number = |place: usize| {
                fields
                    .get(place)
                    .and_then(|w| w.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            // A loop device's requests come again at the disk below it.
            if fields.get(2).is_some_and(|name| !name.starts_with("loop")) {
                counters.requests += number(3) + number(7);
                counters.sectors += number(5) + number(9);
                counters.disk_wait_ms += number(6) + number(10);
                counters.disk_busy_ms += number(12);
            }
        }
        counters
    }

    fn since(&self, before: &Self) -> Observed {
        let throttled = self.throttled_us.zip(before.throttled_us);
        Observed {
            busy_s: self.busy_ticks.saturating_sub(before.busy_ticks) as f64 / TICKS_PER_S,
            steal_s: self.steal_ticks.saturating_sub(before.steal_ticks) as f64 / TICKS_PER_S,
            context_switches: self.switches.saturating_sub(before.switches),
            disk_requests: self.requests.saturating_sub(before.requests),
            disk_bytes: self.sectors.saturating_sub(before.sectors) * 512,
            disk_busy_s: self.disk_busy_ms.saturating_sub(before.disk_busy_ms) as f64 / 1e3,
            disk_wait_s: self.disk_wait_ms.saturating_sub(before.disk_wait_ms) as f64 / 1e3,
            throttled_us: throttled.map(|(now, then)| now.saturating_sub(then)),
            sched: None,
            kvm: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tare_control::stats::{Kvm, MemoryStats, VcpuStats};

    use super::*;

    #[test]
    fn counters_are_read_as_the_manual_says() {
        let stat = "cpu  10 1 5 900 7 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nctxt 1234\n";
        let disks = "254 0 vda 100 0 800 5 50 0 400 9 0 1 1\n7 0 loop0 9 0 9 9 9 0 9 9 0 1 1\n";
        let counters = Counters::parse(stat, disks);
        let expected = Counters {
            busy_ticks: 21,
            steal_ticks: 4,
            switches: 1234,
            requests: 150,
            sectors: 1200,
            disk_busy_ms: 1,
            disk_wait_ms: 14,
            throttled_us: None,
        };
        assert_eq!(counters, expected);
        assert_eq!(Counters::parse("", "x"), Counters::default());
    }

    #[test]
    fn cpu_time_is_charged_to_a_group_and_those_above_it() {
        let first = "5:freezer:/held\n4:cpu,cpuacct:/tare/run-1\n0::/x\n";
        assert_eq!(accounting(first), Some(3));
        assert_eq!(accounting("4:cpuacct:/\n0::/a/b/c\n"), Some(1));
        assert_eq!(accounting("5:freezer:/held\n0::/a/b\n"), Some(3));
        assert_eq!(
            (accounting(""), accounting("5:freezer:/a\nx")),
            (None, None)
        );
    }

    #[test]
    fn exits_are_counted_by_their_growth_over_all_vcpus() {
        let vcpu = |index, exits| VcpuStats {
            index,
            kvm: [("halt_exits".to_owned(), exits)].into(),
            ..VcpuStats::default()
        };
        let stats = |exits| Stats {
            name: "two".into(),
            pid: 1,
            kvm: Kvm::Emulated,
            ring: None,
            uptime_ns: 0,
            vcpus: vec![vcpu(0, exits), vcpu(1, exits)],
            devices: Vec::new(),
            threads: Vec::new(),
            memory: MemoryStats::default(),
            halt: None,
            expiries: Vec::new(),
        };
        let grown = live::grown(&counters(&stats(10)), &counters(&stats(25)));
        assert_eq!(grown.get("halt_exits"), Some(&30), "{grown:?}");
        assert!(grown.values().all(|count| *count > 0), "{grown:?}");
    }

    #[test]
    fn stretches_are_counted_by_powers_of_two() {
        let counts = [(0, 1), (1, 1), (5_000, 2), (8_191, 1), (8_192, u64::MAX)];
        let mut all = Stretches::of(counts.into_iter());
        let expected = [(0, 1), (1, 1), (4_096, 3), (8_192, u64::MAX)];
        assert_eq!(all, Stretches(expected.into()));
        all.merge(&all.clone());
        assert_eq!((all.0[&4_096], all.count()), (6, u64::MAX));
        // As a record has them.
        let text = serde_json::to_string(&all).expect("written");
        assert_eq!(serde_json::from_str::<Stretches>(&text).expect("read"), all);
    }

    #[test]
    fn a_wait_for_a_cpu_is_called_as_the_observer_calls_it() {
        assert_eq!(
            tare_probe::sched::Cause::RunQueue.phrase(),
            WAITING_FOR_A_CPU
        );
    }

    #[test]
    fn a_record_from_before_a_counter_was_added_is_read() {
        let old = r#"{"busy_s":1.0,"steal_s":0.0,"context_switches":3}"#;
        let observed: Observed = serde_json::from_str(old).expect("readable");
        assert_eq!((observed.context_switches, observed.kvm), (3, None));
    }
}
