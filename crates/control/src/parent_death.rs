//! How a program that starts machines has them end with it, however it ends.

/// First word of a command line of `tare`, before the parent's process ID and a verb:
/// the verb gets SIGTERM when that parent ends. What it becomes (`tare-monitor`) does too.
pub const UNTIL_PARENT_ENDS: &str = "--until-parent-ends";
