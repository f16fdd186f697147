//! The meaning of the end of an attempt.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use tare_control::rundir::Recorded;

use crate::ending;

/// How an attempt ended, with its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    /// A user requested it, or the exit code was 0: the last attempt.
    Over(u8),
    /// The machine failed.
    Failed(u8),
    /// The machine did not start.
    NotStarted(u8),
}

/// A machine that ends by itself records how; one that a user ends removes its directory; one that
/// is killed does neither.
pub(super) fn attempt_end(recorded: &Recorded, status: ExitStatus) -> AttemptEnd {
    let code = ending::status(status);
    match recorded {
        Recorded::Removed => AttemptEnd::Over(code),
        Recorded::End(end) if end.code == 0 => AttemptEnd::Over(0),
        Recorded::End(end) => AttemptEnd::Failed(end.code),
        Recorded::Nothing if status.signal().is_some() => AttemptEnd::Failed(code),
        Recorded::Nothing => AttemptEnd::NotStarted(code),
    }
}

#[cfg(test)]
mod tests {
    use tare_control::rundir::RunEnd;

    use super::*;

    #[test]
    fn only_a_machine_that_failed_by_itself_is_started_again() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        let end = |code| Recorded::End(RunEnd { code, ended_s: 1 });
        let killed = ExitStatus::from_raw(9);
        for (recorded, status, expected) in [
            (Recorded::Removed, exited(0), AttemptEnd::Over(0)),
            (Recorded::Removed, exited(143), AttemptEnd::Over(143)),
            // A program that handles SIGTERM and exits with its own status.
            (Recorded::Removed, exited(3), AttemptEnd::Over(3)),
            (end(0), exited(0), AttemptEnd::Over(0)),
            (end(70), exited(70), AttemptEnd::Failed(70)),
            // The status of a program, which has another meaning as an exit code of Tare.
            (end(10), exited(10), AttemptEnd::Failed(10)),
            (Recorded::Nothing, exited(10), AttemptEnd::NotStarted(10)),
            (Recorded::Nothing, killed, AttemptEnd::Failed(137)),
        ] {
            assert_eq!(attempt_end(&recorded, status), expected, "{recorded:?}");
        }
    }
}
