//! System calls on the kernel that it runs on, each timed: the program of
//! `tare weigh tailor`'s guests. `tare-calls COUNT` prints a JSON object for
//! each kind of call.

use std::process::ExitCode;

use tare_host::stderr;
fn main() -> ExitCode {
    let Some(Ok(count)) = std::env::args().nth(1).map(|word| word.parse()) else {
        stderr::line("usage: tare-calls COUNT");
        return ExitCode::from(2);
    };
    match tare_load::calls::print(count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr::line(format_args!("tare-calls: {error}"));
            ExitCode::FAILURE
        }
    }
}
