//! One guest: QEMU's translator, one vCPU, a port of it forwarded to one of
//! ours, its memory in a file that can be looked at. Dropping it ends it.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use tare_host::child::{ends_with_us, ignores_hangups_with_us};
use tare_qemu::{self as qemu, Accelerator, CommandLine, GuestSystem, HostForward, MachineType};
use tare_rootfs::guest::{CMDLINE, UNTIMED, WORDS};
use tare_rootfs::{Tree, cpio};
use tare_tailor::prove::weigh_alone;
use tempfile::TempDir;

use super::LinuxError;
use super::catalog::App;
use super::counter::{Count, Counter, Plugin};
use super::dialog::{Dialog, ask, timeless};
use super::kernels::{Bootable, with_init};
use crate::interrupt::Interrupt;

/// The address that QEMU's user network gives the library OS.
const IMAGE_ADDRESS: &str = "ip=10.0.2.15/24,10.0.2.2";
/// Longest time from start to the first right answer: a busy computer
/// translates slowly.
const SERVING: Duration = Duration::from_secs(180);
/// Between two tries of the check while it starts.
const TRY: Duration = Duration::from_millis(100);
/// Longest wait for an answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// Shortest wait for the first one: QEMU's network takes connections before the
/// guest has one, and loses what it is sent for them.
const FIRST_ANSWER: Duration = Duration::from_millis(200);
/// Nothing more comes of an answer after this time.
pub(crate) const QUIET: Duration = Duration::from_millis(300);
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
pub(crate) struct LinuxMachine {
    child: Child,
    started: Instant,
    kernel: String,
    port: u16,
    counter: Option<Counter>,
    directory: TempDir,
    // QEMU reads it after the start.
    _initramfs: File,
}

/// How a guest started to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Booted {
    /// From the start of QEMU to the first right answer.
    pub(crate) after: Duration,
    /// Instructions until then.
    pub(crate) count: Count,
}

impl LinuxMachine {
    /// Starts `app` with these files on a kernel, counting where there is a
    /// plugin.
    pub(crate) fn start(
        app: &App,
        tree: &Tree,
        kernel: &Bootable,
        plugin: Option<&Plugin>,
    ) -> Result<Self, LinuxError> {
        let initramfs = cpio::pack(&with_init(tree, &app.command, kernel)?)?;
        let line = linux_command_line(kernel, app.memory_mib, &initramfs, Clock::Wall)?;
        Self::launch(line, &kernel.name, app.port, plugin, initramfs)
    }

    /// Starts an image of Tare's library OS that serves these files, counting.
    pub(crate) fn start_image(
        app: &App,
        tree: &Tree,
        image: &Path,
        plugin: &Plugin,
    ) -> Result<Self, LinuxError> {
        let initramfs = cpio::pack(tree)?;
        let line = image_command_line(image, app.memory_mib, &initramfs)?;
        Self::launch(line, app.name, app.port, Some(plugin), initramfs)
    }

    fn launch(
        mut line: CommandLine,
        kernel: &str,
        guest_port: u16,
        plugin: Option<&Plugin>,
        initramfs: File,
    ) -> Result<Self, LinuxError> {
        let directory = scratch()?;
        let port = qemu::free_port().map_err(LinuxError::file("a port of the loopback"))?;
        line.user_network(&[HostForward::loopback(port, guest_port)], true);
        let mut command = command(&line, console(&directory)?);
        let mut counter = None;
        if let Some(plugin) = plugin {
            let (counts, args) = plugin.counter(&directory.path().join("count"))?;
            command.args(args);
            counter = Some(counts);
        }
        Ok(Self {
            child: command.spawn().map_err(LinuxError::NoQemu)?,
            started: Instant::now(),
            kernel: kernel.to_owned(),
            port,
            counter,
            directory,
            _initramfs: initramfs,
        })
    }

    /// Waits until the application's check passes.
    pub(crate) fn serve(&mut self, app: &App, interrupt: &Interrupt) -> Result<Booted, LinuxError> {
        let mut last = Vec::new();
        while self.started.elapsed() < SERVING {
            interrupt.check()?;
            self.alive()?;
            let limit = timeout(self.started.elapsed());
            if let Ok(answer) = ask(self.address(), limit, app.check.send.as_bytes()) {
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
            kernel: self.kernel.clone(),
            limit: SERVING,
            said: format!("{:?}; {}", String::from_utf8_lossy(&last), self.said()),
        })
    }

    /// The answer to one connection's requests, without its date.
    pub(crate) fn answer(&mut self, app: &App, request: &[u8]) -> Result<Vec<u8>, LinuxError> {
        match ask(self.address(), ANSWER, request) {
            Ok(answer) => Ok(timeless(app.protocol, &answer)),
            Err(_) => {
                self.alive()?;
                Ok(b"(no answer)".to_vec())
            }
        }
    }

    /// The answer to a request on a connection that stays open.
    pub(crate) fn learn(&self, request: &[u8]) -> Result<Vec<u8>, LinuxError> {
        Dialog::open(self.address(), ANSWER)
            .and_then(|mut dialog| dialog.learn(request, QUIET))
            .map_err(|_| self.unanswered(request))
    }

    /// Instructions so far; none without a plugin.
    pub(crate) fn count(&self) -> Result<Count, LinuxError> {
        self.counter
            .as_ref()
            .map_or(Ok(Count::default()), Counter::read)
    }

    /// Where it answers.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The error for a request that was not answered.
    pub(crate) fn unanswered(&self, request: &[u8]) -> LinuxError {
        LinuxError::NoAnswer {
            kernel: self.kernel.clone(),
            request: String::from_utf8_lossy(request).into_owned(),
        }
    }

    /// Guest memory that was ever touched, KiB.
    pub(crate) fn touched_kib(&self) -> Option<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/smaps", self.child.id())).ok()?;
        let mut lines = maps.lines();
        lines.find(|line| line.contains("/memfd:memory-backend-memfd"))?;
        let rss = lines.find_map(|line| line.strip_prefix("Rss:"))?;
        rss.trim().strip_suffix("kB")?.trim().parse().ok()
    }

    fn alive(&mut self) -> Result<(), LinuxError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(LinuxError::Ended {
                kernel: self.kernel.clone(),
                said: self.said(),
            }),
        }
    }

    fn said(&self) -> String {
        last_lines(&self.directory.path().join("console"))
    }
}

impl Drop for LinuxMachine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end on a clock of instructions; what it printed.
pub(crate) fn run_to_end(
    command_line: &[String],
    tree: &Tree,
    kernel: &Bootable,
    interrupt: &Interrupt,
) -> Result<String, LinuxError> {
    let directory = scratch()?;
    let initramfs = cpio::pack(&with_init(tree, command_line, kernel)?)?;
    let line = linux_command_line(kernel, 256, &initramfs, Clock::Instructions)?;
    let mut child = command(&line, console(&directory)?)
        .spawn()
        .map_err(LinuxError::NoQemu)?;
    let begin = Instant::now();
    let ended = loop {
        if let Ok(Some(_)) = child.try_wait() {
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
    let _ = child.kill();
    let _ = child.wait();
    ended?;
    let path = directory.path().join("console");
    let bytes = fs::read(&path).map_err(LinuxError::file(&path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Instructions from power-on to the first process of a root that has nothing but this
/// process, on a clock of instructions.
pub(crate) fn start_alone(kernel: &Bootable, interrupt: &Interrupt) -> Result<u64, LinuxError> {
    let directory = scratch()?;
    let console = directory.path().join("console");
    let words = kernel.parameters;
    let goes_on = || interrupt.check().is_ok();
    let tare = env::current_exe().map_err(LinuxError::file("this program"))?;
    let Bootable { image, modules, .. } = kernel;
    let insns = weigh_alone(image, modules, words, &console, &tare, goes_on)?;
    interrupt.check()?;
    insns.ok_or_else(|| LinuxError::Ended {
        kernel: kernel.name.clone(),
        said: last_lines(&console),
    })
}

fn linux_command_line(
    kernel: &Bootable,
    memory_mib: u32,
    initramfs: &File,
    clock: Clock,
) -> Result<CommandLine, LinuxError> {
    let guest = match clock {
        Clock::Wall => GuestSystem::Linux,
        Clock::Instructions => GuestSystem::CountedLinux,
    };
    let mut line = CommandLine::new(MachineType::Q35, Accelerator::Tcg, guest, 1);
    boot(&mut line, &kernel.image, memory_mib, initramfs)?;
    line.append(&format!(
        "{WORDS} quiet {UNTIMED} {CMDLINE} {} tsc=reliable clocksource=tsc {}",
        qemu::USER_NETWORK,
        kernel.parameters
    ));
    if clock == Clock::Instructions {
        line.option("-icount", "shift=0,sleep=off");
    }
    Ok(line)
}

/// The machine that `tare run --engine qemu` makes for the library OS.
fn image_command_line(
    image: &Path,
    memory_mib: u32,
    files: &File,
) -> Result<CommandLine, LinuxError> {
    let mut line = CommandLine::new(
        MachineType::Microvm,
        Accelerator::Tcg,
        GuestSystem::LibraryOs,
        1,
    );
    boot(&mut line, image, memory_mib, files)?;
    line.append(IMAGE_ADDRESS).virtio("virtio-rng", "");
    Ok(line)
}

fn boot(
    line: &mut CommandLine,
    kernel: &Path,
    memory_mib: u32,
    initramfs: &File,
) -> Result<(), LinuxError> {
    fcntl_setfd(initramfs, FdFlags::empty())
        .map_err(|errno| LinuxError::file("the initramfs")(errno.into()))?;
    let initramfs = PathBuf::from(format!("/proc/self/fd/{}", initramfs.as_raw_fd()));
    line.serial("stdio")
        .memory_in_memfd(memory_mib, false)
        .kernel(kernel)
        .initrd(&initramfs);
    Ok(())
}

fn command(line: &CommandLine, console: File) -> Command {
    let mut command = Command::new(qemu::PROGRAM);
    let tied = ends_with_us(&mut command, Signal::KILL);
    line.apply(ignores_hangups_with_us(tied))
        .stdin(Stdio::null())
        .stdout(console);
    command
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
