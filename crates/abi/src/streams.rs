//! Standard streams of a program in a machine, and signals for it: ports of a virtio console
//! (virtio 1.2, 5.3), one for each.
//!
//! Linux finds them by name, whatever their numbers are. In Tare's own monitor the number
//! of a port is that of the program's descriptor as well.

/// Standard input, from the host.
pub const INPUT: &str = "tare.stdin";
/// Standard output, to the host.
pub const OUTPUT: &str = "tare.stdout";
/// Standard error, to the host.
pub const ERROR: &str = "tare.stderr";
/// Signals from the host, for a Linux guest's command or for a program in QEMU: a byte for each, its number
/// (`signal(7)`), with [`KEY`] for a key of the host's terminal. The guest writes one byte when it begins
/// to read: before that the host ends the machine in place of its command. The last port of a machine that
/// has several.
pub const SIGNALS: &str = "tare.signals";
/// Its number in a program's machine in QEMU, where it is the only port: QEMU keeps port 0 for a console.
pub const SIGNALS_PORT: usize = 1;
/// Added to a signal's number: a key sent it, so that it is for the processes in the foreground of the
/// guest's terminal.
pub const KEY: u8 = 0x80;
/// The ports' names in Tare's own monitor, by number.
pub const NAMES: [&str; 3] = [INPUT, OUTPUT, ERROR];
