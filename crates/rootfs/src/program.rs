//! Programs that read untrusted files, confined ([`tare_confine::spawn_confined`]) and
//! within bounds on their memory, their errors and their time.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

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

/// A program that runs. Its output is to be read or dropped, then its end awaited.
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
            said: last_line(self.errors),
        })
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

fn last_line(mut errors: File) -> Option<String> {
    let mut said = Vec::new();
    errors.rewind().ok()?;
    errors.take(ERRORS).read_to_end(&mut said).ok()?;
    let said = String::from_utf8_lossy(&said);
    let mut lines = said.lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty())?;
    Some(crate::quote::escaped(last))
}
