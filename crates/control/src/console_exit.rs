//! How a guest ended, read from the end of its console: a panic of Linux looks like a
//! reset, and QEMU's exit port cannot carry the status of a command or an application.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use tare_abi::exit::{APPLICATION_STATUS_LINE, STATUS_LINE};

/// Bytes of the console that are read.
const TAIL_BYTES: u64 = 16 * 1024;
/// The line that Linux prints when it panics (`kernel/panic.c`); with `panic=-1` it
/// resets the machine a few lines later. A timestamp may precede it.
const PANIC: &str = "Kernel panic - not syncing";

/// How a guest ended, by its console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleExit {
    /// Its command or application ended with this status.
    Status(u8),
    /// Its Linux kernel panicked.
    Panic,
}

/// The exit that a console's log ends with, if it does.
pub fn read(console_log: &File) -> Option<ConsoleExit> {
    let length = console_log.metadata().ok()?.len();
    let mut at = length.saturating_sub(TAIL_BYTES);
    let mut tail = Vec::new();
    let mut chunk = [0; 4096];
    while tail.len() < TAIL_BYTES as usize {
        match console_log.read_at(&mut chunk, at).ok()? {
            0 => break,
            count => {
                tail.extend_from_slice(&chunk[..count]);
                at += count as u64;
            }
        }
    }
    in_text(&String::from_utf8_lossy(&tail))
}

fn in_text(text: &str) -> Option<ConsoleExit> {
    text.lines().rev().find_map(|line| {
        if is_panic(line) {
            return Some(ConsoleExit::Panic);
        }
        let line = line.trim();
        let status = line
            .strip_prefix(STATUS_LINE)
            .or_else(|| line.strip_prefix(APPLICATION_STATUS_LINE))?;
        status.parse().ok().map(ConsoleExit::Status)
    })
}

fn is_panic(line: &str) -> bool {
    match line.split_once(PANIC) {
        Some((before, _)) => before.is_empty() || before.ends_with("] "),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_status_counts() {
        let text = format!("{STATUS_LINE}1\r\nmore\r\n{STATUS_LINE}77\r\n[ 2.1] reboot: off\r\n");
        assert_eq!(in_text(&text), Some(ConsoleExit::Status(77)));
    }

    #[test]
    fn an_application_has_a_status_too() {
        let text = format!("end\n{APPLICATION_STATUS_LINE}134\n");
        assert_eq!(in_text(&text), Some(ConsoleExit::Status(134)));
    }

    #[test]
    fn a_panic_is_a_panic() {
        for text in [
            "[    1.0] Kernel panic - not syncing: x\r\n[    1.1] Kernel Offset: 0x1\r\n",
            "Kernel panic - not syncing: x\r\nKernel Offset: 0x1\r\n",
        ] {
            assert_eq!(in_text(text), Some(ConsoleExit::Panic), "{text}");
        }
    }

    #[test]
    fn other_ends_say_nothing() {
        for text in [
            "",
            "done\n",
            &format!("{STATUS_LINE}256\n"),
            &format!("x {STATUS_LINE}1\n"),
            "the words Kernel panic - not syncing\n",
        ] {
            assert_eq!(in_text(text), None, "{text}");
        }
    }
}
