//! `tare stats`: a machine's counters, for people or as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tare_control::client::Client;
use tare_control::exit::ExitCode;
use tare_control::rundir::RunRoot;
use tare_control::stats::{DeviceStats, Expiry, HaltStats, Kvm, Stats, VcpuStats};
use tare_host::printable::printable;
use tare_launch::record::Record;

use super::stats_error::StatsError;
use super::watch::{Form, Watching, watch};
use crate::args::{StatsArgs, WatchSeconds};
use crate::failure::{CommandResult, Failure};
use crate::output::{print, width};

/// Prints the statistics of a machine.
pub(crate) fn stats(args: &StatsArgs) -> CommandResult {
    let dir = RunRoot::open_default()?.find(&args.name)?;
    if Record::read(&dir).is_ok_and(|record| !record.engine.answers()) {
        return Err(StatsError::Qemu(args.name.clone()).into());
    }
    let mut client = Client::new(dir.control_socket());
    if let Some(WatchSeconds(interval)) = args.watch {
        let form = if args.json { Form::Json } else { Form::Text };
        let count = args.count;
        let how = Watching {
            interval,
            count,
            form,
        };
        return watch(&args.name, &mut client, how);
    }
    let stats = client.stats().map_err(|source| StatsError::Ask {
        name: args.name.clone(),
        source,
    })?;
    if args.json {
        let json = serde_json::to_string_pretty(&stats)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        return print(&(json + "\n"));
    }
    print(&text(&stats))
}

fn text(stats: &Stats) -> String {
    let mut text = format!(
        "{}: process {}, {}{}, up {:.1} s\n",
        stats.name,
        stats.pid,
        match stats.kvm {
            Kvm::Hardware => "hardware KVM",
            Kvm::Emulated => "emulated KVM",
            Kvm::None => "no KVM",
        },
        stats
            .ring
            .map_or(String::new(), |ring| format!(", guest in ring {ring}")),
        seconds(stats.uptime_ns)
    );
    memory(stats, &mut text);
    if let Some(halt) = &stats.halt {
        halt_lines(halt, &mut text);
    }
    threads(stats, &mut text);
    for vcpu in &stats.vcpus {
        vcpu_lines(vcpu, &mut text);
    }
    expiries(&stats.expiries, &mut text);
    // A daemon has nothing but its disk, so an idle one is shown as well.
    let daemon = stats.vcpus.is_empty();
    for device in &stats.devices {
        let idle = device.counters.values().all(|value| *value == 0);
        if daemon || !idle {
            device_lines(device, &mut text);
        }
        if daemon && idle {
            text.push_str("  no requests yet\n");
        }
    }
    text
}

fn memory(stats: &Stats, text: &mut String) {
    let memory = &stats.memory;
    let _ = writeln!(
        text,
        "\nmemory: guest {}, of it resident {}; monitor {}\n  \
         in huge pages: {} of the guest's",
        bytes(memory.guest_bytes),
        bytes(memory.guest_resident_bytes),
        bytes(memory.monitor_resident_bytes),
        bytes(memory.guest_huge_bytes),
    );
}

fn halt_lines(halt: &HaltStats, text: &mut String) {
    let window = match halt.window_ns {
        None => "as the kernel has it".to_owned(),
        Some(0) => "no polling".to_owned(),
        Some(ns) => format!("polls for waits of up to {:.1} us", ns as f64 / 1e3),
    };
    let standing = halt.standing.as_deref().map(|it| format!(" ({it})"));
    let _ = writeln!(
        text,
        "\nhalt: {}, {window}{}\n  polled {:.3} % of a CPU, caught {} of {} halts\n  \
         reconsidered {} times, changed {}",
        halt.policy,
        standing.unwrap_or_default(),
        halt.polled_ppm as f64 / 1e4,
        halt.caught,
        halt.halts,
        halt.looks,
        halt.changes,
    );
    if let Some(why) = &halt.unavailable {
        let _ = writeln!(text, "  a budget cannot be kept: {why}");
    }
}

fn threads(stats: &Stats, text: &mut String) {
    let _ = writeln!(
        text,
        "\n{:<16} {:>8} {:>11} {:>11} {:>11} {:>7}",
        "THREAD", "TID", "USER s", "SYSTEM s", "WAITING s", "CPU %"
    );
    for thread in &stats.threads {
        let share = thread.run_ns as f64 / stats.uptime_ns.max(1) as f64;
        let _ = writeln!(
            text,
            "{:<16} {:>8} {:>11.3} {:>11.3} {:>11.3} {:>7.2}",
            thread.name,
            thread.tid,
            seconds(thread.user_ns),
            seconds(thread.system_ns),
            seconds(thread.wait_ns),
            share * 100.0,
        );
    }
}

fn vcpu_lines(vcpu: &VcpuStats, text: &mut String) {
    let _ = writeln!(text, "\nvcpu{}", vcpu.index);
    counters("exits to the monitor", &vcpu.exits, text);
    counters("kvm", &vcpu.kvm, text);
}

fn expiries(expiries: &[Expiry], text: &mut String) {
    if expiries.is_empty() {
        return;
    }
    text.push_str("\ntime limits and timers of the program that ran out\n");
    for expiry in expiries {
        let origin = expiry.to_string();
        let _ = writeln!(text, "  {} {}", printable(&origin), expiry.count);
    }
}

fn device_lines(device: &DeviceStats, text: &mut String) {
    let title = format!("{} {}", device.kind, device.address);
    let _ = writeln!(text, "\n{}", title.trim_end());
    counters("", &device.counters, text);
}

/// Counters that are not zero, several to a line.
fn counters(title: &str, counters: &BTreeMap<String, u64>, text: &mut String) {
    let mut line = match title {
        "" => " ".to_owned(),
        _ => format!("  {title}:"),
    };
    for (name, value) in counters.iter().filter(|(_, value)| **value != 0) {
        let word = format!(" {name} {value}");
        if line.len() + word.len() > width() {
            let _ = writeln!(text, "{line}");
            line = "   ".to_owned();
        }
        line.push_str(&word);
    }
    if !line.trim().is_empty() && !line.ends_with(':') {
        let _ = writeln!(text, "{line}");
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_485_760 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / (1024 * 1024)),
    }
}

#[cfg(test)]
mod tests {
    use tare_control::halt::HaltPolicy;
    use tare_control::stats::{MemoryStats, ThreadStats};

    use super::*;

    fn example() -> Stats {
        let many = (0..20).map(|n| (format!("counter_number_{n}"), u64::MAX / 7));
        Stats {
            name: "http-1".to_owned(),
            pid: 4_194_304,
            kvm: Kvm::Emulated,
            ring: Some(3),
            uptime_ns: 90_000_000_000,
            vcpus: vec![VcpuStats {
                exits: [("hlt".to_owned(), 3), ("pio_in".to_owned(), 0)].into(),
                kvm: many.collect(),
                ..VcpuStats::default()
            }],
            devices: vec![DeviceStats {
                kind: "net".to_owned(),
                address: "00:01.0".to_owned(),
                counters: [("rx_bytes".to_owned(), 1)].into(),
            }],
            threads: vec![ThreadStats {
                tid: 4_194_304,
                name: "vcpu0".to_owned(),
                run_ns: 45_000_000_000,
                ..ThreadStats::default()
            }],
            memory: MemoryStats {
                guest_bytes: 1 << 40,
                guest_resident_bytes: 1 << 40,
                guest_huge_bytes: 1 << 40,
                monitor_resident_bytes: 10 << 20,
            },
            halt: Some(HaltStats {
                policy: HaltPolicy::Poll(1_000_000_000),
                window_ns: Some(1_000_000_000),
                standing: Some("contended".to_owned()),
                halts: u64::MAX,
                caught: 10_000_000_000,
                polled_ns: 0,
                polled_ppm: 16_000_000,
                looks: 1_000_000,
                changes: 1_000_000,
                unavailable: Some("this KVM cannot set halt polling for one machine".to_owned()),
            }),
            expiries: Vec::new(),
        }
    }

    #[test]
    fn lines_stay_below_80_columns() {
        let text = text(&example());
        for line in text.lines() {
            assert!(line.len() < 80, "{line}");
        }
        assert!(text.contains("50.00"), "{text}");
    }

    #[test]
    fn an_idle_disk_of_a_daemon_is_shown() {
        let mut stats = example();
        stats.devices[0].counters.insert("rx_bytes".to_owned(), 0);
        assert!(!text(&stats).contains("no requests yet"));
        stats.vcpus.clear();
        assert!(text(&stats).contains("net 00:01.0\n  no requests yet\n"));
    }

    #[test]
    fn zeros_are_not_shown_and_everything_else_is() {
        let text = text(&example());
        assert!(!text.contains("pio_in"), "{text}");
        assert!(text.contains("exits to the monitor: hlt 3"), "{text}");
        assert!((0..20).all(|n| text.contains(&format!("counter_number_{n} "))));
    }
}
