//! One guest: QEMU's translator, one vCPU, a port of it forwarded to one of
//! ours, its memory in a file that can be looked at. Dropping it ends it.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tare_launch::jailed_guest::{JailedGuest, RunningGuest};
use tare_launch::publish::Publish;
use tare_qemu::{self as qemu, Accelerator, GuestSystem, MachineType};
use tare_rootfs::guest::{CMDLINE, UNTIMED, WORDS};
use tare_rootfs::{Logging, Tree, cpio};
use tare_tailor::prove::KernelAlone;
use tempfile::TempDir;

use super::LinuxError;
use super::catalog::App;
use super::client::Client;
use super::dialog::{ANSWER, ask, timeless};
use super::jailed_qemu::Prepared;
use super::kernels::{Bootable, with_init};
use tare_load::interrupt::Interrupt;
use tare_tailor::counter::{Count, Counter, Plugin};
use tare_tailor::counts::port::CountsPort;
use tare_tailor::counts::{CountsError, ExecutionCounts};

/// The address that QEMU's user network gives the library OS.
const IMAGE_ADDRESS: &str = "ip=10.0.2.15/24,10.0.2.2";
/// Longest time from start to the first right answer: a busy computer
/// translates slowly.
const SERVING: Duration = Duration::from_secs(180);
/// Between two tries of the check while it starts.
const TRY: Duration = Duration::from_millis(100);
/// Shortest wait for the first one: QEMU's network takes connections before the
/// guest has one, and loses what it is sent for them.
const FIRST_ANSWER: Duration = Duration::from_millis(200);
/// Lines of the console that an error shows.
const SAID: usize = 8;

/// What executes the guest besides counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The computer's.
    Wall,
    /// One nanosecond for each instruction, and no waiting: a guest
    /// without a peer runs the same way each time.
    Instructions,
}

/// A guest that runs.
pub struct LinuxMachine {
    qemu: RunningGuest,
    started: Instant,
    client: Client,
    counter: Option<Counter>,
    counts: Option<CountsPort>,
    directory: TempDir,
}

/// How a guest started to serve.
#[derive(Clone, Copy, Debug)]
pub struct Booted {
    /// From the start of QEMU, with its jail, to the first right answer.
    pub(crate) after: Duration,
    /// Instructions until then.
    pub count: Count,
}

impl Booted {
    /// How long it took.
    pub fn ms(&self) -> f64 {
        self.after.as_secs_f64() * 1e3
    }
}

impl LinuxMachine {
    /// Starts `app` with these files on a kernel, counting where there is a plugin. `tare` is
    /// the program that confines QEMU: [`this_program`].
    pub fn start(
        tare: &Path,
        app: &App,
        tree: &Tree,
        kernel: &Bootable,
        plugin: Option<&Plugin>,
    ) -> Result<Self, LinuxError> {
        let initramfs = cpio::pack(&with_init(tree, &app.command, kernel, Logging::Off)?)?;
        let guest = linux(kernel, app.memory_mib, initramfs, Clock::Wall)?;
        Self::launch(tare, guest, &kernel.name, app, plugin)
    }

    /// Starts `app` on an instrumented kernel, for [`Self::execution_counts`].
    pub(crate) fn start_counted(
        tare: &Path,
        app: &App,
        tree: &Tree,
        kernel: &Bootable,
    ) -> Result<Self, LinuxError> {
        let initramfs = cpio::pack(&with_init(tree, &app.command, kernel, Logging::On)?)?;
        let mut guest = linux(kernel, app.memory_mib, initramfs, Clock::Wall)?;
        let (counts, theirs) = CountsPort::add(&mut guest.guest).map_err(LinuxError::Jail)?;
        let machine = Self::launch(tare, guest, &kernel.name, app, None)?;
        drop(theirs);
        Ok(Self {
            counts: Some(counts),
            ..machine
        })
    }

    /// Starts an image of Tare's library OS that serves these files, counting.
    pub fn start_image(
        tare: &Path,
        app: &App,
        tree: &Tree,
        image: &Path,
        plugin: &Plugin,
    ) -> Result<Self, LinuxError> {
        // The machine that `tare run --engine qemu` makes for the library OS.
        let machine = (MachineType::Microvm, GuestSystem::LibraryOs);
        let mut guest = boot(machine, image, app.memory_mib, cpio::pack(tree)?)?;
        let line = guest.guest.line();
        line.append(IMAGE_ADDRESS).virtio("virtio-rng", "");
        Self::launch(tare, guest, &app.name, app, Some(plugin))
    }

    fn launch(
        tare: &Path,
        mut prepared: Prepared,
        kernel: &str,
        app: &App,
        plugin: Option<&Plugin>,
    ) -> Result<Self, LinuxError> {
        let directory = scratch()?;
        let guest = &mut prepared.guest;
        let published = guest.publish(&[Publish::from_any(app.port)]);
        let port = published.map_err(LinuxError::file("a port of the loopback"))?[0];
        let counter = plugin.map(|plugin| plugin.count(guest)).transpose()?;
        let console = console(&directory)?;
        let started = Instant::now();
        Ok(Self {
            qemu: start(prepared, tare, console)?,
            started,
            client: Client::new(app, SocketAddr::from((Ipv4Addr::LOCALHOST, port)), kernel),
            counter,
            counts: None,
            directory,
        })
    }

    /// Waits until the application's check passes.
    pub fn serve(&mut self, app: &App, interrupt: &Interrupt) -> Result<Booted, LinuxError> {
        let mut last = Vec::new();
        while self.started.elapsed() < SERVING {
            interrupt.check()?;
            self.alive()?;
            let limit = timeout(self.started.elapsed());
            if let Ok(answer) = ask(self.client.address, limit, &app.check_wire()) {
                if app.passes(&answer) {
                    return Ok(Booted {
                        after: self.started.elapsed(),
                        count: self.count()?,
                    });
                }
                last = answer;
            }
            interrupt.sleep(TRY)?;
        }
        Err(LinuxError::Check {
            kernel: self.client.server.clone(),
            limit: SERVING,
            said: format!("{:?}; {}", String::from_utf8_lossy(&last), self.said()),
        })
    }

    /// The answer to one connection's requests, without its date.
    pub fn answer(&mut self, app: &App, request: &[u8]) -> Result<Vec<u8>, LinuxError> {
        match ask(self.client.address, ANSWER, request) {
            Ok(answer) => Ok(timeless(app.protocol, &answer)),
            Err(_) => {
                self.alive()?;
                Ok(b"(no answer)".to_vec())
            }
        }
    }

    /// Who asks it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Instructions so far; none without a plugin.
    pub(crate) fn count(&self) -> Result<Count, LinuxError> {
        let read = self.counter.as_ref().map(Counter::read).transpose();
        Ok(read?.unwrap_or_default())
    }

    /// What ran of an instrumented kernel, which was built in `objects`; once.
    pub(crate) fn execution_counts(
        &mut self,
        objects: &Path,
        goes_on: impl Fn() -> bool,
    ) -> Result<ExecutionCounts, LinuxError> {
        let port = self.counts.take().ok_or(CountsError::Nothing)?;
        Ok(port.take(objects, goes_on)?)
    }

    /// QEMU's process.
    pub(crate) fn pid(&self) -> u32 {
        self.qemu.id()
    }

    /// Guest memory that was ever touched, KiB.
    pub fn touched_kib(&self) -> Option<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/smaps", self.pid())).ok()?;
        let mut lines = maps.lines();
        lines.find(|line| line.contains("/memfd:memory-backend-memfd"))?;
        let rss = lines.find_map(|line| line.strip_prefix("Rss:"))?;
        rss.trim().strip_suffix("kB")?.trim().parse().ok()
    }

    fn alive(&mut self) -> Result<(), LinuxError> {
        match self.qemu.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(LinuxError::Ended {
                kernel: self.client.server.clone(),
                said: self.said(),
            }),
        }
    }

    fn said(&self) -> String {
        last_lines(&self.directory.path().join("console"))
    }
}

/// The program that confines QEMU.
pub fn this_program() -> Result<PathBuf, LinuxError> {
    env::current_exe().map_err(LinuxError::file("this program"))
}

/// Runs a command to its end on a clock of instructions; what it printed.
pub fn run_to_end(
    tare: &Path,
    command_line: &[String],
    tree: &Tree,
    kernel: &Bootable,
    interrupt: &Interrupt,
) -> Result<String, LinuxError> {
    let directory = scratch()?;
    let initramfs = cpio::pack(&with_init(tree, command_line, kernel, Logging::Off)?)?;
    let guest = linux(kernel, 256, initramfs, Clock::Instructions)?;
    let mut qemu = start(guest, tare, console(&directory)?)?;
    let begin = Instant::now();
    let ended = loop {
        if let Ok(Some(_)) = qemu.try_wait() {
            break Ok(());
        }
        if begin.elapsed() > SERVING {
            break Err(LinuxError::Check {
                kernel: kernel.name.clone(),
                limit: SERVING,
                said: last_lines(&directory.path().join("console")),
            });
        }
        if let Err(interrupted) = interrupt.sleep(TRY) {
            break Err(interrupted.into());
        }
    };
    drop(qemu);
    ended?;
    let path = directory.path().join("console");
    let bytes = fs::read(&path).map_err(LinuxError::file(&path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Instructions from power-on to the first process of a root that has nothing but this
/// process, on a clock of instructions.
pub fn start_alone(kernel: &Bootable, interrupt: &Interrupt) -> Result<u64, LinuxError> {
    let directory = scratch()?;
    let console = directory.path().join("console");
    let goes_on = || interrupt.check().is_ok();
    let insns = alone(kernel, &console, &this_program()?).boot_insns(kernel.parameters, goes_on);
    interrupt.check()?;
    insns?.ok_or_else(|| LinuxError::Ended {
        kernel: kernel.name.clone(),
        said: last_lines(&console),
    })
}

/// KiB of code that a kernel has built in, as it says when it starts; `None` of one that says nothing.
pub fn code_kib(
    tare: &Path,
    kernel: &Bootable,
    interrupt: &Interrupt,
) -> Result<Option<u64>, LinuxError> {
    let directory = scratch()?;
    let console = directory.path().join("console");
    let goes_on = || interrupt.check().is_ok();
    let code = alone(kernel, &console, tare).code_kib(goes_on);
    interrupt.check()?;
    Ok(code?)
}

fn alone<'a>(kernel: &'a Bootable, console: &'a Path, tare: &'a Path) -> KernelAlone<'a> {
    KernelAlone {
        kernel: &kernel.image,
        modules: &kernel.modules,
        console,
        tare,
    }
}

/// A guest of the translator with one vCPU.
fn boot(
    (machine, system): (MachineType, GuestSystem),
    kernel: &Path,
    memory_mib: u32,
    initramfs: File,
) -> Result<Prepared, LinuxError> {
    let guest = JailedGuest::new(machine, Accelerator::Tcg, system, 1);
    let mut prepared = Prepared::boot(guest, kernel, initramfs)?;
    prepared.guest.line().memory_in_memfd(memory_mib, false);
    Ok(prepared)
}

/// A Linux guest.
fn linux(
    kernel: &Bootable,
    memory_mib: u32,
    initramfs: File,
    clock: Clock,
) -> Result<Prepared, LinuxError> {
    let system = match clock {
        Clock::Wall => GuestSystem::Linux,
        Clock::Instructions => GuestSystem::CountedLinux,
    };
    let machine = (MachineType::Q35, system);
    let mut prepared = boot(machine, &kernel.image, memory_mib, initramfs)?;
    let line = prepared.guest.line();
    line.append(&format!(
        "{WORDS} quiet {UNTIMED} {CMDLINE} {} tsc=reliable clocksource=tsc {}",
        qemu::USER_NETWORK,
        kernel.parameters
    ));
    if clock == Clock::Instructions {
        line.option("-icount", "shift=0,sleep=off");
    }
    Ok(prepared)
}

/// Starts QEMU with its console in a file.
fn start(guest: Prepared, tare: &Path, console: File) -> Result<RunningGuest, LinuxError> {
    guest.start(tare, |command| {
        command.stdin(Stdio::null()).stdout(console);
    })
}

fn scratch() -> Result<TempDir, LinuxError> {
    TempDir::with_prefix("tare-weigh-").map_err(LinuxError::file("a temporary directory"))
}

fn console(directory: &TempDir) -> Result<File, LinuxError> {
    let path: PathBuf = directory.path().join("console");
    File::create(&path).map_err(LinuxError::file(path))
}

fn last_lines(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    match lines.split_at_checked(lines.len().saturating_sub(SAID)) {
        Some((_, [])) | None => "it said nothing".to_owned(),
        Some((_, last)) => last.join(" | "),
    }
}

/// How long to wait for the first answer that long after the start: an eighth
/// longer at most than it took.
fn timeout(since_start: Duration) -> Duration {
    (since_start / 8).clamp(FIRST_ANSWER, ANSWER)
}
