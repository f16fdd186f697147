//! Complaints: a line on standard error.

/// One message. A closed standard error is ignored.
pub(crate) fn complain(message: &str) {
    tare_daemon::complain("tare blk", message);
}
