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

use super::catalog::{self, App, Connection, Phase};
use super::client::{Client, Known, Round};
use super::dialog::{ANSWER, Dialog, ask, timeless};
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
    let client = Client::new(&app, at(port), &format!("port {port}"));
    let round = client.round(phase)?;
    let (mut dialog, mut answers) = (None, 0);
    for _ in 0..rounds {
        if phase.connection == Connection::EachVisit {
            dialog = None;
        }
        for one in &round.requests {
            dialog = Some(asked(&client, &round, dialog, one)?);
            answers += 1;
        }
    }
    Ok(answers)
}

/// Asks on a connection, and again on a new one: servers end a connection after a number of
/// requests. The connection that was answered on.
fn asked(
    client: &Client,
    round: &Round,
    dialog: Option<Dialog>,
    one: &Known,
) -> Result<Dialog, LinuxError> {
    if let Some(mut dialog) = dialog
        && one.ask(&mut dialog).is_ok()
    {
        return Ok(dialog);
    }
    let asked = client.open(round).and_then(|mut dialog| {
        one.ask(&mut dialog)?;
        Ok(dialog)
    });
    asked.map_err(|_| client.unanswered(&one.request))
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
            app: app.name.clone(),
            phase: name.to_owned(),
        })
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
