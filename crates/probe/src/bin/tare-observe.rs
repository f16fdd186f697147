//! The observer in a guest: starts the command, observes it as requested, writes
//! its output to a disk. Its only argument is a [`tare_probe::guest::ObserveRequest`].

#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tare_control::sentence::chain;
use tare_host::program::find_program;
use tare_host::stderr;
use tare_init::account::look_up_below;
use tare_init::credentials;
use tare_probe::guest::tracer::Tracer;
use tare_probe::guest::{
    FAILURE, OUTPUT_DISK, ObserveRequest, PROFILE, STATUS, STOP_PORT, TRACE, archive,
};
use tare_probe::syscalls::{Limits, Recorder};
use tare_profile::Way;

/// Status of a command that cannot be run.
const CANNOT_RUN: u8 = 126;
/// Between two looks at a command that is traced.
const TURN: Duration = Duration::from_millis(20);

/// What was found: a name and bytes, and the command's status.
type Finds = (&'static str, Vec<u8>, u8);

fn main() -> ExitCode {
    let (name, bytes, status) = observe().unwrap_or_else(|failure| {
        stderr::line(format_args!("tare-observe: {failure}"));
        (FAILURE, failure.into_bytes(), CANNOT_RUN)
    });
    let code = status.to_string();
    let pieces = [(name, bytes.as_slice()), (STATUS, code.as_bytes())];
    if let Err(error) = hand_over(&pieces) {
        stderr::line(format_args!(
            "tare-observe: cannot write to {OUTPUT_DISK}: {error}"
        ));
        return CANNOT_RUN.into();
    }
    status.into()
}

fn hand_over(pieces: &[(&str, &[u8])]) -> io::Result<()> {
    let disk = OpenOptions::new().write(true).open(OUTPUT_DISK)?;
    let mut buffered = io::BufWriter::with_capacity(1 << 20, disk);
    archive::write(pieces, &mut buffered)?;
    buffered.into_inner()?.sync_all()
}

fn observe() -> Result<Finds, String> {
    let argument = std::env::args()
        .nth(1)
        .ok_or("no request: it is started by `tare profile` in a guest")?;
    let request = ObserveRequest::parse(&argument).map_err(|error| error.to_string())?;
    let limits = Limits {
        length: request.length_ms.map(Duration::from_millis),
        ..Limits::default()
    };
    listen(Arc::clone(&limits.terminated));
    let mut command = command(&request)?;
    if request.graphs.is_empty() {
        profile(&mut command, &request, &limits)
    } else {
        graphs(&mut command, &request, &limits)
    }
}

/// A line from the host means: come to an end.
fn listen(flag: Arc<AtomicBool>) {
    thread::spawn(move || {
        if File::open(STOP_PORT).is_ok_and(|mut port| port.read(&mut [0; 1]).is_ok_and(|n| n > 0)) {
            flag.store(true, Ordering::Relaxed);
        }
    });
}

fn command(request: &ObserveRequest) -> Result<Command, String> {
    let (name, arguments) = request.command.split_first().ok_or("there is no command")?;
    let program = find_program(name).map_err(|error| error.to_string())?;
    let account =
        look_up_below(&request.user, Path::new("/")).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg0(name).args(arguments);
    // Its calls come before the command's own and are not counted.
    credentials::give(&mut command, &account);
    if account.uid != 0 || account.gid != 0 {
        command.env("HOME", account.home.as_deref().unwrap_or("/"));
    }
    Ok(command)
}

fn profile(
    command: &mut Command,
    request: &ObserveRequest,
    limits: &Limits,
) -> Result<Finds, String> {
    let mut recorder = Recorder::start(None).map_err(|error| error.to_string())?;
    let mut child = recorder
        .spawn(command)
        .map_err(|error| format!("cannot run {}: {error}", request.command[0]))?;
    let outcome = recorder
        .until_command_ends(&mut child, limits, |_| {})
        .map_err(|error| error.to_string())?;
    let (profile, _) = recorder.finish("", Way::Command(request.command.clone()));
    let json = profile.to_json().map_err(|error| error.to_string())?;
    Ok((PROFILE, json, outcome.status.map_or(0, code)))
}

fn graphs(
    command: &mut Command,
    request: &ObserveRequest,
    limits: &Limits,
) -> Result<Finds, String> {
    let failed = |error: io::Error| format!("cannot run {}: {error}", request.command[0]);
    let tracer = Tracer::start(&request.graphs).map_err(|error| chain(&error))?;
    let mut child = command.spawn().map_err(failed)?;
    let begin = std::time::Instant::now();
    let is_over = || {
        limits.terminated.load(Ordering::Relaxed)
            || limits
                .length
                .is_some_and(|length| begin.elapsed() >= length)
    };
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break code(status);
        }
        if is_over() {
            child.kill().map_err(failed)?;
            break code(child.wait().map_err(failed)?);
        }
        thread::sleep(TURN);
    };
    let trace = tracer.read().map_err(|error| chain(&error))?;
    Ok((TRACE, trace, status))
}

fn code(status: ExitStatus) -> u8 {
    let of_signal = || Some(128 + status.signal()?);
    let code = status.code().or_else(of_signal);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}
