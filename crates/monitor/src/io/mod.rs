//! The I/O thread: all work on queues, links and standard input, driven by readiness alone. If
//! nothing is ready, nothing runs.

mod device;

use std::io;
use std::sync::Arc;

use tare_devices::blk::{Clock as _, MonotonicClock};
use tare_devices::virtio::Look;
use tare_policy::looks::Looks;
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
    looks: Looks,
    /// Devices rely on further looks.
    is_looking: bool,
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
            looks: Looks::new(),
            is_looking: false,
            _stop: stop,
        })
    }

    /// Runs until [`Self::new`]'s `stop` is signalled.
    pub fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(16);
        // A regular file is always readable, and epoll refuses it.
        self.console_input(Input::resume)?;
        loop {
            let wait = self.rest()?;
            self.poll.wait(&mut ready, wait)?;
            if !ready.is_empty() {
                self.looks.worked();
                if self.looks.follow() {
                    // From here on no notification tells what a look finds.
                    self.is_looking = true;
                    self.look(Look::Again)?;
                }
            }
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

    /// How long to wait, after a look for further work where looks pay.
    fn rest(&mut self) -> io::Result<Wait> {
        let wait = self.timeout();
        if wait == Wait::No {
            return Ok(wait);
        }
        if self.looks.again() {
            // Whoever makes the work may wait for this CPU.
            std::thread::yield_now();
            self.is_looking = true;
            if self.look(Look::Again)? {
                self.looks.worked();
            }
            return Ok(Wait::No);
        }
        // From here on devices ask for notifications again, and may have something by then.
        if self.is_looking {
            self.is_looking = self.look(Look::Last)?;
            if self.is_looking {
                self.looks.worked();
                return Ok(Wait::No);
            }
        }
        Ok(self.timeout())
    }

    fn look(&mut self, look: Look) -> io::Result<bool> {
        let mut found = false;
        for device in &mut self.devices {
            found |= device.look(look, &self.poll)?;
        }
        Ok(found)
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use tare_control::console_log::ConsoleLog;
    use tare_devices::serial::{IrqLine, SerialPort};
    use tare_devices::virtio::Progress;

    use super::*;
    use crate::console::log::SharedLog;
    use crate::console::output::Output;
    use crate::poll::Interest;
    use crate::wiring::eventfd;

    /// Tells what the thread does; a look finds something as often as it says.
    struct Told {
        turns: Sender<()>,
        looks: Arc<Mutex<Vec<Look>>>,
        finds: Mutex<u32>,
    }

    impl QueueWork for Told {
        fn notified(&self, _queue: u16) -> Progress {
            self.turns.send(()).unwrap();
            Progress::Done
        }

        fn backend_ready(&self) -> Progress {
            Progress::Done
        }

        fn look(&self, look: Look) -> Progress {
            self.looks.lock().unwrap().push(look);
            let mut left = self.finds.lock().unwrap();
            if *left == 0 {
                return Progress::Done;
            }
            *left -= 1;
            Progress::More
        }

        fn interest(&self) -> Interest {
            Interest::default()
        }
    }

    #[test]
    fn the_thread_does_not_sleep_on_a_device_that_relies_on_further_looks() {
        let (turns, turned) = channel();
        let looks = Arc::new(Mutex::new(Vec::new()));
        let told = Told {
            turns,
            looks: Arc::clone(&looks),
            finds: Mutex::new(20),
        };
        let event = Arc::new(eventfd().unwrap());
        let devices = vec![IoDevice::new(Box::new(told), &[Arc::clone(&event)], None)];
        let stop = eventfd().unwrap();
        let log = ConsoleLog::new(tempfile::tempfile().unwrap()).unwrap();
        let output = Output::new(SharedLog::new(log), None);
        let port = SerialPort::new(IrqLine(eventfd().unwrap()), output);
        let console = Arc::new(Console::new(port, eventfd().unwrap()));
        let io = IoLoop::new(
            devices,
            console,
            ConsoleInput::None,
            stop.try_clone().unwrap(),
        );
        let io = io.unwrap();
        let thread = std::thread::spawn(move || io.run());
        // Looks are tried once in 64 turns.
        for _ in 0..200 {
            event.write(1).unwrap();
            turned.recv().unwrap();
        }
        // Now it sleeps, some time after its last look.
        let sleeps = || looks.lock().unwrap().last() == Some(&Look::Last);
        let sleeps = (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            sleeps()
        });
        stop.write(1).unwrap();
        thread.join().unwrap().unwrap();
        let looks = looks.lock().unwrap();
        assert!(sleeps && looks.contains(&Look::Again), "{looks:?}");
    }
}
