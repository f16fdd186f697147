//! The answers of the control socket; the table of requests is in [`tare_control::api`].

use tare_control::api::{MachineStatus, State, Stop};
use tare_control::config::MachineConfig;
use tare_control::settings::{Settings, SettingsChange, SettingsError};
use tare_control::stats::Stats;
use tare_daemon::interface::{self, Interface};
use tare_daemon::main_loop::Service;
use tare_daemon::signals::Request;

use crate::ending::Ending;
use crate::exit_reason::{ExitReason, ShutdownHandle};
use crate::http::{self, Response, Routes};
use crate::observe::Observer;
use crate::settings::Adjustable;
use vmm_sys_util::eventfd::EventFd;

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
    /// Requests the guest to end itself, if it supports that.
    pub stop_line: Option<EventFd>,
    /// What remains to do when there is a reason to end.
    pub(crate) ending: Ending,
    /// Whether a user requested the end.
    pub state: State,
}

impl Routes for Control {
    fn answer(&mut self, request: &http::Request<'_>) -> Response {
        interface::answer(self, request)
    }
}

impl Service for Control {
    type End = ExitReason;

    fn signal(&mut self, signal: i32) {
        if let Some(request) = Request::of(signal) {
            self.shutdown.end(request.into());
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

    fn end(&mut self) -> Option<ExitReason> {
        let new = self.shutdown.take();
        self.ending.next(new)
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
        // A guest that supports this ends by itself, with its own status; the client waits for
        // that, and kills the machine if it does not come.
        if let (Stop::PowerOff, Some(line)) = (how, &self.stop_line)
            && line.write(1).is_ok()
        {
            return;
        }
        self.shutdown.end(ExitReason::Stopped(how));
    }
}
