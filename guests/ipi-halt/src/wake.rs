//! The two CPUs and what they print.

use alloc::vec::Vec;
use core::time::Duration;

use tare_libos::hal::{clock, cpu, ring, stamp};
use tare_libos::{env, println, thread};

/// Samples in a printed line.
const BATCH: usize = 50;
/// Time without a halting CPU after which the sender gives up.
const HALT_TIMEOUT_NS: u64 = 5_000_000_000;
/// The CPU that halts, and the one that sends.
const HALTER: usize = 0;
const SENDER: usize = 1;

/// One wake-up, in cycles.
#[derive(Clone, Copy)]
struct Sample {
    /// From before the command to the handler's first instruction.
    wake: u64,
    /// What the command took the sender.
    send: u64,
}

pub(crate) fn main() -> Result<(), &'static str> {
    let samples = number("samples", 1000).clamp(1, 1_000_000);
    let gap_ns = number("gap_us", 100).min(1_000_000) * 1000;
    let (khz, ring) = (clock::ticks_per_s() / 1000, ring::current().number());
    println!("{{\"khz\":{khz},\"ring\":{ring}}}");
    if thread::cores() < 2 {
        return Err("two CPUs are needed");
    }
    let pause_ms = number("pause_ms", 0).min(60_000);
    if pause_ms > 0 {
        println!("{{\"begin\":true}}");
        thread::sleep(Duration::from_millis(pause_ms));
    }
    let sender = thread::spawn_on(SENDER, move || send(samples, gap_ns));
    let stamps: Vec<u64> = (0..samples).map(|_| stamp::halt()).collect();
    let sent = sender.join().ok_or("the first CPU did not halt")?;
    let taken: Vec<Sample> = stamps.iter().zip(&sent).map(sample).collect();
    taken.chunks(BATCH).for_each(print);
    println!("{{\"done\":true}}");
    if env::has_word("hold") {
        thread::park();
    }
    Ok(())
}

/// Interrupts the first CPU `samples` times, each time `gap_ns` after it halted.
fn send(samples: u64, gap_ns: u64) -> Option<Vec<stamp::Sent>> {
    (0..samples)
        .map(|_| {
            let begin_ns = clock::now_ns();
            while !stamp::is_halting(HALTER) {
                if clock::now_ns() - begin_ns > HALT_TIMEOUT_NS {
                    return None;
                }
                cpu::pause();
            }
            let halted_ns = clock::now_ns();
            while clock::now_ns() - halted_ns < gap_ns {
                cpu::pause();
            }
            stamp::send(HALTER)
        })
        .collect()
}

fn sample((stamp, sent): (&u64, &stamp::Sent)) -> Sample {
    Sample {
        wake: stamp.saturating_sub(sent.before),
        send: sent.after.saturating_sub(sent.before),
    }
}

fn print(batch: &[Sample]) {
    let list = |of: fn(&Sample) -> u64| {
        let numbers: Vec<_> = batch.iter().map(|s| alloc::format!("{}", of(s))).collect();
        numbers.join(",")
    };
    println!(
        "{{\"wake\":[{}],\"send\":[{}]}}",
        list(|s| s.wake),
        list(|s| s.send)
    );
}

fn number(key: &'static str, default: u64) -> u64 {
    let given = env::var(key).and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}
