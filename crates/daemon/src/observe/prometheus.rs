//! Statistics as Prometheus text (exposition format 0.0.4).
//!
//! Names begin with `tare_`; times are seconds, sizes bytes, as Prometheus
//! wants its units. KVM's statistics have KVM's names between `tare_kvm_` and the endings
//! that Prometheus wants: `halt_wait_ns` is `tare_kvm_halt_wait_seconds_total`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tare_control::stats::{Stats, ThreadStats};

/// `stats` as text.
pub(crate) fn text(stats: &Stats) -> String {
    let mut page = Page::default();
    machine(&mut page, stats);
    vcpus(&mut page, stats);
    kvm(&mut page, stats);
    histograms(&mut page, stats);
    devices(&mut page, stats);
    threads(&mut page, stats);
    memory(&mut page, stats);
    halt(&mut page, stats);
    expiries(&mut page, stats);
    page.0
}

fn machine(page: &mut Page, stats: &Stats) {
    page.family("tare_machine_info", "gauge", "The machine, always 1.");
    let kvm = format!("{:?}", stats.kvm).to_lowercase();
    let name = stats.name.as_str();
    let ring = stats.ring.map_or(String::new(), |ring| ring.to_string());
    let labels = [("name", name), ("kvm", &kvm), ("ring", &ring)];
    page.sample("tare_machine_info", &labels, 1);
    let name = "tare_uptime_seconds";
    page.family(name, "gauge", "Time since the monitor began.");
    page.sample(name, &[], seconds(stats.uptime_ns));
}

fn vcpus(page: &mut Page, stats: &Stats) {
    let name = "tare_vcpu_exits_total";
    page.family(name, "counter", "Returns from KVM_RUN to the monitor.");
    for vcpu in &stats.vcpus {
        let index = vcpu.index.to_string();
        for (kind, count) in &vcpu.exits {
            page.sample(name, &[("vcpu", &index), ("kind", kind)], count);
        }
    }
}

fn kvm(page: &mut Page, stats: &Stats) {
    let names: BTreeSet<&String> = stats.vcpus.iter().flat_map(|v| v.kvm.keys()).collect();
    for name in names {
        let is_state = stats.vcpus.iter().any(|vcpu| vcpu.states.contains(name));
        let (name_s, unit) = match name.strip_suffix("_ns") {
            Some(time) => (time, "_seconds"),
            None => (name.as_str(), ""),
        };
        let (kind, ending) = if is_state {
            ("gauge", "")
        } else {
            ("counter", "_total")
        };
        let metric = format!("tare_kvm_{name_s}{unit}{ending}");
        page.family(&metric, kind, "A statistic of KVM's, by KVM's name.");
        for vcpu in &stats.vcpus {
            let Some(value) = vcpu.kvm.get(name) else {
                continue;
            };
            let index = vcpu.index.to_string();
            match unit {
                "" => page.sample(&metric, &[("vcpu", &index)], value),
                _ => page.sample(&metric, &[("vcpu", &index)], seconds(*value)),
            }
        }
    }
}

/// Bucket 0 holds zeros, bucket n values below 2^n ns; the last all that are longer.
fn histograms(page: &mut Page, stats: &Stats) {
    let all = stats.vcpus.iter().flat_map(|v| v.histograms.keys());
    for name in all.collect::<BTreeSet<_>>() {
        let time = name.strip_suffix("_hist").unwrap_or(name);
        // Not the name of the sum, which is a family as well.
        let metric = format!("tare_kvm_{name}_seconds");
        page.family(&metric, "histogram", "A histogram of KVM's.");
        for vcpu in &stats.vcpus {
            let Some(counts) = vcpu.histograms.get(name) else {
                continue;
            };
            let index = vcpu.index.to_string();
            let bucket = format!("{metric}_bucket");
            let mut total = 0;
            for (n, count) in counts.iter().enumerate() {
                total += count;
                let le = 1u64.checked_shl(n as u32).unwrap_or(0).wrapping_sub(1);
                if n + 1 < counts.len() {
                    page.sample(&bucket, &[("vcpu", &index), ("le", &seconds(le))], total);
                }
            }
            page.sample(&bucket, &[("vcpu", &index), ("le", "+Inf")], total);
            // KVM keeps the sum beside the histogram: halt_wait_hist, halt_wait_ns.
            let sum = vcpu.kvm.get(&format!("{time}_ns")).copied();
            let sum = seconds(sum.unwrap_or_default());
            page.sample(&format!("{metric}_sum"), &[("vcpu", &index)], sum);
            page.sample(&format!("{metric}_count"), &[("vcpu", &index)], total);
        }
    }
}

fn devices(page: &mut Page, stats: &Stats) {
    let all = stats.devices.iter().flat_map(|d| d.counters.keys());
    for name in all.collect::<BTreeSet<_>>() {
        let metric = format!("tare_device_{name}_total");
        page.family(&metric, "counter", "A device's counter.");
        for device in &stats.devices {
            if let Some(value) = device.counters.get(name) {
                let labels = [("device", &*device.kind), ("address", &*device.address)];
                page.sample(&metric, &labels, value);
            }
        }
    }
}

fn threads(page: &mut Page, stats: &Stats) {
    type Field = fn(&ThreadStats) -> u64;
    let families: [(&str, &str, Field); 4] = [
        ("user", "CPU time in user mode.", |t| t.user_ns),
        ("system", "CPU time in kernel mode.", |t| t.system_ns),
        ("run", "Time on a CPU, by the scheduler's account.", |t| {
            t.run_ns
        }),
        ("wait", "Time runnable but waiting for a CPU.", |t| {
            t.wait_ns
        }),
    ];
    for (name, help, field) in families {
        let metric = format!("tare_thread_{name}_seconds_total");
        page.family(&metric, "counter", help);
        for thread in &stats.threads {
            page.sample(&metric, &[("thread", &thread.name)], seconds(field(thread)));
        }
    }
}

fn memory(page: &mut Page, stats: &Stats) {
    let memory = &stats.memory;
    let families = [
        ("guest", "Size of guest memory.", memory.guest_bytes),
        (
            "guest_resident",
            "Guest memory that is resident.",
            memory.guest_resident_bytes,
        ),
        (
            "guest_huge",
            "Resident guest memory in transparent huge pages.",
            memory.guest_huge_bytes,
        ),
        (
            "monitor_resident",
            "Resident memory of the monitor without the guest's.",
            memory.monitor_resident_bytes,
        ),
    ];
    for (name, help, value) in families {
        let metric = format!("tare_memory_{name}_bytes");
        page.family(&metric, "gauge", help);
        page.sample(&metric, &[], value);
    }
}

fn halt(page: &mut Page, stats: &Stats) {
    let Some(halt) = &stats.halt else { return };
    page.family(
        "tare_halt_info",
        "gauge",
        "How halted vCPUs wait, always 1.",
    );
    let policy = halt.policy.to_string();
    let standing = halt.standing.as_deref().unwrap_or_default();
    let labels = [("policy", &*policy), ("standing", standing)];
    page.sample("tare_halt_info", &labels, 1);
    if let Some(window_ns) = halt.window_ns {
        let name = "tare_halt_window_seconds";
        page.family(
            name,
            "gauge",
            "Longest poll before a vCPU is scheduled out.",
        );
        page.sample(name, &[], seconds(window_ns));
    }
    let name = "tare_halt_polled_seconds_total";
    page.family(name, "counter", "Time spent polling for halted vCPUs.");
    page.sample(name, &[], seconds(halt.polled_ns));
    let counters = [
        ("halts", "Halts that have ended.", halt.halts),
        ("caught", "Halts that ended while polled.", halt.caught),
        ("looks", "Times that a budget was reconsidered.", halt.looks),
        (
            "changes",
            "Times that the window was changed.",
            halt.changes,
        ),
    ];
    for (name, help, value) in counters {
        let metric = format!("tare_halt_{name}_total");
        page.family(&metric, "counter", help);
        page.sample(&metric, &[], value);
    }
}

fn expiries(page: &mut Page, stats: &Stats) {
    if stats.expiries.is_empty() {
        return;
    }
    let name = "tare_program_expiries_total";
    let help = "Time limits and timers of the program that ran out.";
    page.family(name, "counter", help);
    for expiry in &stats.expiries {
        let thread = expiry.thread.to_string();
        let labels = [
            ("call", expiry.call.as_str()),
            ("thread", &thread),
            ("thread_name", &expiry.thread_name),
        ];
        page.sample(name, &labels, expiry.count);
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tare_control::halt::HaltPolicy;
    use tare_control::stats::{Expiry, HaltStats, Kvm, MemoryStats, VcpuStats};

    use super::*;

    fn sample_stats() -> Stats {
        Stats {
            name: "a\"b".to_owned(),
            pid: 1,
            kvm: Kvm::Emulated,
            ring: Some(3),
            uptime_ns: 1_500_000_000,
            vcpus: vec![VcpuStats {
                index: 0,
                exits: BTreeMap::from([("pio_in".to_owned(), 3)]),
                kvm: BTreeMap::from([
                    ("halt_wait_ns".to_owned(), 77),
                    ("halt_exits".to_owned(), 7),
                    ("blocking".to_owned(), 1),
                ]),
                states: BTreeSet::from(["blocking".to_owned()]),
                histograms: BTreeMap::from([("halt_wait_hist".to_owned(), vec![1, 0, 2, 4])]),
            }],
            devices: vec![],
            threads: vec![ThreadStats::default()],
            memory: MemoryStats::default(),
            halt: Some(HaltStats {
                policy: HaltPolicy::default(),
                window_ns: Some(65_536),
                standing: Some("within".to_owned()),
                halts: 9,
                caught: 5,
                polled_ns: 2_000_000,
                polled_ppm: 1333,
                looks: 4,
                changes: 1,
                unavailable: None,
            }),
            expiries: vec![Expiry {
                call: "epoll_wait".to_owned(),
                thread: 1,
                thread_name: "redis-server".to_owned(),
                count: 12,
            }],
        }
    }

    #[test]
    fn what_ran_out_in_the_program_is_there_by_call_and_thread() {
        let line = "tare_program_expiries_total{call=\"epoll_wait\",thread=\"1\",\
                    thread_name=\"redis-server\"} 12\n";
        let text = text(&sample_stats());
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn labels_are_escaped_and_times_are_seconds() {
        let text = text(&sample_stats());
        assert!(
            text.contains("tare_machine_info{name=\"a\\\"b\",kvm=\"emulated\",ring=\"3\"} 1\n")
        );
        assert!(text.contains("tare_uptime_seconds 1.500000000\n"));
        assert!(text.contains("tare_vcpu_exits_total{vcpu=\"0\",kind=\"pio_in\"} 3\n"));
    }

    #[test]
    fn how_halts_wait_and_what_polling_cost_is_there() {
        let text = text(&sample_stats());
        for line in [
            "tare_halt_info{policy=\"budget=1\",standing=\"within\"} 1\n",
            "tare_halt_window_seconds 0.000065536\n",
            "tare_halt_polled_seconds_total 0.002000000\n",
            "tare_halt_looks_total 4\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn every_family_has_a_type_and_times_are_seconds() {
        let text = text(&sample_stats());
        for line in [
            "# TYPE tare_kvm_halt_wait_seconds_total counter\n",
            "tare_kvm_halt_wait_seconds_total{vcpu=\"0\"} 0.000000077\n",
            "# TYPE tare_kvm_halt_exits_total counter\n",
            "tare_kvm_halt_exits_total{vcpu=\"0\"} 7\n",
            "# TYPE tare_kvm_blocking gauge\n",
            "tare_kvm_blocking{vcpu=\"0\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            assert!(!line.ends_with(" untyped"), "{line}");
            assert!(!line.contains("_ns"), "{line}");
        }
    }

    #[test]
    fn histograms_accumulate_and_close() {
        let text = text(&sample_stats());
        let bucket = |le: &str, value: u64| {
            format!("tare_kvm_halt_wait_hist_seconds_bucket{{vcpu=\"0\",le=\"{le}\"}} {value}\n")
        };
        let finite = [("0.000000000", 1), ("0.000000001", 1), ("0.000000003", 3)];
        for (le, value) in finite.into_iter().chain([("+Inf", 7)]) {
            assert!(text.contains(&bucket(le, value)), "{le}\n{text}");
        }
        assert!(text.contains("tare_kvm_halt_wait_hist_seconds_sum{vcpu=\"0\"} 0.000000077\n"));
    }

    #[test]
    fn every_sample_belongs_to_a_declared_family() {
        let text = text(&sample_stats());
        let families: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(
                families.iter().any(|family| line.starts_with(family)),
                "{line}"
            );
        }
        let unique: BTreeSet<_> = families.iter().collect();
        assert_eq!(unique.len(), families.len());
    }
}
