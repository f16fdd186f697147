//! An example application by hand: its root as a directory, for `tare run --root`
//! and `tare profile --in-guest`; its check, loads and drawn requests, asked of
//! whoever answers on a port of this computer. `lab/appliances/take-profile` and
//! `lab/appliances/compare` are made of it.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use tare_rootfs::directory::Owners;
use tare_rootfs::{Cache, directory};

use super::catalog::{self, App, Connection, Phase, Protocol};
use super::dialog::{ANSWER, Dialog, QUIET, ask, greeted, timeless};
use super::{LinuxError, files, fuzz};

/// How long the check is tried: a translated guest of a busy computer boots slowly.
const SERVING: Duration = Duration::from_secs(180);
/// Between two tries.
const TRY: Duration = Duration::from_millis(200);

/// An application that cannot be laid out or asked.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ByHandError(#[from] LinuxError);

/// Writes an application's files below `dir`, which is made.
pub fn root(name: &str, dir: &Path) -> Result<(), ByHandError> {
    let app = catalog::find(name)?;
    let cache = Cache::open_default().map_err(LinuxError::from)?;
    let tree = files::tree(&app, &cache)?;
    fs::create_dir_all(dir).map_err(LinuxError::file(dir))?;
    Ok(directory::write(&tree, dir, Owners::Kept).map_err(LinuxError::from)?)
}

/// What it is run with, a line each: its port, its memory in MiB, its command.
pub fn words(name: &str) -> Result<String, ByHandError> {
    let app = catalog::find(name)?;
    let (port, memory, command) = (app.port, app.memory_mib, app.command.join(" "));
    Ok(format!("{port}\n{memory}\n{command}\n"))
}

/// Waits until its check passes on `port`.
pub fn check(name: &str, port: u16) -> Result<(), ByHandError> {
    let app = catalog::find(name)?;
    let begin = Instant::now();
    let mut last = "no answer".to_owned();
    while begin.elapsed() < SERVING {
        match ask(at(port), ANSWER, &app.check_wire()) {
            Ok(answer) if app.passes(&answer) => return Ok(()),
            Ok(answer) => last = String::from_utf8_lossy(&answer).into_owned(),
            Err(_) => {}
        }
        std::thread::sleep(TRY);
    }
    Err(LinuxError::Check {
        kernel: format!("port {port}"),
        limit: SERVING,
        said: last,
    }
    .into())
}

/// Asks `rounds` rounds of a phase; gives the number of answers.
pub fn load(name: &str, port: u16, phase: &str, rounds: usize) -> Result<usize, ByHandError> {
    let app = catalog::find(name)?;
    let phase = named(&app, phase)?;
    let mut visitor = Visitor {
        port,
        protocol: app.protocol,
        dialog: None,
        answers: 0,
    };
    if !phase.prepare.is_empty() {
        visitor.learn(&phase.prepare)?;
    }
    let known = phase.requests.iter().map(|request| {
        let bytes = visitor.learn(request)?;
        Ok((request, bytes))
    });
    let known: Vec<(&String, usize)> = known.collect::<Result<_, LinuxError>>()?;
    visitor.answers = 0;
    for _ in 0..rounds {
        if phase.connection == Connection::EachVisit {
            visitor.dialog = None;
        }
        for (request, bytes) in &known {
            visitor.ask(request, *bytes)?;
        }
    }
    Ok(visitor.answers)
}

/// Asks `count` drawn dialogs; gives a line for each, its answer without dates.
pub fn answers(name: &str, port: u16, count: usize) -> Result<String, ByHandError> {
    let app = catalog::find(name)?;
    let mut lines = String::new();
    for request in fuzz::dialogs(app.protocol, fuzz::SEED, count) {
        let answer = ask(at(port), ANSWER, &request)
            .map(|answer| timeless(app.protocol, &answer))
            .unwrap_or_else(|_| b"(no answer)".to_vec());
        let [request, answer] = [request, answer].map(|it| it.escape_ascii().to_string());
        let _ = writeln!(lines, "{request} -> {answer}");
    }
    Ok(lines)
}

fn named<'a>(app: &'a App, name: &str) -> Result<&'a Phase, LinuxError> {
    let mut phases = app.phases.iter();
    phases
        .find(|phase| phase.name == name)
        .ok_or_else(|| LinuxError::UnknownPhase {
            app: app.name.to_owned(),
            phase: name.to_owned(),
        })
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A client that connects again when the connection was closed.
struct Visitor {
    port: u16,
    protocol: Protocol,
    dialog: Option<Dialog>,
    answers: usize,
}

impl Visitor {
    /// The length of an answer, as it is on its own connection.
    fn learn(&mut self, request: &str) -> Result<usize, LinuxError> {
        let wire = self.protocol.wire(request);
        let answer =
            greeted(at(self.port), self.protocol).and_then(|mut dialog| dialog.learn(&wire, QUIET));
        answer
            .map(|answer| answer.len())
            .map_err(|_| self.unanswered(request))
    }

    fn ask(&mut self, request: &str, answer_bytes: usize) -> Result<(), LinuxError> {
        // Servers end a connection after a number of requests.
        for _ in 0..2 {
            let mut dialog = match self.dialog.take() {
                Some(dialog) => dialog,
                None => {
                    greeted(at(self.port), self.protocol).map_err(|_| self.unanswered(request))?
                }
            };
            let wire = self.protocol.wire(request);
            if dialog.exchange(&wire, answer_bytes).is_ok() {
                self.dialog = Some(dialog);
                self.answers += 1;
                return Ok(());
            }
        }
        Err(self.unanswered(request))
    }

    fn unanswered(&self, request: &str) -> LinuxError {
        LinuxError::NoAnswer {
            kernel: format!("port {}", self.port),
            request: request.to_owned(),
        }
    }
}
