//! The standard streams of a program in the machine, and signals for a Linux guest's command: the host's
//! ends of the ports of a virtio console ([`tare_abi::streams`]). I/O thread.
//!
//! Input is read when the program has room for it, so that input from before the start of the
//! machine is not lost. Output that a reader does not take stays with the program. All output goes
//! to `console.log` as well. In the background it goes only there, and the input is at its end.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::stdio::{stderr, stdin, stdout};
use tare_control::config::GuestKind;
use tare_devices::console::{Backend, Direction, Moved, PortSettings};
use tare_devices::counters;

use super::log::SharedLog;
use super::stream::Stream;
use super::terminal;
use crate::poll::{Interest, Poll};
use crate::signals::ProgramSignals;

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input,
    Output(usize),
    Signals,
}

impl Role {
    /// Those of the standard streams; the numbers of their ports are those of the descriptors.
    const STREAMS: [Self; 3] = [Self::Input, Self::Output(0), Self::Output(1)];

    fn settings(self) -> PortSettings {
        let [input, output, error] = tare_abi::streams::NAMES;
        let (name, direction) = match self {
            Self::Input => (input, Direction::Input),
            Self::Output(0) => (output, Direction::Output),
            Self::Output(_) => (error, Direction::Output),
            Self::Signals => (tare_abi::streams::SIGNALS, Direction::Input),
        };
        PortSettings { name, direction }
    }
}

/// What to do with output that no process reads any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Its writer gets an error, as from a broken pipe.
    Refused,
    /// It goes to the log: Linux's driver would wait for another reader.
    Dropped,
}

impl Unread {
    /// What a guest of that kind can handle.
    pub(crate) fn of(guest: GuestKind) -> Self {
        match guest {
            GuestKind::Linux => Self::Dropped,
            GuestKind::LibraryOs | GuestKind::Program => Self::Refused,
        }
    }
}

/// The streams of this process, opened before it is confined.
#[derive(Debug, Default)]
pub(crate) struct Standard {
    input: Option<Stream>,
    outputs: [Option<Stream>; 2],
}

impl Standard {
    /// Of a machine in the foreground. A job in the background of a terminal has no input.
    pub(crate) fn of_process() -> io::Result<Self> {
        let input = terminal::may_read().then(|| Stream::input(stdin()));
        Ok(Self {
            input: input.transpose()?,
            outputs: [
                Some(Stream::output(stdout())?),
                Some(Stream::output(stderr())?),
            ],
        })
    }
}

counters! {
    /// What the host's ends count, besides the device.
    pub struct PortCounters {
        /// Bytes that `console.log` did not take.
        log_dropped,
    }
}

/// The host's ends.
pub(crate) struct Ports {
    poll: Poll,
    input: Option<Stream>,
    outputs: [Option<Stream>; 2],
    signals: Option<Arc<ProgramSignals>>,
    /// What each port is for, and what it is watched for.
    roles: Vec<(Role, Interest)>,
    log: SharedLog,
    unread: Unread,
    counters: Arc<PortCounters>,
}

impl Ports {
    /// The ports of the standard streams, if these are ports, and the one of signals, if there are any.
    pub(crate) fn new(
        standard: Option<Standard>,
        signals: Option<Arc<ProgramSignals>>,
        log: SharedLog,
        unread: Unread,
    ) -> io::Result<Self> {
        let streams = standard.iter().flat_map(|_| Role::STREAMS);
        // The last one: the guest takes it as a sign that all have names.
        let roles = streams.chain(signals.iter().map(|_| Role::Signals));
        let roles = roles.map(|role| (role, Interest::default())).collect();
        let Standard { input, outputs } = standard.unwrap_or_default();
        Ok(Self {
            poll: Poll::new()?,
            input,
            outputs,
            signals,
            roles,
            log,
            unread,
            counters: Arc::default(),
        })
    }

    pub(crate) fn counters(&self) -> Arc<PortCounters> {
        Arc::clone(&self.counters)
    }

    /// The ports, by number.
    pub(crate) fn settings(&self) -> Vec<PortSettings> {
        self.roles.iter().map(|(role, _)| role.settings()).collect()
    }

    fn role(&self, port: usize) -> Option<Role> {
        self.roles.get(port).map(|(role, _)| *role)
    }

    fn read_input(&self, bytes: &mut [u8]) -> Moved {
        let Some(input) = &self.input else {
            return Moved::Closed;
        };
        match input.read(bytes) {
            Ok(count @ 1..) => Moved::Bytes(count),
            Err(Errno::AGAIN) => Moved::Blocked,
            Ok(0) | Err(_) => Moved::Closed,
        }
    }

    fn read_signals(&self, bytes: &mut [u8]) -> Moved {
        let byte = self.signals.as_ref().and_then(|it| it.read_port());
        match (byte, bytes.first_mut()) {
            (Some(byte), Some(to)) => {
                *to = byte;
                Moved::Bytes(1)
            }
            _ => Moved::Blocked,
        }
    }

    /// Becomes readable when a stream is ready that a port waits for.
    pub(crate) fn event(&self) -> io::Result<OwnedFd> {
        self.poll.try_clone()
    }

    /// A stream takes nothing more, and with it its port.
    fn lose(&mut self, port: usize, output: usize, why: Errno) -> Option<Moved> {
        // Otherwise it would stay in the set as long as others have it open.
        self.watch(port, Interest::default());
        self.outputs[output] = None;
        if why != Errno::PIPE {
            let name = ["output", "error"][output];
            let message = format!("tare-monitor: cannot write to standard {name}: {why}\n");
            // Logged once: standard error may be the stream that is lost.
            let _ = io::Write::write_all(&mut io::stderr(), message.as_bytes());
        }
        (self.unread == Unread::Refused).then_some(Moved::Closed)
    }
}

impl Backend for Ports {
    fn read(&mut self, port: usize, bytes: &mut [u8]) -> Moved {
        match self.role(port) {
            Some(Role::Input) => self.read_input(bytes),
            Some(Role::Signals) => self.read_signals(bytes),
            Some(Role::Output(_)) | None => Moved::Closed,
        }
    }

    fn write(&mut self, port: usize, bytes: &[u8]) -> Moved {
        let Some(Role::Output(output)) = self.role(port) else {
            return Moved::Closed;
        };
        let written = match &self.outputs[output] {
            None => Ok(bytes.len()),
            Some(stream) => stream.write(bytes),
        };
        let count = match written {
            Ok(count @ 1..) => count,
            Err(Errno::AGAIN) => return Moved::Blocked,
            Ok(0) | Err(_) => {
                let why = written.err().unwrap_or(Errno::PIPE);
                if let Some(closed) = self.lose(port, output, why) {
                    return closed;
                }
                bytes.len()
            }
        };
        if self.log.append(&bytes[..count]).is_err() {
            self.counters.log_dropped.add(count as u64);
        }
        Moved::Bytes(count)
    }

    fn watch(&mut self, port: usize, interest: Interest) {
        let Some((role, watched)) = self.roles.get_mut(port) else {
            return;
        };
        let source = match *role {
            Role::Input => self.input.as_ref().map(Stream::as_fd),
            Role::Output(output) => self.outputs[output].as_ref().map(Stream::as_fd),
            Role::Signals => self.signals.as_ref().map(|it| it.event()),
        };
        // A closed stream is not in the set either.
        if let Some(source) = source
            && self
                .poll
                .change(source, port as u64, *watched, interest)
                .is_ok()
        {
            *watched = interest;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use rustix::pipe::pipe;
    use tare_control::console_log::ConsoleLog;
    use tare_devices::CounterSource as _;
    use tare_host::signal_number::SignalNumber;

    use super::*;
    use crate::poll::Wait;
    use crate::wiring::eventfd;

    fn log() -> (SharedLog, File) {
        let file = tempfile::tempfile().unwrap();
        let log = ConsoleLog::new(file.try_clone().unwrap()).unwrap();
        (SharedLog::new(log), file)
    }

    fn text(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).unwrap();
        bytes
    }

    fn output(fd: &OwnedFd) -> Standard {
        Standard {
            input: None,
            outputs: [Some(Stream::output(fd.as_fd()).unwrap()), None],
        }
    }

    #[test]
    fn output_goes_to_its_reader_and_to_the_log_as_it_is() {
        let (reader, writer) = pipe().unwrap();
        let (log, file) = log();
        let mut ports = Ports::new(Some(output(&writer)), None, log, Unread::Refused).unwrap();
        assert_eq!(ports.write(1, b"a\n\0\xff"), Moved::Bytes(4));
        // In the background there is no reader.
        assert_eq!(ports.write(2, b"!"), Moved::Bytes(1));
        assert_eq!(text(&file), b"a\n\0\xff!");
        drop((ports, writer));
        let mut read = Vec::new();
        File::from(reader).read_to_end(&mut read).unwrap();
        assert_eq!(read, b"a\n\0\xff");
    }

    #[test]
    fn a_full_pipe_is_waited_for_and_the_log_has_what_went() {
        let (reader, writer) = pipe().unwrap();
        let (log, file) = log();
        let mut ports = Ports::new(Some(output(&writer)), None, log, Unread::Refused).unwrap();
        while ports.write(1, &[b'x'; 4096]) != Moved::Blocked {}
        let before = text(&file).len();
        let event = Poll::new().unwrap();
        event.add(ports.event().unwrap(), 7).unwrap();
        ports.watch(
            1,
            Interest {
                readable: false,
                writable: true,
            },
        );
        let mut ready = Vec::new();
        event.wait(&mut ready, Wait::No).unwrap();
        assert!(ready.is_empty());
        let mut bytes = vec![0; before];
        rustix::io::read(&reader, &mut bytes).unwrap();
        event.wait(&mut ready, Wait::No).unwrap();
        assert_eq!(ready, [7]);
        assert_eq!(ports.write(1, b"x"), Moved::Bytes(1));
        assert_eq!(text(&file).len(), before + 1);
        ports.watch(1, Interest::default());
        event.wait(&mut ready, Wait::No).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn a_reader_that_is_gone_ends_a_programs_output_and_not_linuxs() {
        for (unread, moved) in [
            (Unread::Refused, Moved::Closed),
            (Unread::Dropped, Moved::Bytes(1)),
        ] {
            let (reader, writer) = pipe().unwrap();
            let (log, file) = log();
            let mut ports = Ports::new(Some(output(&writer)), None, log, unread).unwrap();
            drop(reader);
            assert_eq!(ports.write(1, b"x"), moved);
            assert_eq!(text(&file).len(), usize::from(unread == Unread::Dropped));
        }
    }

    #[test]
    fn input_ends_where_there_is_none() {
        let (log, _file) = log();
        let mut ports = Ports::new(Some(Standard::default()), None, log, Unread::Refused).unwrap();
        assert_eq!(ports.read(0, &mut [0; 4]), Moved::Closed);
    }

    #[test]
    fn signals_have_the_last_port_and_wake_the_thread_that_serves_it() {
        let signals = Arc::new(ProgramSignals::of_command(eventfd().unwrap()));
        for (standard, port) in [(None, 0), (Some(Standard::default()), 3)] {
            let (log, _file) = log();
            let mut ports =
                Ports::new(standard, Some(Arc::clone(&signals)), log, Unread::Dropped).unwrap();
            assert_eq!(ports.settings().len(), port + 1);
            assert_eq!(ports.settings()[port].name, "tare.signals");
            let mut bytes = [0; 4];
            assert_eq!(ports.read(port, &mut bytes), Moved::Blocked);
            ports.watch(port, Interest::READ);
            let event = Poll::new().unwrap();
            event.add(ports.event().unwrap(), 7).unwrap();
            let mut ready = Vec::new();
            event.wait(&mut ready, Wait::No).unwrap();
            assert!(ready.is_empty());
            signals.raise(SignalNumber::TERM);
            event.wait(&mut ready, Wait::No).unwrap();
            assert_eq!(ready, [7]);
            assert_eq!(ports.read(port, &mut bytes), Moved::Bytes(1));
            assert_eq!(bytes[0], 15);
            assert_eq!(ports.read(port, &mut bytes), Moved::Blocked);
        }
    }

    #[test]
    fn what_the_log_does_not_take_is_counted() {
        let file = File::open("/proc/self/exe").unwrap();
        let log = SharedLog::new(ConsoleLog::new(file).unwrap());
        let mut ports = Ports::new(Some(Standard::default()), None, log, Unread::Refused).unwrap();
        assert_eq!(ports.write(1, b"xy"), Moved::Bytes(2));
        assert_eq!(ports.counters().snapshot()["log_dropped"], 2);
    }
}
