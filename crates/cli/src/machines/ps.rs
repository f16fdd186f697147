//! `tare ps`: the running machines of this user.

use std::fmt::Write as _;

use serde::Serialize;
use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDir, RunRoot};

use crate::args::PsArgs;
use crate::failure::{Failure, Outcome};
use crate::record::{Record, now_s};

/// A running machine as `tare ps --json` shows it.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    record: Record,
    uptime_s: u64,
}

/// Lists the machines that run.
pub(crate) fn ps(args: &PsArgs) -> Outcome {
    let machines = RunRoot::open_default()?.list()?;
    let rows: Vec<Row> = machines.iter().filter_map(row).collect();
    if args.json {
        let json = serde_json::to_string_pretty(&rows)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        return crate::print(&(json + "\n"));
    }
    crate::print(&table(&rows))
}

/// A machine that is just ending, or not yet started, has no record.
fn row(dir: &RunDir) -> Option<Row> {
    let record = Record::read(dir).ok()?;
    Some(Row {
        name: dir.name().to_owned(),
        uptime_s: now_s().saturating_sub(record.started_s),
        record,
    })
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<16} {:>7} {:>6} {:>4} {:>7} {:<8} PORTS\n",
        "NAME", "PID", "UP", "CPUS", "MEMORY", "ENGINE"
    );
    for row in rows {
        let record = &row.record;
        let _ = writeln!(
            text,
            "{:<16} {:>7} {:>6} {:>4} {:>7} {:<8} {}",
            row.name,
            record.pid,
            duration(row.uptime_s),
            record.cpus,
            format!("{} M", record.memory_mib),
            record.engine.name(),
            ports(&record.ports),
        );
    }
    text
}

/// As short as can be: the loopback address and TCP are what one expects.
fn ports(ports: &[String]) -> String {
    let short = |port: &String| {
        let port = port.strip_prefix("127.0.0.1:").unwrap_or(port);
        port.strip_suffix("/tcp").unwrap_or(port).to_owned()
    };
    ports.iter().map(short).collect::<Vec<_>>().join(" ")
}

/// Seconds in the largest unit that leaves two digits.
fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::EngineName;

    #[test]
    fn a_machine_is_one_line_below_80_columns() {
        let row = Row {
            name: "http-1".to_owned(),
            record: Record {
                engine: EngineName::QemuKvm,
                pid: 4_194_304,
                image: "http".to_owned(),
                cpus: 16,
                memory_mib: 65_536,
                ports: vec!["127.0.0.1:8080:80/tcp".to_owned()],
                started_s: 0,
            },
            uptime_s: 7199,
        };
        let table = table(&[row]);
        assert!(table.lines().all(|line| line.len() < 80), "{table}");
        assert!(table.ends_with("qemu-kvm 8080:80\n"), "{table}");
        assert!(table.contains("119 min"), "{table}");
    }

    #[test]
    fn durations_are_short() {
        let texts = [0, 119, 120, 7200, 172_800].map(duration);
        assert_eq!(texts, ["0 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
