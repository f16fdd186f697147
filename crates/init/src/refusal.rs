//! System calls that the kernel refuses, a line each on the console: what an
//! application that says nothing lacks.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Begin of the line.
const BEGIN: &str = "refused: ";
/// Most bytes of a reported string argument.
pub const TEXT_BYTES: usize = 256;
/// Arguments of a system call.
const ARGUMENTS: usize = 6;

/// A kind of refused system call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The call's number on x86-64.
    pub call: u32,
    /// The error's number.
    pub error: u16,
    /// Its arguments that select a feature ([`selectors`]).
    pub selectors: Vec<u64>,
    /// Its argument that is a path, or a type of file system ([`text`]).
    pub text: Option<String>,
}

impl Refusal {
    /// The line that tells it.
    pub fn line(&self) -> String {
        let document = serde_json::to_string(self).unwrap_or_default();
        format!("{BEGIN}{document}")
    }

    /// All that a console tells; lines of others in between, torn ones and what the
    /// first process never says are passed over.
    pub fn all_on(console: &str) -> BTreeSet<Self> {
        let parsed = console.lines().filter_map(|line| {
            let (_, document) = line.split_once(BEGIN)?;
            serde_json::from_str(document).ok()
        });
        parsed.filter(Self::is_within_bounds).collect()
    }

    fn is_within_bounds(&self) -> bool {
        let text = self.text.as_deref().unwrap_or_default();
        self.selectors.len() <= ARGUMENTS && text.len() <= TEXT_BYTES
    }
}

/// Positions of the arguments that select a feature: a family, an option, a request,
/// an operation, flags (`arch/x86/entry/syscalls/syscall_64.tbl` has the numbers).
pub const fn selectors(call: u32) -> &'static [usize] {
    match call {
        SOCKET | SOCKETPAIR => &[0, 1, 2],
        SETSOCKOPT | GETSOCKOPT => &[1, 2],
        IOCTL | FCNTL => &[1],
        CLONE | UNSHARE | PRCTL | ARCH_PRCTL => &[0],
        _ => &[],
    }
}

/// `ioctl`.
pub const IOCTL: u32 = 16;
/// `socket`.
pub const SOCKET: u32 = 41;
/// `socketpair`.
pub const SOCKETPAIR: u32 = 53;
/// `setsockopt`.
pub const SETSOCKOPT: u32 = 54;
/// `getsockopt`.
pub const GETSOCKOPT: u32 = 55;
/// `clone`.
pub const CLONE: u32 = 56;
/// `fcntl`.
pub const FCNTL: u32 = 72;
/// `prctl`.
pub const PRCTL: u32 = 157;
/// `arch_prctl`.
pub const ARCH_PRCTL: u32 = 158;
/// `mount`.
pub const MOUNT: u32 = 165;
/// `unshare`.
pub const UNSHARE: u32 = 272;
/// `fsopen`.
pub const FSOPEN: u32 = 430;

/// Position of the argument that is a path, or the type of a file system.
pub const fn text(call: u32) -> Option<usize> {
    match call {
        // open, stat, lstat, access, chdir, readlink, execve, statfs, mq_open, fsopen
        2 | 4 | 6 | 21 | 59 | 80 | 89 | 137 | 240 | FSOPEN => Some(0),
        // inotify_add_watch, openat, newfstatat, readlinkat, faccessat,
        // name_to_handle_at, execveat, statx, openat2, faccessat2
        254 | 257 | 262 | 267 | 269 | 303 | 322 | 332 | 437 | 439 => Some(1),
        MOUNT => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_found_among_other_lines() {
        let path = Refusal {
            call: 257,
            error: 2,
            selectors: Vec::new(),
            text: Some("/dev/\"a\n".to_owned()),
        };
        let socket = Refusal {
            call: SOCKET,
            error: 97,
            selectors: vec![10, 1, 0],
            text: None,
        };
        let long = Refusal {
            text: Some("x".repeat(TEXT_BYTES + 1)),
            ..path.clone()
        };
        let console = format!(
            "[ 0.1] Run\r\ntare-init: {}\r\ntare-init: {}\n{}\n{}\nrefused: {{\"call\": 1}}\nrefused: {{",
            path.line(),
            socket.line(),
            socket.line(),
            long.line(),
        );
        assert_eq!(Refusal::all_on(&console), [socket, path].into());
    }
}
