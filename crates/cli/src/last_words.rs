//! How a Linux guest ended, from the end of its console: QEMU's exit port has no
//! room for the status of its command, and a panic looks like a reset.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use tare_abi::exit::STATUS_LINE;

/// Bytes of the console that are looked at.
const TAIL_BYTES: u64 = 16 * 1024;
/// What Linux says when it gives up (`kernel/panic.c`); with `panic=-1` it resets
/// the machine a few lines later.
const PANIC: &str = "] Kernel panic - not syncing";

/// How a guest said that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWords {
    /// Its command ended with this status.
    Status(u8),
    /// Its kernel panicked.
    Panic,
}

/// The last words in a console's log, if there are any.
pub(crate) fn of(console_log: &Path) -> Option<LastWords> {
    let mut file = File::open(console_log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    in_text(&String::from_utf8_lossy(&tail))
}

fn in_text(text: &str) -> Option<LastWords> {
    text.lines()
        .rev()
        .find_map(|line| match line.contains(PANIC) {
            true => Some(LastWords::Panic),
            false => line
                .trim()
                .strip_prefix(STATUS_LINE)
                .and_then(|status| status.parse().ok())
                .map(LastWords::Status),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_status_counts() {
        let text = format!("{STATUS_LINE}1\r\nmore\r\n{STATUS_LINE}77\r\n[ 2.1] reboot: off\r\n");
        assert_eq!(in_text(&text), Some(LastWords::Status(77)));
    }

    #[test]
    fn a_panic_is_a_panic() {
        let text = "[    1.0] Kernel panic - not syncing: x\r\n[    1.1] Kernel Offset: 0x1\r\n";
        assert_eq!(in_text(text), Some(LastWords::Panic));
    }

    #[test]
    fn other_ends_say_nothing() {
        for text in [
            "",
            "done\n",
            &format!("{STATUS_LINE}256\n"),
            &format!("x {STATUS_LINE}1\n"),
        ] {
            assert_eq!(in_text(text), None, "{text}");
        }
    }
}
