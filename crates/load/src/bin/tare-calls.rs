//! System calls on the kernel that it runs on, each timed: the program of the guests of
//! `tare weigh tailor` and `tare weigh calls`. `tare-calls COUNT [hold]` prints a JSON object for
//! each kind of call; with `hold` it says when it is done, and waits to be ended.

use std::process::ExitCode;

use tare_host::stderr;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let count = args.next().and_then(|count| count.parse().ok());
    let (Some(count), hold) = (count, args.next()) else {
        stderr::line("usage: tare-calls COUNT [hold]");
        return ExitCode::from(2);
    };
    if let Err(error) = tare_load::calls::print(count) {
        stderr::line(format_args!("tare-calls: {error}"));
        return ExitCode::FAILURE;
    }
    if hold.as_deref() == Some("hold") {
        println!("{{\"done\":true}}");
        loop {
            std::thread::park();
        }
    }
    ExitCode::SUCCESS
}
