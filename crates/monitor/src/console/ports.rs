//! The standard streams of a program in the machine: the host's ends of the ports of a virtio
//! console ([`tare_abi::streams`]). I/O thread.
//!
//! Input is read when the program has room for it, so that input from before the start of the
//! machine is not lost. Output that a reader does not take stays with the program. All output goes
//! to `console.log` as well. In the background it goes only there, and the input is at its end.

use std::io;
use std::os::fd::OwnedFd;
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

/// The ports, by number.
pub(crate) const PORTS: [PortSettings; 3] = {
    let [input, output, error] = tare_abi::streams::NAMES;
    [
        PortSettings {
            name: input,
            direction: Direction::Input,
        },
        PortSettings {
            name: output,
            direction: Direction::Output,
        },
        PortSettings {
            name: error,
            direction: Direction::Output,
        },
    ]
};

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
    watched: [Interest; PORTS.len()],
    log: SharedLog,
    unread: Unread,
    counters: Arc<PortCounters>,
}

impl Ports {
    pub(crate) fn new(standard: Standard, log: SharedLog, unread: Unread) -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            input: standard.input,
            outputs: standard.outputs,
            watched: [Interest::default(); PORTS.len()],
            log,
            unread,
            counters: Arc::default(),
        })
    }

    pub(crate) fn counters(&self) -> Arc<PortCounters> {
        Arc::clone(&self.counters)
    }

    /// Becomes readable when a stream is ready that a port waits for.
    pub(crate) fn event(&self) -> io::Result<OwnedFd> {
        self.poll.try_clone()
    }

    /// A stream takes nothing more.
    fn lose(&mut self, output: usize, why: Errno) -> Option<Moved> {
        // Otherwise it would stay in the set as long as others have it open.
        self.watch(output + 1, Interest::default());
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
    fn read(&mut self, _port: usize, bytes: &mut [u8]) -> Moved {
        let Some(input) = &self.input else {
            return Moved::Closed;
        };
        match input.read(bytes) {
            Ok(count @ 1..) => Moved::Bytes(count),
            Err(Errno::AGAIN) => Moved::Blocked,
            Ok(0) | Err(_) => Moved::Closed,
        }
    }

    fn write(&mut self, port: usize, bytes: &[u8]) -> Moved {
        let Some(output) = port.checked_sub(1).filter(|output| *output < 2) else {
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
                if let Some(closed) = self.lose(output, why) {
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
        let stream = match port {
            0 => self.input.as_ref(),
            _ => self.outputs.get(port - 1).and_then(Option::as_ref),
        };
        // A closed stream is not in the set either.
        if let (Some(stream), Some(watched)) = (stream, self.watched.get_mut(port))
            && self
                .poll
                .change(stream, port as u64, *watched, interest)
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
    use std::os::fd::AsFd as _;

    use rustix::pipe::pipe;
    use tare_control::console_log::ConsoleLog;
    use tare_devices::CounterSource as _;

    use super::*;
    use crate::poll::Wait;

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
        let mut ports = Ports::new(output(&writer), log, Unread::Refused).unwrap();
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
        let mut ports = Ports::new(output(&writer), log, Unread::Refused).unwrap();
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
            let mut ports = Ports::new(output(&writer), log, unread).unwrap();
            drop(reader);
            assert_eq!(ports.write(1, b"x"), moved);
            assert_eq!(text(&file).len(), usize::from(unread == Unread::Dropped));
        }
    }

    #[test]
    fn input_ends_where_there_is_none() {
        let (log, _file) = log();
        let mut ports = Ports::new(Standard::default(), log, Unread::Refused).unwrap();
        assert_eq!(ports.read(0, &mut [0; 4]), Moved::Closed);
    }

    #[test]
    fn what_the_log_does_not_take_is_counted() {
        let file = File::open("/proc/self/exe").unwrap();
        let log = SharedLog::new(ConsoleLog::new(file).unwrap());
        let mut ports = Ports::new(Standard::default(), log, Unread::Refused).unwrap();
        assert_eq!(ports.write(1, b"xy"), Moved::Bytes(2));
        assert_eq!(ports.counters().snapshot()["log_dropped"], 2);
    }
}
