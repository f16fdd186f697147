//! Iterations that double, and samples of the last number of them.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use tare_libos::hal::clock;
use tare_libos::hal::exits::{Exit, measure};
use tare_libos::hal::ring;
use tare_libos::{env, println, thread};

/// Time for the host to read the machine's statistics.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn main() -> Result<(), &'static str> {
    let names = env::var("kind").ok_or("kind=NAME[,NAME] is missing")?;
    let kinds = names
        .split(',')
        .map(|name| Exit::ALL.iter().find(|(_, known)| *known == name))
        .collect::<Option<Vec<_>>>()
        .ok_or("there is no such kind of exit")?;
    let khz = clock::ticks_per_s() / 1000;
    let target = number("target_us", 20_000).clamp(1, 10_000_000) * khz / 1000;
    let ring = ring::current().number();
    println!("{{\"khz\":{khz},\"ring\":{ring}}}");
    println!("{{\"begin\":true}}");
    thread::sleep(PAUSE);
    let samples = number("samples", 5).clamp(1, 1000);
    for (exit, name) in kinds {
        print(name, sample(*exit, target, samples));
    }
    println!("{{\"done\":true}}");
    if env::has_word("hold") {
        thread::park();
    }
    Ok(())
}

fn print(name: &str, sampled: Result<Sampled, &'static str>) {
    match sampled {
        Ok(Sampled {
            iterations,
            cycles,
            total,
        }) => {
            let cycles: Vec<_> = cycles.iter().map(|c| format!("{c}")).collect();
            let cycles = cycles.join(",");
            println!("{{\"kind\":\"{name}\",\"iterations\":{iterations},\"cycles\":[{cycles}]}}");
            println!("{{\"total\":{total}}}");
        }
        Err(reason) => println!("{{\"unavailable\":\"{reason}\"}}"),
    }
}

struct Sampled {
    /// In each sample.
    iterations: u64,
    /// Of each sample.
    cycles: Vec<u64>,
    /// Iterations of all, those that only doubled included.
    total: u64,
}

fn sample(exit: Exit, target: u64, samples: u64) -> Result<Sampled, &'static str> {
    let (mut iterations, mut total) = (1, 1);
    while measure(exit, iterations)? < target {
        iterations *= 2;
        total += iterations;
    }
    let cycles = (0..samples).map(|_| measure(exit, iterations));
    Ok(Sampled {
        iterations,
        cycles: cycles.collect::<Result<_, _>>()?,
        total: total + samples * iterations,
    })
}

fn number(key: &'static str, default: u64) -> u64 {
    let given = env::var(key).and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}
