//! A machine in QEMU for a kernel that is to be proven or weighed, in the jail of `tare run`'s
//! machines: kernel and application are untrusted.

use std::fs;
use std::fs::File;
use std::io;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use tare_abi::exit::STATUS_LINE;
use tare_host::program::{ProgramError, find_program};
use tare_init::Logging;
use tare_launch::jailed_guest::{JailedGuest, RunningGuest};
use tare_launch::log_bound::LogBound;
use tare_launch::publish::Publish;
use tare_qemu::{self as qemu, Accelerator, GuestSystem, MachineType};
use tare_rootfs::guest::{CMDLINE, UNTIMED, WORDS};

use crate::counter::{Count, Counter, CounterError, Plugin};
use crate::counts::port::CountsPort;
use crate::counts::{CountsError, ExecutionCounts};
use crate::target::Target;

/// Between two looks at a machine.
const PAUSE: Duration = Duration::from_millis(20);
/// Most bytes of a console that are read.
const CONSOLE_BYTES: u64 = 4 << 20;

/// How QEMU executes the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Translated.
    Translated,
    /// Translated, with a clock made of the number of instructions: two cycles
    /// of `NS_PER_INSTRUCTION` each.
    Counted,
    /// By KVM.
    Kvm,
}

/// Virtual time of an instruction under [`Execution::Counted`] (`shift=1`), and
/// cycles of the guest's clock, of which QEMU makes one a nanosecond.
pub(crate) const NS_PER_INSTRUCTION: u64 = 2;

impl Execution {
    const fn accelerator(self) -> Accelerator {
        match self {
            Self::Kvm => Accelerator::Kvm,
            Self::Translated | Self::Counted => Accelerator::Tcg,
        }
    }
}

/// The machine type that stands for the monitor which a kernel is for: PCI and ACPI as
/// Tare's has them, virtio over MMIO without ACPI as Firecracker's.
pub fn machine_type(target: Target) -> MachineType {
    match target {
        Target::Tare | Target::Qemu => MachineType::Q35,
        Target::Firecracker => MachineType::Microvm,
    }
}

/// What a machine is made of.
#[derive(Debug)]
pub struct ProofMachine<'a> {
    /// The bzImage.
    pub kernel: &'a Path,
    /// Its initramfs.
    pub initramfs: &'a File,
    /// More words for the kernel.
    pub words: &'a str,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// A port of the guest that the host reaches.
    pub port: Option<u16>,
    /// The machine type.
    pub machine_type: MachineType,
    /// How it is executed.
    pub execution: Execution,
    /// Where the console goes, and what QEMU says.
    pub console: &'a Path,
    /// Counts instructions, if they are to be counted.
    pub plugin: Option<&'a Plugin>,
    /// Whether its kernel is an instrumented one, whose counts are wanted.
    pub counts: Logging,
    /// The program `tare`, which starts itself to confine QEMU.
    pub tare: &'a Path,
}

/// A machine that was not started.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// No QEMU.
    #[error("cannot run {}: install qemu-system-x86", qemu::PROGRAM)]
    NoQemu(#[source] ProgramError),
    /// QEMU, or its jail.
    #[error("cannot start {} in its jail", qemu::PROGRAM)]
    Start(#[source] io::Error),
    /// A file.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The counts of an instrumented kernel.
    #[error(transparent)]
    Counts(#[from] CountsError),
    /// No port of the host.
    #[error("there is no free port on the loopback interface")]
    NoPort(#[source] io::Error),
    /// The counter.
    #[error(transparent)]
    Counter(#[from] CounterError),
}

/// A running machine; it ends with the value, and with the thread that started it.
#[derive(Debug)]
pub struct Running {
    guest: RunningGuest,
    console: PathBuf,
    /// Bounds the console while the guest runs; it ends after it.
    bound: Option<LogBound>,
    counter: Option<Counter>,
    counts: Option<CountsPort>,
    /// The port of the host that leads to the guest's.
    pub port: Option<u16>,
}

impl ProofMachine<'_> {
    /// Starts it.
    pub fn start(&self) -> Result<Running, MachineError> {
        let file = |path: &Path, source| MachineError::File {
            path: path.to_owned(),
            source,
        };
        let (console, bound) =
            new_console(self.console).map_err(|error| file(self.console, error))?;
        let messages = console
            .try_clone()
            .map_err(|error| file(self.console, error))?;
        let kernel = File::open(self.kernel).map_err(|error| file(self.kernel, error))?;
        let program = find_program(qemu::PROGRAM).map_err(MachineError::NoQemu)?;
        let mut guest = self.guest(&kernel, &console).map_err(MachineError::Start)?;
        let port = self.publish(&mut guest).map_err(MachineError::NoPort)?;
        let counter = self.plugin.map(|plugin| plugin.count(&mut guest));
        let counter = counter.transpose()?;
        let counts = match self.counts {
            Logging::On => Some(CountsPort::add(&mut guest).map_err(MachineError::Start)?),
            Logging::Off => None,
        };
        let started = guest.start(self.tare, &program, |command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(messages);
        });
        Ok(Running {
            guest: started.map_err(MachineError::Start)?,
            console: self.console.to_owned(),
            bound: Some(bound),
            counter,
            counts: counts.map(|(ours, _)| ours),
            port,
        })
    }

    fn guest(&self, kernel: &File, console: &File) -> io::Result<JailedGuest> {
        let system = match self.execution {
            Execution::Counted => GuestSystem::CountedLinux,
            Execution::Kvm | Execution::Translated => GuestSystem::Linux,
        };
        let accelerator = self.execution.accelerator();
        let mut guest = JailedGuest::new(self.machine_type, accelerator, system, 1)?;
        let image = guest.readable(kernel)?;
        let initramfs = guest.readable(self.initramfs)?;
        let console = guest.handed_path(console)?;
        let line = guest.line();
        line.memory_mib(self.memory_mib)
            .option(
                "-chardev",
                format!("file,id=console,path={console},append=on"),
            )
            .serial("chardev:console")
            .exit_port()
            .kernel(&image)
            .initrd(&initramfs)
            .append(&self.cmdline());
        if self.execution == Execution::Counted {
            line.option("-icount", "shift=1,sleep=off");
        }
        Ok(guest)
    }

    /// The port of the host that leads to the guest's.
    fn publish(&self, guest: &mut JailedGuest) -> io::Result<Option<u16>> {
        let Some(port) = self.port else {
            return Ok(None);
        };
        let published = guest.publish(&[Publish::from_any(port)])?;
        Ok(published.first().copied())
    }

    /// The address is QEMU's for its user's network.
    fn cmdline(&self) -> String {
        let address = match self.port {
            Some(_) => qemu::USER_NETWORK,
            None => "",
        };
        // With a counted clock the test cannot fail, and is part of the boot.
        let untimed = match self.execution {
            Execution::Counted => "",
            Execution::Kvm | Execution::Translated => UNTIMED,
        };
        let Self { words, .. } = self;
        format!("{WORDS} {CMDLINE} {untimed} {address} {words}")
    }
}

impl Running {
    /// What the guest printed until now.
    pub fn console(&self) -> String {
        console(&self.console)
    }

    /// Instructions until now; none without a counter.
    pub fn count(&self) -> Result<Count, CounterError> {
        let read = self.counter.as_ref().map(Counter::read).transpose();
        Ok(read?.unwrap_or_default())
    }

    /// The counts of its kernel, which was built in `objects`; once.
    pub fn execution_counts(
        &mut self,
        objects: &Path,
        goes_on: impl Fn() -> bool,
    ) -> Result<ExecutionCounts, MachineError> {
        let port = self.counts.take().ok_or(CountsError::Nothing)?;
        Ok(port.take(objects, goes_on)?)
    }

    /// What the user should know of its QEMU's jail, if anything.
    pub const fn warning(&self) -> Option<&'static str> {
        self.guest.warning()
    }

    /// Whether none of its threads wants a CPU: the guest waits for something. A guest that has
    /// work and waits for a CPU of a busy host is not idle.
    pub fn is_idle(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.guest.id()));
        let is_busy = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat"));
            stat.is_ok_and(|stat| wants_cpu(&stat))
        };
        tasks.is_ok_and(|mut tasks| !tasks.any(|task| task.is_ok_and(is_busy)))
    }

    /// Whether it goes on. Of one that has ended the console does not change any more.
    pub fn is_alive(&mut self) -> bool {
        let lives = matches!(self.guest.try_wait(), Ok(None));
        if !lives {
            self.bound = None;
        }
        lives
    }

    /// Waits until the console is as asked; `false` if it ended or took too long.
    pub fn until(&mut self, limit: Duration, is_it: impl Fn(&str) -> bool) -> bool {
        let begin = Instant::now();
        loop {
            let lives = self.is_alive();
            if is_it(&self.console()) {
                return true;
            }
            if !lives || begin.elapsed() > limit {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// An empty file for a console, open to append, and what bounds it.
fn new_console(path: &Path) -> io::Result<(File, LogBound)> {
    fs::write(path, "")?;
    let console = File::options().append(true).open(path)?;
    Ok((console, LogBound::start(path.to_owned())))
}

/// Whether a thread's `stat` says that it runs or waits for a CPU. Its name, which is before the
/// state, may have any characters.
fn wants_cpu(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with('R'))
}

/// The end of a console's file, as text; empty where there is none.
pub(crate) fn console(path: &Path) -> String {
    let end = || {
        let mut file = File::open(path)?;
        let begin = file.metadata()?.len().saturating_sub(CONSOLE_BYTES);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.take(CONSOLE_BYTES).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    String::from_utf8_lossy(&end().unwrap_or_default()).into_owned()
}

/// The status of the command that a console tells.
pub fn status(console: &str) -> Option<u8> {
    let mut lines = console.lines().rev();
    lines.find_map(|line| line.trim_end().strip_prefix(STATUS_LINE)?.parse().ok())
}

/// KiB of code that a kernel has built in, as it says itself (`mem_init_print_info` of
/// `mm/mm_init.c`).
pub(crate) fn kernel_code_kib(console: &str) -> Option<u64> {
    let (before, _) = console.split_once("K kernel code")?;
    let (_, number) = before.rsplit_once('(')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_kernel_says_itself_how_much_code_it_has() {
        let line = "[    0.1] Memory: 216000K/261632K available (3203K kernel code, 447K rwdata)";
        assert_eq!(kernel_code_kib(line), Some(3203));
        assert_eq!(kernel_code_kib("(xK kernel code"), None);
        assert_eq!(kernel_code_kib("a guest"), None);
    }

    #[test]
    fn no_more_than_the_end_of_a_console_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(console(file.path()), "");
        let bytes = usize::try_from(CONSOLE_BYTES).unwrap();
        let text = "a".repeat(9) + &"b".repeat(bytes);
        fs::write(file.path(), text).unwrap();
        assert_eq!(console(file.path()), "b".repeat(bytes));
        assert_eq!(console(Path::new("/none")), "");
    }

    /// As a guest does whose application prints without end.
    #[test]
    fn the_console_of_a_proof_is_bounded_and_keeps_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proof.log");
        let (mut guests, bound) = new_console(&path).unwrap();
        for _ in 0..3 * CONSOLE_BYTES / 8192 {
            guests.write_all(&[b'x'; 8192]).unwrap();
        }
        writeln!(guests, "\n{STATUS_LINE}7").unwrap();
        drop(bound);
        let bytes = fs::metadata(&path).unwrap().len();
        assert!(bytes <= CONSOLE_BYTES, "{bytes} bytes");
        assert_eq!(status(&console(&path)), Some(7));
    }

    #[test]
    fn a_thread_wants_a_cpu_by_its_state_whatever_its_name_is() {
        assert!(wants_cpu("7 (CPU 0/TCG) R 1 7 7 0"));
        assert!(!wants_cpu("7 (CPU 0/TCG) S 1 7 7 0"));
        assert!(!wants_cpu("7 (a) R ) S 1 7 7 0"));
        assert!(!wants_cpu(""));
    }

    #[test]
    fn the_timer_is_tested_only_where_the_host_cannot_delay_it() {
        let initramfs = tempfile::tempfile().unwrap();
        let cmdline = |execution| {
            let machine = ProofMachine {
                kernel: Path::new("k"),
                initramfs: &initramfs,
                words: "audit=0",
                memory_mib: 64,
                port: None,
                machine_type: MachineType::Q35,
                execution,
                console: Path::new("c"),
                plugin: None,
                counts: Logging::Off,
                tare: Path::new("t"),
            };
            machine.cmdline()
        };
        for execution in [Execution::Translated, Execution::Kvm] {
            assert!(cmdline(execution).contains(" no_timer_check "));
        }
        assert!(!cmdline(Execution::Counted).contains("no_timer_check"));
        assert!(cmdline(Execution::Counted).ends_with(" audit=0"));
    }

    #[test]
    fn the_last_status_of_a_console_counts() {
        assert_eq!(status("a\n"), None);
        let console = format!("{STATUS_LINE}7\r\n{STATUS_LINE}0\r\n[ 1.0] reboot\n");
        assert_eq!(status(&console), Some(0));
    }
}
