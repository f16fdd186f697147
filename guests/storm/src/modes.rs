//! What each mode does, forever.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use tare_libos::hal::exits::{self, Exit};
use tare_libos::hal::{cpu, ipi, legacy};
use tare_libos::net::{self, UdpSocket};
use tare_libos::time::Instant;
use tare_libos::{env, println, thread};

/// Iterations of an exit between two looks at anything else.
const BATCH: u64 = 1000;
/// Where datagrams are thrown away (RFC 863), and their longest part that is read.
const DISCARD: u16 = 9;
const BYTES: usize = 64;

pub(crate) fn main() -> Result<(), &'static str> {
    let mode = env::var("mode").unwrap_or("quiet");
    match mode {
        "quiet" => begin(mode, thread::park),
        "hpet" => periodic(mode, legacy::Timer::Hpet),
        "pit" => periodic(mode, legacy::Timer::Pit),
        "rtc" => periodic(mode, legacy::Timer::Rtc),
        "tick" => tick(mode),
        "sleep" => sleep(mode),
        "spin" => spin(mode),
        "ipi" => interrupt_another(mode),
        "exit" => exit(mode),
        "net" => discard(mode),
        _ => Err("unknown mode"),
    }
}

fn begin(mode: &str, mut act: impl FnMut()) -> Result<(), &'static str> {
    println!("{{\"storm\":\"{mode}\"}}");
    loop {
        act();
    }
}

fn periodic(mode: &str, timer: legacy::Timer) -> Result<(), &'static str> {
    let hz = legacy::start(timer, number("hz", 1000))?;
    println!("{{\"storm\":\"{mode}\",\"hz\":{hz}}}");
    loop {
        thread::park();
    }
}

/// Deadlines keep their distance, however late each is served.
fn tick(mode: &str) -> Result<(), &'static str> {
    let period = Duration::from_nanos(1_000_000_000 / number("hz", 1000).clamp(1, 100_000));
    println!("{{\"storm\":\"{mode}\"}}");
    let mut next = Instant::now();
    loop {
        next = (next + period).max(Instant::now());
        thread::sleep_until(next);
    }
}

fn sleep(mode: &str) -> Result<(), &'static str> {
    let lengths: Vec<Duration> = env::var("us")
        .unwrap_or("1000")
        .split(',')
        .map(|us| us.parse().map(Duration::from_micros))
        .collect::<Result<_, _>>()
        .map_err(|_| "us=N[,N] takes numbers")?;
    begin(mode, || lengths.iter().copied().for_each(thread::sleep))
}

fn spin(mode: &str) -> Result<(), &'static str> {
    for core in 1..thread::cores() {
        drop(thread::spawn_on(core, || {
            loop {
                core::hint::black_box(());
            }
        }));
    }
    begin(mode, || {
        core::hint::black_box(());
    })
}

fn interrupt_another(mode: &str) -> Result<(), &'static str> {
    if cpu::count() < 2 {
        return Err("two CPUs are needed");
    }
    begin(mode, || ipi::wake(1))
}

fn exit(mode: &str) -> Result<(), &'static str> {
    let name = env::var("kind").ok_or("kind=NAME is missing")?;
    let known = Exit::ALL.iter().find(|(_, known)| *known == name);
    let (exit, _) = *known.ok_or("unknown kind of exit")?;
    exits::price(exit, 1)?;
    begin(mode, || {
        exits::price(exit, BATCH).ok();
    })
}

/// Takes datagrams and does nothing with them.
fn discard(mode: &str) -> Result<(), &'static str> {
    let socket = UdpSocket::bind(([0, 0, 0, 0], DISCARD)).map_err(|_| "the port is taken")?;
    net::wait_configured(None).map_err(|_| "no network")?;
    let mut buffer = Box::new([0; BYTES]);
    begin(mode, || {
        socket.recv_from(&mut *buffer).ok();
    })
}

fn number(key: &'static str, default: u64) -> u64 {
    let given = env::var(key).and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}
