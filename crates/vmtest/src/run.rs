//! One run of an image in QEMU.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tare_abi::exit::GuestExit;
use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, PROGRAM};

/// Guest memory.
const MEMORY_MIB: u32 = 64;

/// A machine to run an image in.
#[derive(Clone, Debug)]
pub struct TestMachine {
    image: PathBuf,
    machine_type: MachineType,
    accelerator: Accelerator,
    cpus: u8,
    cmdline: String,
    arguments: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct RunOutput {
    /// What the guest said by the exit port, `None` if it did not.
    pub exit: Option<GuestExit>,
    /// What it printed.
    pub console: String,
}

/// Why a machine did not run, or did not end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// QEMU cannot be started.
    #[error("{PROGRAM} cannot be started")]
    Start(#[source] std::io::Error),
    /// There is no `/dev/kvm` that this user may open.
    #[error("/dev/kvm cannot be opened")]
    NoKvm(#[source] std::io::Error),
    /// The guest did not end in time.
    #[error("the guest did not end within {limit:?}; it printed:\n{console}")]
    Timeout {
        /// How long it was given.
        limit: Duration,
        /// What it printed until then.
        console: String,
    },
    /// QEMU could not be waited for.
    #[error("{PROGRAM} cannot be waited for")]
    Wait(#[source] std::io::Error),
}

impl TestMachine {
    /// A machine with 64 MiB and one CPU.
    pub fn new(image: &Path, machine_type: MachineType, accelerator: Accelerator) -> Self {
        Self {
            image: image.to_owned(),
            machine_type,
            accelerator,
            cpus: 1,
            cmdline: String::new(),
            arguments: Vec::new(),
        }
    }

    /// How many CPUs.
    pub fn cpus(mut self, cpus: u8) -> Self {
        self.cpus = cpus;
        self
    }

    /// The guest's command line.
    pub fn cmdline(mut self, cmdline: &str) -> Self {
        self.cmdline = cmdline.to_owned();
        self
    }

    /// Another argument for QEMU.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Runs until the guest ends, at most for `limit`.
    pub fn run(&self, limit: Duration) -> Result<RunOutput, RunError> {
        if self.accelerator == Accelerator::Kvm {
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/kvm")
                .map_err(RunError::NoKvm)?;
        }
        let mut qemu = self.command().spawn().map_err(RunError::Start)?;
        let reader = qemu.stdout.take().map(|mut output| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                output.read_to_end(&mut bytes).ok();
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        let status = wait(&mut qemu, limit)?;
        let console = reader
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        match status {
            Some(status) => Ok(RunOutput {
                exit: status
                    .and_then(|code| u8::try_from(code).ok())
                    .and_then(GuestExit::from_qemu_status),
                console,
            }),
            None => Err(RunError::Timeout { limit, console }),
        }
    }

    fn command(&self) -> Command {
        let (machine_type, guest) = (self.machine_type, GuestSystem::LibraryOs);
        let mut line = CommandLine::new(machine_type, self.accelerator, guest, self.cpus);
        line.memory_mib(MEMORY_MIB)
            .kernel(&self.image)
            .append(&self.cmdline)
            .serial("stdio")
            .exit_port();
        let mut command = Command::new(PROGRAM);
        line.apply(&mut command)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

/// The exit code (`None` for a signal), or `None` after killing what did not end.
fn wait(qemu: &mut Child, limit: Duration) -> Result<Option<Option<i32>>, RunError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = qemu.try_wait().map_err(RunError::Wait)? {
            return Ok(Some(status.code()));
        }
        if Instant::now() >= deadline {
            qemu.kill().ok();
            qemu.wait().ok();
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
