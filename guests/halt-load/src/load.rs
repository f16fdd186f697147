//! The rhythms, and what is printed of them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use tare_libos::hal::{clock, cpu, stamp, timer};
use tare_libos::{env, println, thread};

/// Wake-ups in a printed line.
const BATCH: usize = 50;
/// Time without a halting CPU after which the sender gives up.
const HALT_TIMEOUT_NS: u64 = 5_000_000_000;
/// Halts by which the cost of arming is measured.
const TRIES: usize = 50;
/// While statistics are read.
const MOMENT: Duration = Duration::from_millis(150);
/// The CPU that halts, and the one that sends.
const HALTER: usize = 0;
const SENDER: usize = 1;

/// The next interrupt is the last of its phase.
static LAST: AtomicBool = AtomicBool::new(false);

/// When interrupts come.
#[derive(Clone, Copy)]
struct Rhythm {
    gap_ns: u64,
    burst: u64,
    pause_ns: u64,
}

pub(crate) fn main() -> Result<(), &'static str> {
    let warm = Duration::from_millis(number("warm_ms", 500));
    let time = Duration::from_millis(number("ms", 1000));
    let rhythm = Rhythm {
        gap_ns: number("gap_us", 100).clamp(1, 1_000_000) * 1000,
        burst: number("burst", 8).max(1),
        pause_ns: number("pause_us", 100_000).min(10_000_000) * 1000,
    };
    let load = env::var("load").unwrap_or("every");
    let steady = Rhythm {
        burst: u64::MAX,
        ..rhythm
    };
    let phase = |time| match load {
        "idle" => {
            thread::sleep(time);
            Ok(Vec::new())
        }
        "sleep" => Ok(sleep_again_and_again(time, steady.gap_ns)),
        "every" => interrupted(time, steady),
        "bursts" => interrupted(time, rhythm),
        _ => Err("load is idle, every, bursts or sleep"),
    };
    phase(warm)?;
    println!("{{\"begin\":true}}");
    thread::sleep(MOMENT);
    let wakes = phase(time)?;
    println!("{{\"end\":true}}");
    thread::sleep(MOMENT);
    print(&wakes);
    println!("{{\"done\":true}}");
    if env::has_word("hold") {
        thread::park();
    }
    Ok(())
}

/// Halts for `gap_ns` by the timer, again and again; how late each halt ended,
/// ns. Without the scheduler, whose own work is longer than such sleeps where
/// ring 0 is emulated; and what it takes to arm the timer is not part of the
/// sleep, or there would be none left there.
fn sleep_again_and_again(time: Duration, gap_ns: u64) -> Vec<u64> {
    let gap_ns = gap_ns + to_arm_ns();
    let end_ns = clock::now_ns() + time.as_nanos() as u64;
    let mut late = Vec::new();
    loop {
        let due_ns = clock::now_ns() + gap_ns;
        if due_ns >= end_ns {
            return late;
        }
        halt_until(due_ns);
        late.push(clock::now_ns().saturating_sub(due_ns));
    }
}

/// Halts, and says when the timer was armed.
fn halt_until(due_ns: u64) -> u64 {
    let mut armed_ns = 0;
    cpu::halt_if(|| {
        timer::arm(due_ns);
        armed_ns = clock::now_ns();
        true
    });
    armed_ns
}

/// From reading the clock until the timer is armed: the least of some.
fn to_arm_ns() -> u64 {
    let tries = (0..TRIES).map(|_| {
        let begin_ns = clock::now_ns();
        halt_until(begin_ns + 1) - begin_ns
    });
    tries.min().unwrap_or(0)
}

/// Halts, and is interrupted in a rhythm; from each command until this CPU
/// ran, ns.
fn interrupted(time: Duration, rhythm: Rhythm) -> Result<Vec<u64>, &'static str> {
    if thread::cores() < 2 {
        return Err("two CPUs are needed");
    }
    LAST.store(false, Ordering::SeqCst);
    let sender = thread::spawn_on(SENDER, move || send(time, rhythm));
    let mut woken = Vec::new();
    loop {
        woken.push(stamp::halt());
        if LAST.load(Ordering::SeqCst) {
            break;
        }
    }
    let sent = sender.join().ok_or("the first CPU did not halt")?;
    let per_s = clock::ticks_per_s().max(1);
    let pairs = woken.iter().zip(&sent);
    let ticks = pairs.map(|(woken, sent)| woken.saturating_sub(sent.before));
    Ok(ticks
        .map(|ticks| ticks * 1_000_000 / (per_s / 1000).max(1))
        .collect())
}

/// Interrupts the first CPU for `time`; `None` if it stops halting.
fn send(time: Duration, rhythm: Rhythm) -> Option<Vec<stamp::Sent>> {
    let mut sent = Vec::new();
    let mut due_ns = clock::now_ns();
    let end_ns = due_ns + time.as_nanos() as u64;
    for number in 1u64.. {
        due_ns += rhythm.gap_ns;
        if number.is_multiple_of(rhythm.burst) {
            due_ns += rhythm.pause_ns;
        }
        let begin_ns = clock::now_ns();
        while !stamp::is_halting(HALTER) || clock::now_ns() < due_ns {
            if clock::now_ns().saturating_sub(begin_ns.max(due_ns)) > HALT_TIMEOUT_NS {
                return None;
            }
            cpu::pause();
        }
        // Who was late does not hurry afterwards.
        due_ns = clock::now_ns();
        LAST.store(due_ns >= end_ns, Ordering::SeqCst);
        sent.push(stamp::send(HALTER)?);
        if due_ns >= end_ns {
            break;
        }
    }
    Some(sent)
}

fn print(wakes: &[u64]) {
    let samples = usize::try_from(number("samples", 500))
        .unwrap_or(500)
        .max(1);
    let step = wakes.len().div_ceil(samples).max(1);
    let spread: Vec<&u64> = wakes.iter().step_by(step).collect();
    for batch in spread.chunks(BATCH) {
        let numbers: Vec<String> = batch.iter().map(|ns| format!("{ns}")).collect();
        println!("{{\"wake_ns\":[{}]}}", numbers.join(","));
    }
    println!("{{\"wakes\":{}}}", wakes.len());
}

fn number(key: &'static str, default: u64) -> u64 {
    let given = env::var(key).and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}
