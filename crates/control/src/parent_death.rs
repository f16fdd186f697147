//! Machines that end with the program that started them, however that ends.

/// First argument of `tare`, before the parent's process ID and a verb: the kernel sends
/// SIGTERM to the verb, and to the `tare-monitor` that it becomes, when that parent ends.
pub const UNTIL_PARENT_ENDS: &str = "--until-parent-ends";
