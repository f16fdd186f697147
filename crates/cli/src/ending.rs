//! What another process's exit status means as our own exit code.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use tare_control::exit::ExitCode;

/// The code that a monitor ended with. One that was killed by a signal, or
/// ended with a code that is none of ours, counts as an internal error.
pub(crate) fn code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => known(code),
        (None, Some(2)) => ExitCode::Interrupted,
        (None, Some(15)) => ExitCode::Terminated,
        _ => ExitCode::Internal,
    }
}

fn known(code: i32) -> ExitCode {
    ExitCode::ALL
        .iter()
        .map(|(known, _)| *known)
        .find(|known| i32::from(*known as u8) == code)
        .unwrap_or(ExitCode::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_table_are_kept_and_others_are_internal() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(code(exited(0)), ExitCode::Success);
        assert_eq!(code(exited(70)), ExitCode::GuestPanic);
        assert_eq!(code(exited(99)), ExitCode::Internal);
        assert_eq!(code(ExitStatus::from_raw(15)), ExitCode::Terminated);
        assert_eq!(code(ExitStatus::from_raw(9)), ExitCode::Internal);
    }
}
