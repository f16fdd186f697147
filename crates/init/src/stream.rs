//! Names of the virtio console ports that carry a command's standard streams.
//! The machine has them when the command is part of a pipeline.

/// Standard input, from the host.
pub const INPUT: &str = "tare.stdin";
/// Standard output, to the host.
pub const OUTPUT: &str = "tare.stdout";
/// Standard error, to the host.
pub const ERROR: &str = "tare.stderr";
