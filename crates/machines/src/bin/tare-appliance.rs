//! An example application of `lab/appliances` by hand; see there.

use std::path::Path;
use std::process::ExitCode;

use tare_host::stderr;
use tare_machines::by_hand;

const USAGE: &str = "usage: tare-appliance root NAME DIR
       tare-appliance words NAME
       tare-appliance check NAME PORT
       tare-appliance load NAME PORT PHASE ROUNDS
       tare-appliance answers NAME PORT COUNT";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Some(Ok(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Some(Err(error)) => {
            stderr::line(format_args!("tare-appliance: {error}"));
            ExitCode::FAILURE
        }
        None => {
            stderr::line(USAGE);
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Option<Result<String, by_hand::ByHandError>> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Some(match args[..] {
        ["root", name, dir] => by_hand::root(name, Path::new(dir)).map(|()| String::new()),
        ["words", name] => by_hand::words(name),
        ["check", name, port] => {
            by_hand::check(name, port.parse().ok()?).map(|()| "it answers\n".to_owned())
        }
        ["load", name, port, phase, rounds] => {
            by_hand::load(name, port.parse().ok()?, phase, rounds.parse().ok()?)
                .map(|answers| format!("{answers} answers\n"))
        }
        ["answers", name, port, count] => {
            by_hand::answers(name, port.parse().ok()?, count.parse().ok()?)
        }
        _ => return None,
    })
}
