//! Standard streams of a program in a machine: ports of a virtio console (virtio 1.2,
//! 5.3), one for each stream.
//!
//! Linux finds them by name, whatever their numbers are. In Tare's own monitor the number
//! of a port is that of the program's descriptor as well.

/// Standard input, from the host.
pub const INPUT: &str = "tare.stdin";
/// Standard output, to the host.
pub const OUTPUT: &str = "tare.stdout";
/// Standard error, to the host.
pub const ERROR: &str = "tare.stderr";
/// The ports' names in Tare's own monitor, by number.
pub const NAMES: [&str; 3] = [INPUT, OUTPUT, ERROR];
