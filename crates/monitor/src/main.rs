//! tare-monitor: one virtual machine, its threads, its control socket, confined.
//! Also the program that waits until a machine needs passt.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(ended) = tare_passt::waiter::from_args(std::env::args_os().skip(1)) {
        return (ended as u8).into();
    }
    tare_monitor::run(std::env::args_os().skip(1)).into()
}
