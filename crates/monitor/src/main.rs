//! tare-monitor: one virtual machine, its threads, its control socket, confined.
//! Also the program that waits until a machine needs passt, and the one that serves the published ports of a
//! machine in QEMU.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = || std::env::args_os().skip(1);
    let other = tare_passt::waiter::from_args(arguments())
        .or_else(|| tare_monitor::ports_from_args(arguments()));
    match other {
        Some(ended) => (ended as u8).into(),
        None => tare_monitor::run(arguments()).into(),
    }
}
