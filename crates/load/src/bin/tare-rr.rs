//! Transactions of one byte over the loopback of the kernel that it runs on: the
//! program of `tcp-rr`'s Linux guests. `tare-rr TRANSACTIONS CPUS` prints what
//! the image of that name prints.

use std::process::ExitCode;

use tare_host::stderr;
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse());
    let (Some(Ok(transactions)), Some(Ok(cpus))) = (args.next(), args.next()) else {
        stderr::line("usage: tare-rr TRANSACTIONS CPUS");
        return ExitCode::from(2);
    };
    match tare_load::transactions::print(transactions, cpus) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr::line(format_args!("tare-rr: {error}"));
            ExitCode::FAILURE
        }
    }
}
