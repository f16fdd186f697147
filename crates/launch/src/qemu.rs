//! QEMU as the engine: where there is no KVM, or on request.
//!
//! For the library OS the machine is QEMU's microvm with virtio over MMIO, which starts in a third
//! of q35's time since its firmware has no PCI to set up (and little to be emulated, where KVM
//! emulates); for Linux it is q35 with virtio over PCI. The guest ends through the same port
//! (`isa-debug-exit`). QEMU reports less than Tare's monitor: a reset or triple fault of the guest
//! looks like a power-off, and an application's status is read from its console. The control socket speaks QMP
//! instead of HTTP. `supervise` starts QEMU and waits for it, here or in its own session.
//!
//! QEMU runs in a jail as the monitor does, and gets everything that is the user's as open
//! descriptors (`line`): it could not open them.

pub(crate) mod draft;
mod line;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tare_control::rundir::RunDir;
use tare_qemu::Accelerator;
use tare_qemu::qmp::Qmp;

use crate::confined::Jailed;
use crate::engine::EngineError;
use crate::failure::Failure;
use crate::machine::{Launched, LinkEnd, PreparedMachine, RunFileError};
use crate::passt::PasstUser;
use crate::request::JobMode;
use crate::supervise::{self, AtEnd, Supervised};
use crate::virtiofsd::Virtiofsd;
use crate::{Terminal, background, link, ports_process};
use line::QemuLine;

/// How long QEMU may take for its greeting and for each answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);

/// How long a silent guest delays the start before its machine counts as started.
const SPEECH_LIMIT: Duration = Duration::from_secs(1);

/// The programs of a machine in QEMU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs<'a> {
    /// QEMU.
    pub(crate) qemu: &'a Path,
    /// `tare-monitor`, which serves networks.
    pub(crate) monitor: Option<&'a Path>,
}

/// Starts QEMU for a prepared machine.
pub(crate) fn start(
    programs: Programs<'_>,
    accelerator: Accelerator,
    mut machine: PreparedMachine,
    terminal: &dyn Terminal,
) -> Result<Launched, Failure> {
    let dir = machine.run_dir.dir().clone();
    let network = network(&mut machine, programs.monitor)?;
    let QemuLine {
        arguments,
        handed,
        streams,
        signals,
    } = QemuLine::of(accelerator, &machine, network)
        .map_err(RunFileError::of("what QEMU is given", &dir))?;
    let qemu = Jailed::qemu(programs.qemu, accelerator, machine.spec.user.as_ref())
        .map_err(RunFileError::of("QEMU's jail", &dir))?;
    let (signals, _open) = signals.unzip();
    let supervised = Supervised {
        qemu: match signals {
            Some(_) => qemu.without_job_signals(),
            None => qemu,
        },
        arguments,
        run_dir: dir.path().to_owned(),
        guest: machine.spec.guest,
        volumes: machine.virtiofsds.iter().map(Virtiofsd::number).collect(),
        signals,
    };
    match machine.spec.place {
        JobMode::Foreground | JobMode::Attempt(_) => {
            machine
                .record
                .write(&dir)
                .map_err(RunFileError::of("run.json", &dir))?;
            // While QEMU starts, passt does too.
            let at_end = match machine.spec.place {
                JobMode::Attempt(_) => AtEnd::Leave(terminal),
                _ => AtEnd::Remove,
            };
            let ended = supervise::run(&supervised, &streams, at_end, || machine.connect());
            drop(handed);
            // They have served QEMU alone.
            machine.virtiofsds.into_iter().for_each(Virtiofsd::end);
            ended.map(Launched::Ended)
        }
        JobMode::Background => {
            machine.connect()?;
            let command = supervise::command(&supervised)
                .map_err(RunFileError::of("the supervisor's task", &dir))?;
            let mut answers = answers(&dir);
            let mut handed = Some(handed);
            let (starting, record, open) = machine.into_starting();
            let launched = background::detach(command, starting, Some(record), terminal, || {
                // Only QEMU listens now, so a client notices its end.
                handed = None;
                answers()
            });
            drop(open);
            launched
        }
    }
}

/// Whether a QEMU answers for the machine in `dir`.
pub(crate) fn answers(dir: &RunDir) -> impl FnMut() -> bool + use<> {
    let begin = Instant::now();
    let (socket, log) = (dir.control_socket(), dir.console_log());
    move || goes_on(&socket) && (speaks(&log) || begin.elapsed() > SPEECH_LIMIT)
}

/// QEMU's end of the socket to the process that serves the network, which has the published ports from here on.
fn network(
    machine: &mut PreparedMachine,
    monitor: Option<&Path>,
) -> Result<Option<OwnedFd>, Failure> {
    let dir = machine.run_dir.dir();
    let failed = |what| RunFileError::of(what, dir);
    let Some(link) = &mut machine.link else {
        return Ok(None);
    };
    if let LinkEnd::Tap { .. } = link.end {
        return Ok(None);
    }
    // The plan has looked.
    let monitor = monitor.ok_or(EngineError::NoMonitor(None))?;
    let user = machine.spec.user.as_ref();
    let started = user.map(PasstUser::of).transpose().and_then(|user| {
        let log = link::log(dir)?;
        ports_process::start(monitor, link, user.as_ref(), log)
    });
    let socket = started.map_err(failed("the process of QEMU's network"))?;
    if let LinkEnd::Direct { sockets, .. } = &mut link.end {
        sockets.clear();
    }
    Ok(Some(socket))
}

/// Whether the guest has printed something. QEMU drops frames that arrive before the guest's driver
/// is ready, and passt waits 10 s before it tries a connection again, so a machine counts as
/// started only once it prints.
fn speaks(console_log: &Path) -> bool {
    std::fs::metadata(console_log).is_ok_and(|log| log.len() > 0)
}

/// Whether QEMU reports on its control socket that its guest is no longer held (`query-status`,
/// QEMU `qapi/run-state.json`). QEMU sends its greeting before its jail is complete.
fn goes_on(socket: &Path) -> bool {
    let answer = Qmp::connect(socket, ANSWER_TIMEOUT).and_then(|mut qmp| {
        qmp.begin()?;
        qmp.execute("query-status", &json!({}))
    });
    answer.is_ok_and(|answer| {
        let answer = answer.unwrap_or_default();
        answer["status"]
            .as_str()
            .is_some_and(|it| it != "prelaunch")
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_machine_has_not_started_while_its_guest_is_held() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("control");
        assert!(!goes_on(&socket), "nothing listens");
        let listener = UnixListener::bind(&socket).unwrap();
        for (state, started) in [("prelaunch", false), ("running", true), ("shutdown", true)] {
            let fake = thread::scope(|scope| {
                scope.spawn(|| {
                    let mut client = listener.accept().unwrap().0;
                    let answers = format!(
                        "{{\"QMP\": {{}}}}\r\n{{\"return\": {{}}}}\r\n\
                         {{\"return\": {{\"status\": \"{state}\"}}}}\r\n"
                    );
                    client.write_all(answers.as_bytes()).unwrap();
                    let _ = client.read_to_end(&mut Vec::new());
                });
                goes_on(&socket)
            });
            assert_eq!(fake, started, "{state}");
        }
    }
}
