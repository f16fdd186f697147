//! tare-monitor: one virtual machine, its threads, its control socket, confined.

use std::process::ExitCode;

fn main() -> ExitCode {
    tare_monitor::run(std::env::args_os().skip(1)).into()
}
