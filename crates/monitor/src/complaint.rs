//! Messages of the monitor, which goes on.

use std::fmt::Display;

/// Prints one message, even if standard error is closed.
pub(crate) fn complain(message: impl Display) {
    tare_daemon::complain("tare-monitor", message);
}
