//! The proof that an application works on a kernel: the kernel boots, the check
//! passes, a load of it runs without errors.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tare_abi::exit::STATUS_LINE;
use tare_init::{Figures, Logging};
use tare_qemu::MachineType;
use tare_rootfs::cpio::PackError;
use tare_rootfs::guest::GuestError;
use tare_rootfs::modules::Module;
use tare_rootfs::{Task, Tree, cpio, guest};

use crate::check::Check;
use crate::machine::{Execution, MachineError, ProofMachine, Running, kernel_code_kib};
use crate::root::Application;
use crate::{check, machine};

/// Between two tries of a check.
const PAUSE: Duration = Duration::from_millis(100);
/// How long an application without a check has to go on, if nothing else is wanted.
pub const GOES_ON: Duration = Duration::from_secs(3);
/// Tries of a command in the guest.
const TRIES: u32 = 50;
/// Requests of the load, and how many wait at once.
const LOAD_REQUESTS: u32 = 200;
const LOAD_CLIENTS: u32 = 4;
/// How long a start with a counted clock may take, which is a slow one.
const WEIGHED: Duration = Duration::from_secs(300);
/// Memory of a guest that only starts, MiB.
const ALONE_MIB: u32 = 256;
/// Last lines of an application that a failure quotes, and characters of each.
const LAST_LINES: usize = 3;
const LINE_CHARS: usize = 160;
/// Has the kernel's lines begin with their time (`printk.time` in kernel/printk/printk.c), which an
/// application's on the same console do not.
pub(crate) const TIMED: &str = "printk.time=1";
/// What the kernel of no sound guest says.
const ALARMS: &[&str] = &[
    "BUG:",
    "WARNING:",
    "Oops",
    "Kernel panic",
    "segfault at",
    "general protection",
    "Out of memory",
    "invalid opcode",
];

/// How a kernel is proven.
#[derive(Clone, Debug)]
pub struct ProofConfig {
    /// What shows that the application works.
    pub check: Check,
    /// The type of the guest's machine.
    pub machine_type: MachineType,
    /// How the guest is executed.
    pub execution: Execution,
    /// More words for the kernel; empty for none.
    pub cmdline: String,
    /// Its memory, MiB.
    pub memory_mib: u32,
    /// How long the check may take to pass.
    pub limit: Duration,
    /// How long an application without a check has to go on ([`Check::Runs`]), host's time: one
    /// that fails later than that passes.
    pub goes_on: Duration,
    /// Whether the guest tells what its kernel refuses the application
    /// ([`tare_init::Refusal`]), which slows it down.
    pub refusals: Logging,
    /// Ends the proof.
    pub interrupted: Arc<AtomicBool>,
    /// The program `tare`, which starts itself to confine QEMU.
    pub tare: PathBuf,
}

/// What came of a proof.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    /// What did not work; `None` for a kernel that is proven.
    pub failure: Option<String>,
    /// From the start of the machine to the check's pass or failure, ms.
    pub check_ms: u64,
    /// Requests of the load.
    pub requests: u32,
    /// Errors under load, by kind.
    pub errors: BTreeMap<String, u32>,
    /// The console.
    pub console: PathBuf,
    /// What the user should know of the jail of the guest's QEMU, if anything.
    #[serde(skip)]
    pub warning: Option<&'static str>,
}

/// A proof that was not made.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// The guest's files.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The initramfs.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A directory.
    #[error("cannot use {}", path.display())]
    Dir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Ended from outside.
    #[error("interrupted; files built so far are kept")]
    Interrupted,
}

impl Proof {
    /// Whether the kernel is proven.
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }
}

/// Proves a kernel; `modules` are those of one that has any. The console goes
/// to `console`.
pub fn prove(
    kernel: &Path,
    modules: &[Module],
    application: &Application,
    terms: &ProofConfig,
    console: &Path,
) -> Result<Proof, ProveError> {
    make_parent(console)?;
    let initramfs = initramfs(application, modules, terms, Logging::Off)?;
    let begin = Instant::now();
    let mut running = ProofMachine {
        kernel,
        initramfs: &initramfs,
        words: &format!("{TIMED} {}", terms.cmdline),
        memory_mib: terms.memory_mib,
        port: terms.check.port(),
        machine_type: terms.machine_type,
        execution: terms.execution,
        console,
        plugin: None,
        counts: Logging::Off,
        tare: &terms.tare,
    }
    .start()?;
    let mut proof = Proof {
        failure: judge(&mut running, terms)?,
        check_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
        requests: 0,
        errors: BTreeMap::new(),
        console: console.to_owned(),
        warning: running.warning(),
    };
    if proof.passed() {
        let requests = match terms.check {
            Check::Http { .. } => LOAD_REQUESTS,
            // Each takes the time that a connection has to stay open.
            _ => LOAD_CLIENTS * 4,
        };
        let made = load(running.port, terms, requests, || terms.may_go_on());
        go_on(terms)?;
        (proof.requests, proof.errors) = (made.requests, made.errors);
        proof.failure = after_load(&mut running, &proof, terms);
    }
    Ok(proof)
}

/// Makes the directory of a file.
pub(crate) fn make_parent(file: &Path) -> Result<(), ProveError> {
    let Some(dir) = file.parent() else {
        return Ok(());
    };
    fs::create_dir_all(dir).map_err(|source| ProveError::Dir {
        path: dir.to_owned(),
        source,
    })
}

/// The guest's files, packed: with a check by command that command is what the
/// machine lives for, and the application runs beside it. With `counts` the first process sends those
/// of an instrumented kernel.
pub(crate) fn initramfs(
    application: &Application,
    modules: &[Module],
    terms: &ProofConfig,
    counts: Logging,
) -> Result<File, ProveError> {
    let mut tree = application.tree.clone();
    let mut task = application.task.clone();
    if let Check::Command(words) = &terms.check {
        task.beside.push(task.command.clone());
        task.command.clone_from(words);
        task.tries = TRIES;
    }
    task.figures = Logging::On;
    task.refusals = terms.refusals;
    task.counts = counts;
    guest::add_init(&mut tree, task, modules, &guest::find_init()?)?;
    Ok(cpio::pack(&tree)?)
}

/// What is wrong, if the check does not pass in time.
pub(crate) fn judge(
    running: &mut Running,
    terms: &ProofConfig,
) -> Result<Option<String>, ProveError> {
    let begin = Instant::now();
    let mut last = "it did not start".to_owned();
    while begin.elapsed() < terms.limit {
        go_on(terms)?;
        let lives = running.is_alive();
        match look(running, terms, lives) {
            Look::Passed => return Ok(None),
            Look::Failed(why) => return Ok(Some(why)),
            Look::NotYet(why) if !lives => {
                return Ok(Some(format!("the guest ended: {}", said(running, &why))));
            }
            Look::NotYet(why) => last = why,
        }
        thread::sleep(PAUSE);
    }
    let waited = terms.limit.as_secs();
    let last = said(running, &last);
    Ok(Some(format!(
        "the check did not pass in {waited} s: {last}"
    )))
}

impl ProofConfig {
    /// Whether no signal has come.
    pub fn may_go_on(&self) -> bool {
        !self.interrupted.load(Ordering::Relaxed)
    }
}

/// What a signal cut short proves nothing.
pub(crate) fn go_on(terms: &ProofConfig) -> Result<(), ProveError> {
    if terms.may_go_on() {
        Ok(())
    } else {
        Err(ProveError::Interrupted)
    }
}

enum Look {
    Passed,
    Failed(String),
    NotYet(String),
}

fn look(running: &mut Running, terms: &ProofConfig, lives: bool) -> Look {
    let console = running.console();
    let of_probe = |result: Result<(), String>| match result {
        Ok(()) => Look::Passed,
        Err(why) => Look::NotYet(why),
    };
    match (&terms.check, running.port) {
        (Check::Http { path, .. }, Some(port)) if lives => of_probe(http(port, path, terms)),
        (Check::Tcp { .. }, Some(port)) if lives => {
            of_probe(check::is_taken(port).map_err(|error| error.to_string()))
        }
        (Check::Command(_), _) => {
            ended(&console).unwrap_or_else(|| Look::NotYet("the command did not end".to_owned()))
        }
        (Check::Runs, _) => ended(&console).unwrap_or_else(|| runs(running, terms)),
        _ => Look::NotYet("no answer".to_owned()),
    }
}

/// What a command's end says; `None` while it goes on.
fn ended(console: &str) -> Option<Look> {
    Some(match machine::status(console)? {
        0 => Look::Passed,
        status => Look::Failed(format!("it ended with status {status}")),
    })
}

/// Whether an application that was started goes on for a while.
fn runs(running: &mut Running, terms: &ProofConfig) -> Look {
    if Figures::on(&running.console()).is_none() {
        return Look::NotYet("the first process did not start".to_owned());
    }
    running.until(terms.goes_on, |_| !terms.may_go_on());
    let lives = running.is_alive();
    match ended(&running.console()) {
        Some(look) => look,
        None if lives => Look::Passed,
        None => Look::NotYet("the guest ended without its command".to_owned()),
    }
}

fn http(port: u16, path: &str, terms: &ProofConfig) -> Result<(), String> {
    match check::get(port, path, &terms.interrupted) {
        Ok(answer) if answer.status < 400 => Ok(()),
        Ok(answer) => Err(format!("it answered {}", answer.status)),
        Err(error) => Err(error.to_string()),
    }
}

/// The failure with the console's last lines that are the application's, or the
/// kernel's alarm.
pub(crate) fn said(running: &Running, why: &str) -> String {
    match telling(&running.console()) {
        None => format!("{why}; the console is empty"),
        Some(lines) => format!("{why}; the guest said last: {lines}"),
    }
}

fn telling(console: &str) -> Option<String> {
    if let Some(alarm) = alarm(console) {
        return Some(alarm);
    }
    // What follows is the end of the machine, which says nothing of its cause.
    let end = console.find(STATUS_LINE).unwrap_or(console.len());
    let is_kernels = |line: &str| of_kernel(line).is_some() || line.starts_with("reboot: ");
    let is_telling = |line: &&str| !line.is_empty() && !line.starts_with("---[");
    let lines = || console[..end].lines().map(str::trim).filter(is_telling);
    let mut last: Vec<&str> = lines()
        .rev()
        .filter(|line| !is_kernels(line))
        .take(LAST_LINES)
        .collect();
    if last.is_empty() {
        last.extend(lines().next_back());
    }
    last.reverse();
    let last: Vec<String> = last.into_iter().map(plain).collect();
    (!last.is_empty()).then(|| last.join(" / "))
}

/// A line of the guest without control characters, not too long.
fn plain(line: &str) -> String {
    let printable = line.trim().chars().filter(|c| !c.is_control());
    printable.take(LINE_CHARS).collect()
}

fn is_alarm(line: &str) -> bool {
    of_kernel(line).is_some_and(|said| ALARMS.iter().any(|alarm| said.contains(alarm)))
}

/// What the kernel said on a line, behind its `[    1.234567]`: an application may not have ended
/// its own line before.
fn of_kernel(line: &str) -> Option<&str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    line.match_indices('[').find_map(|(at, _)| {
        let (time, said) = line[at + 1..].split_once(']')?;
        let (seconds, micros) = time.trim_start().split_once('.')?;
        (digits(seconds) && micros.len() == 6 && digits(micros)).then_some(said)
    })
}

/// Requests that were made.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// How many.
    pub(crate) requests: u32,
    /// Errors, by kind.
    pub(crate) errors: BTreeMap<String, u32>,
}

/// The check as many times, by several clients, as long as it `goes_on`. An application without a port has no
/// load.
pub(crate) fn load(
    port: Option<u16>,
    terms: &ProofConfig,
    requests: u32,
    goes_on: impl Fn() -> bool + Sync,
) -> Loaded {
    let mut all = Loaded::default();
    let Some(port) = port else {
        return all;
    };
    let one = || match &terms.check {
        Check::Http { path, .. } => http(port, path, terms),
        _ => check::is_taken(port).map_err(|error| error.to_string()),
    };
    let client = || {
        let (mut made, mut errors) = (0, BTreeMap::new());
        while made < requests / LOAD_CLIENTS && goes_on() {
            made += 1;
            if let Err(kind) = one() {
                *errors.entry(kind).or_insert(0) += 1;
            }
        }
        (made, errors)
    };
    let made: Vec<(u32, BTreeMap<String, u32>)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..LOAD_CLIENTS).map(|_| scope.spawn(client)).collect();
        let joined = clients.into_iter().filter_map(|client| client.join().ok());
        joined.collect()
    });
    for (made, errors) in made {
        all.requests += made;
        for (kind, count) in errors {
            *all.errors.entry(kind).or_insert(0) += count;
        }
    }
    all
}

fn after_load(running: &mut Running, proof: &Proof, terms: &ProofConfig) -> Option<String> {
    if let Some((kind, count)) = proof.errors.iter().next() {
        let all = proof.requests;
        return Some(format!(
            "{count} of {all} requests failed under load: {kind}"
        ));
    }
    let is_server = terms.check.port().is_some();
    if is_server && !running.is_alive() {
        return Some(said(running, "the guest ended under load"));
    }
    let alarm = alarm(&running.console())?;
    Some(format!("the guest's kernel said: {alarm}"))
}

/// The first line of a kernel's that no sound guest has.
pub(crate) fn alarm(console: &str) -> Option<String> {
    console.lines().find(|line| is_alarm(line)).map(plain)
}

/// Boots with a counted clock: figures of the first process, which tells them
/// before the application starts.
pub fn weigh_boot(
    kernel: &Path,
    modules: &[Module],
    application: &Application,
    terms: &ProofConfig,
    console: &Path,
) -> Result<Option<Figures>, ProveError> {
    let initramfs = initramfs(application, modules, terms, Logging::Off)?;
    let mut running = ProofMachine {
        kernel,
        initramfs: &initramfs,
        words: &format!("quiet {}", terms.cmdline),
        memory_mib: terms.memory_mib,
        port: terms.check.port(),
        machine_type: terms.machine_type,
        execution: Execution::Counted,
        console,
        plugin: None,
        counts: Logging::Off,
        tare: &terms.tare,
    }
    .start()?;
    running.until(WEIGHED, |console| {
        Figures::on(console).is_some() || !terms.may_go_on()
    });
    go_on(terms)?;
    Ok(Figures::on(&running.console()))
}

/// A kernel that starts with a root that has nothing but the first process.
#[derive(Clone, Copy, Debug)]
pub struct KernelAlone<'a> {
    /// The kernel.
    pub kernel: &'a Path,
    /// Modules that the first process loads.
    pub modules: &'a [Module],
    /// Where its console goes.
    pub console: &'a Path,
    /// The program `tare`, as in [`ProofConfig`].
    pub tare: &'a Path,
}

impl KernelAlone<'_> {
    /// Instructions from power-on to the first process: the kernel's own boot, with more `words` on
    /// its command line.
    pub fn boot_insns(
        &self,
        words: &str,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<u64>, ProveError> {
        let figures = self.start(&format!("quiet {words}"), goes_on, Figures::on)?;
        Ok(figures.map(|it| it.begin_cycles / machine::NS_PER_INSTRUCTION))
    }

    /// KiB of code that it has built in, as it says itself; `None` of one that says nothing.
    pub fn code_kib(&self, goes_on: impl Fn() -> bool) -> Result<Option<u64>, ProveError> {
        self.start("", goes_on, kernel_code_kib)
    }

    /// Runs until something is `found` on the console, or it ended.
    fn start<T>(
        &self,
        words: &str,
        goes_on: impl Fn() -> bool,
        found: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ProveError> {
        let mut tree = Tree::new();
        let task = Task {
            // Whatever ends the start: figures come before it.
            command: vec!["/no-command".to_owned()],
            figures: Logging::On,
            ..Task::default()
        };
        guest::add_init(&mut tree, task, self.modules, &guest::find_init()?)?;
        let initramfs = cpio::pack(&tree)?;
        let mut running = ProofMachine {
            kernel: self.kernel,
            initramfs: &initramfs,
            words,
            memory_mib: ALONE_MIB,
            port: None,
            machine_type: MachineType::Q35,
            execution: Execution::Counted,
            console: self.console,
            plugin: None,
            counts: Logging::Off,
            tare: self.tare,
        }
        .start()?;
        running.until(WEIGHED, |console| found(console).is_some() || !goes_on());
        if !goes_on() {
            return Err(ProveError::Interrupted);
        }
        Ok(found(&running.console()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// A server that answers each request, after `asked`.
    fn server(asked: impl Fn() + Send + 'static) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                asked();
                let mut stream = stream.unwrap();
                // Its client may be gone.
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            }
        });
        port
    }

    fn terms() -> ProofConfig {
        ProofConfig {
            check: "http:80/".parse().unwrap(),
            machine_type: MachineType::Q35,
            execution: Execution::Translated,
            cmdline: String::new(),
            memory_mib: 64,
            limit: GOES_ON,
            goes_on: GOES_ON,
            refusals: Logging::Off,
            interrupted: Arc::default(),
            tare: PathBuf::new(),
        }
    }

    #[test]
    fn an_interrupted_load_proves_nothing() {
        let terms = terms();
        let flag = Arc::clone(&terms.interrupted);
        let port = server(move || flag.store(true, Ordering::Relaxed));
        let loaded = load(Some(port), &terms, LOAD_REQUESTS, || terms.may_go_on());
        assert!(matches!(go_on(&terms), Err(ProveError::Interrupted)));
        assert!(loaded.requests <= LOAD_CLIENTS, "{}", loaded.requests);
        assert_eq!(load(None, &terms, 9, || true).requests, 0, "no port");
    }

    #[test]
    fn requests_of_a_load_are_counted_as_they_are_made() {
        let loaded = load(Some(server(|| {})), &terms(), LOAD_REQUESTS, || true);
        assert_eq!(loaded.requests, LOAD_REQUESTS);
    }

    #[test]
    fn a_failure_quotes_what_the_application_said_before_the_machine_ended() {
        let console = format!(
            "[    0.500000] Run /init\r\ntare-init: figures: {{}}\r\nTraceback:\r\nLookupError: \x1b[1mno codec\r\n\r\n{STATUS_LINE}1\r\n[    1.000000] reboot: Power down\r\n"
        );
        let said = telling(&console).unwrap();
        assert!(
            said.ends_with("Traceback: / LookupError: [1mno codec"),
            "{said}"
        );
        let kernel = "[    0.500000] a\r\n[    0.600000] Warning: b\r\n";
        assert_eq!(
            telling(kernel).as_deref(),
            Some("[    0.600000] Warning: b")
        );
        assert_eq!(telling("\r\n"), None);
    }

    /// Flask, logging of Python and PostgreSQL say these on the console of a sound guest.
    #[test]
    fn an_alarm_is_the_kernels_and_not_an_applications() {
        for own in [
            "WARNING: This is a development server.",
            "WARNING:root:x",
            "[2026-11-27 10:00:00] WARNING: slow",
            "[1.5] BUG: none",
            "app: Out of memory",
        ] {
            assert_eq!(alarm(own), None, "{own}");
        }
        for kernels in [
            "[    1.234567] WARNING: CPU: 0 PID: 1 at a.c:1",
            "[    1.234567][    T1] WARNING: CPU: 0 PID: 1 at a.c:1",
            "half a line[   12.000001] BUG: unable to handle page fault",
        ] {
            assert!(alarm(kernels).is_some(), "{kernels}");
        }
    }

    #[test]
    fn a_command_that_ended_is_judged_by_its_status() {
        let of = |status: &str| ended(&format!("app: no\r\n{STATUS_LINE}{status}\r\n"));
        assert!(matches!(of("0"), Some(Look::Passed)));
        assert!(matches!(of("1"), Some(Look::Failed(why)) if why.ends_with("status 1")));
        assert!(ended("app: it goes on\r\n").is_none());
    }
}
