//! `tare ps`: the machines of this user.

use std::fmt::Write as _;

use serde::Serialize;
use tare_control::exit::ExitCode;
use tare_control::rundir::{Listing, Run, RunRoot, RunState};
use tare_host::printable::printable;
use tare_launch::record::{Record, now_s};
use tare_launch::{limits, user};

use crate::args::PsArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{print, warn};

/// A machine as `tare ps --json` shows it.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    record: Record,
    #[serde(flatten)]
    state: State,
    /// What confines the process that executes the guest.
    confinement: &'static str,
}

/// Whether it runs.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum State {
    Running {
        uptime_s: u64,
    },
    /// It failed, and waits for its next start.
    Restarting {
        exit_code: u8,
    },
    Ended {
        /// None: it was killed.
        exit_code: Option<u8>,
        ended_s: Option<u64>,
    },
}

/// Lists the machines that run, with `--all` those that have ended as well.
pub(crate) fn ps(args: &PsArgs) -> Outcome {
    limits::sweep();
    user::sweep();
    let Listing { runs, foreign } = RunRoot::open_default()?.list()?;
    for path in foreign {
        warn(&format!(
            "{} was not created by tare and is left alone",
            path.display()
        ));
    }
    let shown = |run: &&Run| args.all || run.state == RunState::Running;
    let rows: Vec<Row> = runs.iter().filter(shown).filter_map(row).collect();
    if args.json {
        let json = serde_json::to_string_pretty(&rows)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        return print(&(json + "\n"));
    }
    print(&table(&rows))
}

/// `None` for a machine that is just ending, or has not started yet: it has no record.
fn row(run: &Run) -> Option<Row> {
    let record = Record::read(&run.dir).ok()?;
    let state = match &run.state {
        RunState::Running => match record.waits_after {
            Some(exit_code) => State::Restarting { exit_code },
            None => State::Running {
                uptime_s: now_s().saturating_sub(record.started_s),
            },
        },
        RunState::Ended(end) => State::Ended {
            exit_code: end.map(|end| end.code),
            ended_s: end.map(|end| end.ended_s),
        },
    };
    Some(Row {
        name: run.dir.name().to_owned(),
        confinement: record.confinement(),
        record,
        state,
    })
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<16} {:>7} {:>10} {:>4} {:>7} {:<8} {:<13} PORTS\n",
        "NAME", "PID", "STATE", "CPUS", "MEMORY", "ENGINE", "CONFINED BY"
    );
    for row in rows {
        let record = &row.record;
        let _ = writeln!(
            text,
            "{:<16} {:>7} {:>10} {:>4} {:>7} {:<8} {:<13} {}",
            printable(&row.name),
            record.pid,
            state(&row.state),
            record.cpus,
            format!("{} M", record.memory_mib),
            record.engine.name(),
            row.confinement,
            printable(&remarks(record)),
        );
    }
    text
}

fn state(state: &State) -> String {
    match state {
        State::Running { uptime_s } => format!("up {}", duration(*uptime_s)),
        State::Restarting { exit_code } => format!("after {exit_code}"),
        State::Ended {
            exit_code: Some(code),
            ..
        } => format!("exit {code}"),
        State::Ended {
            exit_code: None, ..
        } => "killed".to_owned(),
    }
}

/// Its ports, and its restarts.
fn remarks(record: &Record) -> String {
    let ports = ports(&record.ports);
    let restarts = match record.restarts {
        0 => return ports,
        1 => "(1 restart)".to_owned(),
        more => format!("({more} restarts)"),
    };
    format!("{ports} {restarts}").trim_start().to_owned()
}

/// Leaves out the defaults: the loopback address and TCP.
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
    use tare_launch::record::EngineName;

    #[test]
    fn a_machine_is_one_line_below_80_columns() {
        let row = Row {
            name: "http-1".to_owned(),
            record: Record {
                engine: EngineName::QemuKvm,
                pid: 4_194_304,
                start_time: None,
                image: "http".to_owned(),
                cpus: 16,
                memory_mib: 65_536,
                ports: vec!["127.0.0.1:8080:80/tcp".to_owned()],
                started_s: 0,
                restarts: 0,
                keeper: None,
                waits_after: None,
                reload: None,
                user: None,
            },
            confinement: "seccomp+ns",
            state: State::Running { uptime_s: 7199 },
        };
        let mut again = Row {
            name: row.name.clone(),
            record: row.record.clone(),
            confinement: row.confinement,
            state: State::Restarting { exit_code: 70 },
        };
        again.record.restarts = 12;
        let shown = super::table(&[again]);
        assert!(
            shown.ends_with("8080:80 (12 restarts)\n") && shown.contains("after 70"),
            "{shown}"
        );
        let table = table(&[row]);
        assert!(table.lines().all(|line| line.len() < 80), "{table}");
        assert!(
            table.ends_with("qemu-kvm seccomp+ns    8080:80\n"),
            "{table}"
        );
        assert!(table.contains("up 119 min"), "{table}");
    }

    #[test]
    fn durations_are_short() {
        let texts = [0, 119, 120, 7200, 172_800].map(duration);
        assert_eq!(texts, ["0 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
