//! System calls on the kernel that it runs on, each timed: the program of
//! `tare weigh tailor`'s guests. `tare-calls COUNT` prints a JSON object for
//! each kind of call.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(Ok(count)) = std::env::args().nth(1).map(|word| word.parse()) else {
        eprintln!("usage: tare-calls COUNT");
        return ExitCode::from(2);
    };
    match tare_load::calls::print(count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tare-calls: {error}");
            ExitCode::FAILURE
        }
    }
}
