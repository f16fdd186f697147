//! The I/O thread: all work on queues, links and standard input, driven by readiness alone. If
//! nothing is ready, nothing runs.

mod device;

use std::io;
use std::sync::Arc;

use tare_devices::blk::{Clock as _, MonotonicClock};
use vmm_sys_util::eventfd::EventFd;

pub use device::{IoDevice, QueueWork};

use crate::console::Console;
use crate::console::input::Input;
use crate::inherit::borrow;
use crate::poll::{Poll, Wait};

const STOP: u64 = 0;
const STDIN: u64 = 1;
const INPUT_ROOM: u64 = 2;
/// Devices' tokens begin here: device number above, event below.
const DEVICES: u64 = 1 << 32;
const EVENT_BITS: u32 = 16;

/// Whether the console reads standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleInput {
    /// It does.
    Stdin,
    /// It does not.
    None,
}

/// The thread's state.
pub struct IoLoop {
    poll: Poll,
    devices: Vec<IoDevice>,
    console: Arc<Console>,
    input: Option<Input>,
    /// Watched as long as it is open.
    _stop: EventFd,
}

impl IoLoop {
    /// Watches all descriptors; `stop` ends the loop.
    pub fn new(
        mut devices: Vec<IoDevice>,
        console: Arc<Console>,
        input: ConsoleInput,
        stop: EventFd,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.add(borrow(&stop), STOP)?;
        let input = match input {
            ConsoleInput::Stdin => {
                poll.add(borrow(console.room()), INPUT_ROOM)?;
                Some(Input::start(&poll, STDIN)?)
            }
            ConsoleInput::None => None,
        };
        for (number, device) in (0..).zip(&mut devices) {
            device.watch(&poll, DEVICES + (number << EVENT_BITS))?;
        }
        Ok(Self {
            poll,
            devices,
            console,
            input,
            _stop: stop,
        })
    }

    /// Runs until [`Self::new`]'s `stop` is signalled.
    pub fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(16);
        // A regular file is always readable, and epoll refuses it.
        self.console_input(Input::resume)?;
        loop {
            self.poll.wait(&mut ready, self.timeout())?;
            for token in ready.drain(..) {
                match token {
                    STOP => return Ok(()),
                    STDIN => self.console_input(Input::ready)?,
                    INPUT_ROOM => {
                        let _ = self.console.room().read();
                        self.console_input(Input::resume)?;
                    }
                    token => self.device_event(token),
                }
            }
            for device in &mut self.devices {
                device.go_on(&self.poll)?;
            }
            if self.next_deadline_ns().is_some() {
                let now_ns = MonotonicClock.now_ns();
                for device in &mut self.devices {
                    device.deadline(now_ns, &self.poll)?;
                }
            }
        }
    }

    /// How long to wait: forever if there is no work and nothing is held.
    fn timeout(&self) -> Wait {
        if self.devices.iter().any(IoDevice::has_more) {
            return Wait::No;
        }
        match self.next_deadline_ns() {
            Some(due_ns) => Wait::Nanoseconds(due_ns.saturating_sub(MonotonicClock.now_ns())),
            None => Wait::Forever,
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.devices.iter().filter_map(IoDevice::deadline_ns).min()
    }

    fn console_input(
        &mut self,
        step: fn(&mut Input, &Poll, &Console) -> io::Result<bool>,
    ) -> io::Result<()> {
        if let Some(input) = &mut self.input
            && !step(input, &self.poll, &self.console)?
        {
            self.input = None;
        }
        Ok(())
    }

    fn device_event(&mut self, token: u64) {
        let Some(token) = token.checked_sub(DEVICES) else {
            return;
        };
        let event = (token & ((1 << EVENT_BITS) - 1)) as usize;
        let number = (token >> EVENT_BITS) as usize;
        if let Some(device) = self.devices.get_mut(number) {
            device.event(event);
        }
    }
}
