//! Why a run ends: the first reason wins, and becomes the monitor's message
//! and exit code.

use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use tare_abi::exit::GuestExit;
use tare_control::api::Stop;
use tare_control::config::GuestKind;
use tare_control::console_exit;
use tare_control::console_exit::ConsoleExit;
use tare_control::exit::{ExitCode, RunExit};
use tare_daemon::signals::Request;
use tare_hv::Crash;
use vmm_sys_util::eventfd::EventFd;

/// Why a run ends.
#[derive(Debug)]
pub enum ExitReason {
    /// The guest wrote its exit port.
    Guest(GuestExit),
    /// The guest powered off.
    PowerOff,
    /// The guest asked for a reset.
    Reset,
    /// The guest reported to the hypervisor that it crashed.
    GuestCrash,
    /// The guest's processor shut down.
    TripleFault(Box<Crash>),
    /// KVM could not go on with the guest.
    KvmInternal(Box<Crash>),
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM, or the terminal went away.
    Terminated,
    /// A request on the control socket.
    Stopped(Stop),
    /// The monitor failed; the sentence says where.
    Failed(String),
}

impl ExitReason {
    /// The monitor's exit code for a machine of that kind.
    pub fn ended(&self, guest: GuestKind) -> RunExit {
        match (self, guest) {
            (Self::Guest(GuestExit::Status(status)), GuestKind::Linux | GuestKind::Program) => {
                RunExit::Status(*status)
            }
            _ => self.code().into(),
        }
    }

    /// Interprets the reason: Linux resets after a panic, once it has printed why; a kernel without
    /// ports for its processes powers off after it has printed the command's status.
    pub fn explained(self, guest: GuestKind, console_log: &File) -> Self {
        match (&self, guest) {
            (Self::Reset | Self::PowerOff, GuestKind::Linux) => {}
            _ => return self,
        }
        match (&self, console_exit::read(console_log)) {
            (Self::Reset, Some(ConsoleExit::Panic)) => Self::Guest(GuestExit::Panic),
            (Self::PowerOff, Some(ConsoleExit::Status(status))) => {
                Self::Guest(GuestExit::Status(status))
            }
            _ => self,
        }
    }

    /// Whether a user asked for the end.
    pub(crate) fn was_requested(&self) -> bool {
        matches!(
            self,
            Self::Interrupted | Self::Terminated | Self::Stopped(_)
        )
    }

    /// Whether the machine ends without draining output.
    pub(crate) fn is_urgent(&self) -> bool {
        self.was_requested() || matches!(self, Self::Failed(_))
    }

    /// The exit code of `docs/exit-codes.md`.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Guest(GuestExit::Status(0)) | Self::PowerOff | Self::Stopped(Stop::PowerOff) => {
                ExitCode::Success
            }
            Self::Guest(GuestExit::Status(_)) => ExitCode::GuestStatus,
            Self::Guest(GuestExit::Panic) | Self::GuestCrash => ExitCode::GuestPanic,
            Self::Guest(GuestExit::Fault) => ExitCode::GuestFault,
            Self::Reset => ExitCode::GuestReset,
            Self::TripleFault(_) => ExitCode::TripleFault,
            Self::KvmInternal(_) => ExitCode::KvmInternal,
            Self::Interrupted => ExitCode::Interrupted,
            Self::Terminated | Self::Stopped(Stop::Kill) => ExitCode::Terminated,
            Self::Failed(_) => ExitCode::Internal,
        }
    }
}

impl From<Request> for ExitReason {
    fn from(signal: Request) -> Self {
        match signal {
            Request::Interrupt => Self::Interrupted,
            Request::Terminate => Self::Terminated,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guest(GuestExit::Status(status)) => {
                write!(f, "the application ended with status {status}")
            }
            Self::Guest(GuestExit::Panic) => {
                write!(f, "the guest panicked; its message is on its console")
            }
            Self::Guest(GuestExit::Fault) => write!(
                f,
                "the guest raised a processor exception that it does not handle; the registers are on its console"
            ),
            Self::PowerOff => write!(f, "the guest powered off"),
            Self::Reset => write!(f, "the guest requested a reset"),
            Self::GuestCrash => write!(f, "the guest reported that it crashed"),
            Self::TripleFault(crash) | Self::KvmInternal(crash) => crash.fmt(f),
            Self::Interrupted => write!(f, "interrupted"),
            Self::Terminated => write!(f, "terminated"),
            Self::Stopped(_) => write!(f, "stopped on request"),
            Self::Failed(message) => f.write_str(message),
        }
    }
}

/// Takes the first reason to end, from any thread, and wakes the main thread.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    first: Arc<Mutex<Option<ExitReason>>>,
    event: Arc<EventFd>,
}

impl ShutdownHandle {
    /// `event` becomes readable when there is a reason.
    pub fn new(event: EventFd) -> Self {
        Self {
            first: Arc::default(),
            event: Arc::new(event),
        }
    }

    /// Ends the run; later reasons are ignored.
    pub fn end(&self, reason: ExitReason) {
        self.lock().get_or_insert(reason);
        // Fails only when the counter is full, and then it is readable.
        let _ = self.event.write(1);
    }

    /// The event.
    pub fn event(&self) -> &EventFd {
        &self.event
    }

    /// The reason, once there is one. Another one may follow.
    pub fn take(&self) -> Option<ExitReason> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ExitReason>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tare_abi::exit::STATUS_LINE;

    use super::*;

    #[test]
    fn the_first_reason_wins() {
        let shutdown = ShutdownHandle::new(EventFd::new(libc::EFD_NONBLOCK).unwrap());
        shutdown.end(ExitReason::Reset);
        shutdown.end(ExitReason::Terminated);
        assert!(shutdown.event().read().is_ok());
        assert!(matches!(shutdown.take(), Some(ExitReason::Reset)));
    }

    #[test]
    fn endings_have_the_documented_codes() {
        let code = |reason: ExitReason| reason.code() as u8;
        assert_eq!(code(ExitReason::Guest(GuestExit::Status(0))), 0);
        assert_eq!(code(ExitReason::Guest(GuestExit::Status(3))), 1);
        assert_eq!(code(ExitReason::Guest(GuestExit::Panic)), 70);
        assert_eq!(code(ExitReason::Guest(GuestExit::Fault)), 71);
        assert_eq!(code(ExitReason::Stopped(Stop::PowerOff)), 0);
        assert_eq!(code(ExitReason::Stopped(Stop::Kill)), 143);
        assert_eq!(code(ExitReason::Interrupted), 130);
    }

    #[test]
    fn a_reset_after_a_panic_of_linux_is_a_panic() {
        let mut log = tempfile::tempfile().unwrap();
        log.write_all(b"[ 1.0] Kernel panic - not syncing: x\n[ 1.1] Rebooting\n")
            .unwrap();
        let code = |reason: ExitReason, guest| reason.explained(guest, &log).code();
        assert_eq!(
            code(ExitReason::Reset, GuestKind::Linux),
            ExitCode::GuestPanic
        );
        let library_os = code(ExitReason::Reset, GuestKind::LibraryOs);
        assert_eq!(library_os, ExitCode::GuestReset);
        assert_eq!(
            code(ExitReason::PowerOff, GuestKind::Linux),
            ExitCode::Success
        );
    }

    #[test]
    fn the_status_that_linux_said_before_it_powered_off_is_its_commands() {
        let mut log = tempfile::tempfile().unwrap();
        writeln!(log, "{STATUS_LINE}42\r\n[ 1.0] reboot: Power down").unwrap();
        let ended = |reason: ExitReason, guest| reason.explained(guest, &log).ended(guest);
        let linux = GuestKind::Linux;
        assert_eq!(ended(ExitReason::PowerOff, linux), RunExit::Status(42));
        let reset = RunExit::Code(ExitCode::GuestReset);
        assert_eq!(ended(ExitReason::Reset, linux), reset);
        let library_os = ended(ExitReason::PowerOff, GuestKind::LibraryOs);
        assert_eq!(library_os, RunExit::Code(ExitCode::Success));
    }

    #[test]
    fn the_status_of_linuxs_command_is_passed_on() {
        let ended = |guest| ExitReason::Guest(GuestExit::Status(77)).ended(guest);
        assert_eq!(ended(GuestKind::Linux), RunExit::Status(77));
        assert_eq!(
            ended(GuestKind::LibraryOs),
            RunExit::Code(ExitCode::GuestStatus)
        );
        let panic = ExitReason::Guest(GuestExit::Panic).ended(GuestKind::Linux);
        assert_eq!(panic, RunExit::Code(ExitCode::GuestPanic));
    }
}
