//! Maps another process's exit status to our exit code.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use tare_control::exit::ExitCode;

/// The code that a monitor ended with. One that was killed by a signal, or
/// ended with a code that Tare does not use, counts as an internal error.
pub fn code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => known(code),
        (None, Some(2)) => ExitCode::Interrupted,
        (None, Some(15)) => ExitCode::Terminated,
        _ => ExitCode::Internal,
    }
}

/// A command's status as a shell has it: its code, or 128 and the signal.
pub fn status(status: ExitStatus) -> u8 {
    let of_signal = || Some(128 + status.signal()?);
    let code = status.code().or_else(of_signal);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
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
    fn a_signal_is_128_and_its_number() {
        assert_eq!(status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(status(ExitStatus::from_raw(9)), 137);
    }

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
