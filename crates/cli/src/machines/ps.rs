//! `tare ps`: the machines of this user.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde::Serialize;
use tare_control::exit::ExitCode;
use tare_control::rundir::{Listing, Run, RunDir, RunRoot, RunState};
use tare_host::printable::printable;
use tare_launch::record::{Record, now_s};
use tare_launch::{limits, user};

use crate::args::PsArgs;
use crate::failure::{CommandResult, Failure};
use crate::output::{print, warn};

/// A machine as `tare ps --json` shows it.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// `None`: it could not be written, as on a full run root.
    #[serde(flatten)]
    record: Option<Record>,
    #[serde(flatten)]
    state: State,
    /// What confines the process that executes the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    confinement: Option<&'static str>,
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
    /// A process holds its lock, and nothing says which.
    Unknown,
}

/// How long a directory without a record has not changed when its machine is neither about to start nor
/// just ending.
const SETTLED: Duration = Duration::from_secs(10);

/// Lists the machines that run, with `--all` those that have ended as well.
pub(crate) fn ps(args: &PsArgs) -> CommandResult {
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
    let Ok(record) = Record::read(&run.dir) else {
        let is_shown = run.state == RunState::Running && is_settled(&run.dir);
        return is_shown.then(|| Row {
            name: run.dir.name().to_owned(),
            record: None,
            state: State::Unknown,
            confinement: None,
        });
    };
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
        confinement: Some(record.confinement()),
        record: Some(record),
        state,
    })
}

/// Whether nothing came into the directory or left it for a while.
fn is_settled(dir: &RunDir) -> bool {
    let changed = fs::metadata(dir.path()).and_then(|dir| dir.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= SETTLED))
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<16} {:>7} {:>10} {:>4} {:>7} {:<8} {:<13} PORTS\n",
        "NAME", "PID", "STATE", "CPUS", "MEMORY", "ENGINE", "CONFINED BY"
    );
    for row in rows {
        let cells = row.record.as_ref().map_or_else(Cells::default, Cells::of);
        let line = format!(
            "{:<16} {:>7} {:>10} {:>4} {:>7} {:<8} {:<13} {}",
            printable(&row.name),
            cells.pid,
            state(&row.state),
            cells.cpus,
            cells.memory,
            cells.engine,
            row.confinement.unwrap_or_default(),
            cells.remarks,
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// What the table shows of a record.
#[derive(Default)]
struct Cells {
    pid: String,
    cpus: String,
    memory: String,
    engine: &'static str,
    remarks: String,
}

impl Cells {
    fn of(record: &Record) -> Self {
        Self {
            pid: record.pid.to_string(),
            cpus: record.cpus.to_string(),
            memory: format!("{} M", record.memory_mib),
            engine: record.engine.name(),
            remarks: printable(&remarks(record)).into_owned(),
        }
    }
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
        State::Unknown => "unknown".to_owned(),
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
        let record = Record {
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
            passes_signals: false,
            user: None,
        };
        let row = |record: &Record, state| Row {
            name: "http-1".to_owned(),
            record: Some(record.clone()),
            confinement: Some("seccomp+ns"),
            state,
        };
        let again = Record {
            restarts: 12,
            ..record.clone()
        };
        let again = row(&again, State::Restarting { exit_code: 70 });
        let shown = super::table(&[again]);
        assert!(
            shown.ends_with("8080:80 (12 restarts)\n") && shown.contains("after 70"),
            "{shown}"
        );
        let table = table(&[row(&record, State::Running { uptime_s: 7199 })]);
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
