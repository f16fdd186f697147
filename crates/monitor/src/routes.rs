//! The answers of the control socket; the table of requests is in [`tare_control::api`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tare_control::api::{MachineStatus, State, Stop};
use tare_control::config::MachineConfig;
use tare_control::settings::{Settings, SettingsChange, SettingsError};
use tare_control::stats::Stats;
use tare_daemon::interface::{self, Interface};
use tare_daemon::main_loop::Service;
use tare_daemon::signals::Request;
use tare_host::end_requests::{EndRequests, Keys, Turn};
use tare_host::signal_number::SignalNumber;

use crate::ending::Ending;
use crate::exit_reason::{ExitReason, ShutdownHandle};
use crate::http::{self, Response, Routes};
use crate::observe::Observer;
use crate::settings::Adjustable;
use crate::signals::ProgramSignals;

/// There is a reason to end.
pub(crate) const END: u32 = 0;
/// The next sample for halt polling is due.
pub(crate) const HALT: u32 = 1;
/// The host has the guest's output.
pub(crate) const DRAINED: u32 = 2;

/// The control interface of one machine.
pub(crate) struct Control {
    /// The configuration that was requested.
    pub config: MachineConfig,
    /// Its statistics.
    pub observer: Observer,
    /// What can be set.
    pub(crate) adjustable: Adjustable,
    /// Takes a request to stop.
    pub shutdown: ShutdownHandle,
    /// Takes signals to the guest's program, if it runs one.
    pub(crate) signals: Option<Arc<ProgramSignals>>,
    /// The requests to end that have come.
    pub(crate) requests: EndRequests,
    /// What remains to do when there is a reason to end.
    pub(crate) ending: Ending,
    /// Whether a user requested the end.
    pub state: State,
}

impl Control {
    /// What takes signals to the guest's program, if one gets them now.
    fn program(&self) -> Option<&Arc<ProgramSignals>> {
        self.signals.as_ref().filter(|signals| signals.is_read())
    }

    /// Ends the machine at once, if the signal requests an end.
    fn end_by(&self, signal: i32) {
        let signal = match (signal, self.requests.keys()) {
            (libc::SIGQUIT, Keys::Consoles) => libc::SIGINT,
            _ => signal,
        };
        if let Some(request) = Request::of(signal) {
            self.shutdown.end(request.into());
        }
    }
}

impl Routes for Control {
    fn answer(&mut self, request: &http::Request<'_>) -> Response {
        interface::answer(self, request)
    }
}

impl Service for Control {
    type End = ExitReason;

    fn signal(&mut self, signal: i32) {
        let programs = self.program().cloned();
        let programs = programs.filter(|_| !self.ending.has_begun());
        let (Some(program), Some(number)) = (programs, SignalNumber::from_raw(signal)) else {
            self.end_by(signal);
            return;
        };
        match self.requests.next(signal, Instant::now()) {
            Turn::Foregrounds => program.raise_key(number),
            Turn::Passed => program.raise(number),
            Turn::Programs => {
                self.state = State::Stopping;
                program.raise(number);
            }
            Turn::Same => {}
            Turn::Ends => self.end_by(signal),
        }
    }

    fn event(&mut self, number: u32) {
        match number {
            // The reason is stored before its event, so none is missed.
            END => drop(self.shutdown.event().read()),
            HALT => self.observer.halt.borrow_mut().due(),
            DRAINED => self.ending.drained(),
            _ => {}
        }
    }

    fn timeout(&self) -> Option<Duration> {
        self.ending.left(Instant::now())
    }

    fn look(&mut self) {
        self.ending.look(Instant::now());
    }

    fn end(&mut self) -> Option<ExitReason> {
        let new = self.shutdown.take();
        let reason = self.ending.next(new);
        if self.state == State::Stopping {
            self.ending.hurry(Instant::now());
        }
        reason
    }
}

impl Interface for Control {
    fn machine(&self) -> Option<MachineStatus> {
        Some(MachineStatus {
            config: self.config.clone(),
            pid: self.observer.pid,
            kvm: self.observer.kvm,
            state: self.state,
            uptime_ns: self.observer.uptime_ns(),
        })
    }

    fn stats(&self) -> Stats {
        self.observer.stats()
    }

    fn settings(&self) -> Settings {
        self.adjustable.now()
    }

    fn change(&mut self, change: &SettingsChange) -> Result<Settings, SettingsError> {
        self.adjustable.change(change)
    }

    fn stop(&mut self, how: Stop) {
        self.state = State::Stopping;
        // A program ends by itself, with its own status; the client waits for that, and kills the
        // machine if it does not come.
        match (how, self.program().cloned()) {
            (Stop::PowerOff, Some(program)) => {
                if self.requests.ask() {
                    program.raise(self.config.stop_signal);
                }
            }
            _ => self.shutdown.end(ExitReason::Stopped(how)),
        }
    }

    fn send_signal(&mut self, signal: SignalNumber) -> bool {
        let program = self.program();
        program.map(|program| program.raise(signal)).is_some()
    }
}
