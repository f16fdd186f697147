//! How a machine ended, in the last line of its `lock`: the one file of the run
//! directory that a confined monitor still has open for writing.

use std::io;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::{retry_on_intr, write};

/// Whether a machine runs, and if not, how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Its lock is held.
    Running,
    /// It ended; `None` if it was killed before it could record how.
    Ended(Option<RunEnd>),
}

/// What a machine left that was to be started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It removed the directory: its end was requested.
    Removed,
    /// Neither: it did not start, or was killed.
    Nothing,
    /// It ended by itself.
    End(RunEnd),
}

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// Exit code of the process that ran it.
    pub code: u8,
    /// When, in seconds since 1970.
    pub ended_s: u64,
}

impl RunEnd {
    /// The last line that records an end.
    pub(super) fn parse(lock: &str) -> Option<Self> {
        lock.lines().rev().find_map(|line| {
            let (code, ended_s) = line.strip_prefix("exit ")?.split_once(" at ")?;
            Some(Self {
                code: code.parse().ok()?,
                ended_s: ended_s.parse().ok()?,
            })
        })
    }
}

/// Records in a run directory's lock, which the caller holds, that the machine
/// ends now with that code.
pub fn record_end(lock: impl AsFd, code: u8) -> io::Result<()> {
    let ended_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let line = format!("exit {code} at {ended_s}\n");
    // It is opened for appending, and a line is written whole.
    retry_on_intr(|| write(&lock, line.as_bytes()))?;
    Ok(())
}
