//! Programs that read untrusted files, confined ([`tare_confine::spawn_confined`]) and
//! within bounds on their memory, their errors and their CPU time.
//!
//! One that may be any program ([`Reader::read`]) has a limit of its time as well: it may sleep, and
//! ignore Ctrl-C. Limit: what it has started itself may outlive it, confined.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tare_confine::{ConfineError, Reads, spawn_confined};
use tare_host::child::ended_within;

/// Most memory of a decompressor: the largest dictionary of xz has 1.5 GiB.
const MEMORY: u64 = 2 << 30;
/// Most address space of a dynamic linker, which maps a program and its libraries.
const MAPPED: u64 = 64 << 30;
/// Most CPU time in seconds.
const CPU_S: u64 = 900;
/// Most bytes of its errors.
const ERRORS: u64 = 64 << 10;
/// A program ends within this after its output has been read or closed.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A program that runs. Its output is to be read or dropped, then its end awaited; dropped before, it
/// is killed.
#[derive(Debug)]
pub(crate) struct Reader {
    child: Child,
    /// A pipe that is not read would have it wait.
    errors: File,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct ReaderEnd {
    status: ExitStatus,
    said: Option<String>,
}

impl Reader {
    pub(crate) fn start(command: &mut Command, reads: Reads) -> Result<Self, ConfineError> {
        let errors = tempfile::tempfile().map_err(ConfineError::Start)?;
        let copy = errors.try_clone().map_err(ConfineError::Start)?;
        command.env("LC_ALL", "C");
        command.stdout(Stdio::piped()).stderr(copy);
        let child = spawn_confined(command, reads)?;
        limit(&child, reads);
        Ok(Self { child, errors })
    }

    pub(crate) fn output(&mut self) -> io::Result<ChildStdout> {
        let output = self.child.stdout.take();
        output.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// At most `most` bytes of its output, which ends within `limit` ([`io::ErrorKind::TimedOut`]).
    pub(crate) fn read(&mut self, most: u64, limit: Duration) -> io::Result<Vec<u8>> {
        let output = Within {
            output: self.output()?,
            deadline: Instant::now() + limit,
        };
        let mut bytes = Vec::new();
        output.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Waits for the end; kills a program that goes on.
    pub(crate) fn end(mut self) -> io::Result<ReaderEnd> {
        let status = match ended_within(&mut self.child, END_LIMIT) {
            Some(status) => status,
            None => {
                self.child.kill()?;
                self.child.wait()?
            }
        };
        Ok(ReaderEnd {
            status,
            said: last_line(&mut self.errors),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Of one that has ended both are known.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output that is waited for until a deadline. Not for a thread that is confined: it may not poll.
struct Within {
    output: ChildStdout,
    deadline: Instant,
}

impl io::Read for Within {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&left))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.output.read(to),
        }
    }
}

impl ReaderEnd {
    /// Whether all went well; a program whose output was not read to its end may end by that.
    pub(crate) fn has_worked(&self) -> bool {
        self.status.success() || self.status.signal() == Some(Signal::PIPE.as_raw())
    }

    /// The last line of its errors, else its status.
    pub(crate) fn said(self) -> String {
        self.said.unwrap_or_else(|| self.status.to_string())
    }
}

/// What a program may have of this computer, whatever it was made to execute.
fn limit(child: &Child, reads: Reads) {
    let pid = Some(Pid::from_child(child));
    let memory = match reads {
        Reads::Installed => MEMORY,
        Reads::Everything => MAPPED,
    };
    for (resource, most) in [
        (Resource::As, memory),
        (Resource::Fsize, ERRORS),
        (Resource::Cpu, CPU_S),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        // One that has ended already, or a host that allows less.
        let _ = prlimit(pid, resource, limit);
    }
}

fn last_line(errors: &mut File) -> Option<String> {
    let mut said = Vec::new();
    errors.rewind().ok()?;
    errors.take(ERRORS).read_to_end(&mut said).ok()?;
    let said = String::from_utf8_lossy(&said);
    let mut lines = said.lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty())?;
    Some(crate::quote::escaped(last))
}
