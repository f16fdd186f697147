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
/// The same where it sleeps after each.
const FEW: u64 = 10;
/// Where QEMU has the timer of ACPI's power management.
const PM_TIMER: u64 = 0x608;
/// Where datagrams are thrown away (RFC 863), and their longest part that is read.
const DISCARD: u16 = 9;
const BYTES: usize = 64;

pub(crate) fn main() -> Result<(), &'static str> {
    let mode = env::var("mode").unwrap_or("quiet");
    match mode {
        "quiet" => begin(mode, thread::park),
        "hpet" => periodic(mode, legacy::Timer::Hpet),
        "pit" => periodic(mode, pit()?),
        "late-pic" => late_pic(mode),
        "rtc" => periodic(mode, rtc()?),
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

/// Ticks wait at the 8259 before it is initialised.
fn late_pic(mode: &str) -> Result<(), &'static str> {
    let hz = legacy::start(legacy::Timer::PitMasked, number("hz", 1000))?;
    thread::sleep(Duration::from_millis(20));
    legacy::route_through_pic()?;
    println!("{{\"storm\":\"{mode}\",\"hz\":{hz}}}");
    loop {
        thread::park();
    }
}

fn pit() -> Result<legacy::Timer, &'static str> {
    match env::var("through").unwrap_or("ioapic") {
        "ioapic" => Ok(legacy::Timer::Pit),
        "pic" => Ok(legacy::Timer::PitThroughPic),
        "none" => Ok(legacy::Timer::PitMasked),
        _ => Err("through=ioapic, pic or none"),
    }
}

fn rtc() -> Result<legacy::Timer, &'static str> {
    match env::var("through").unwrap_or("ioapic") {
        "ioapic" => Ok(legacy::Timer::Rtc),
        "pic" => Ok(legacy::Timer::RtcThroughPic),
        _ => Err("through=ioapic or pic"),
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

/// One kind of what exits.
#[derive(Clone, Copy)]
enum Act {
    Exit(Exit),
    Read(legacy::Clock),
    Print,
}

impl Act {
    fn named(name: &str) -> Option<Self> {
        let port = u16::try_from(number("port", PM_TIMER)).ok()?;
        Some(match name {
            "hpet" => Self::Read(legacy::Clock::Hpet),
            "pit" => Self::Read(legacy::Clock::Pit),
            "rtc" => Self::Read(legacy::Clock::Rtc),
            "pm" => Self::Read(legacy::Clock::PmTimer(port)),
            "print" => Self::Print,
            _ => Self::Exit(Exit::ALL.iter().find(|(_, known)| *known == name)?.0),
        })
    }

    fn perform(self, times: u64) -> Result<(), &'static str> {
        match self {
            Self::Exit(exit) => exits::measure(exit, times).map(drop),
            Self::Read(clock) => legacy::read(clock, times),
            Self::Print => {
                (0..times).for_each(|_| println!("."));
                Ok(())
            }
        }
    }
}

fn exit(mode: &str) -> Result<(), &'static str> {
    let names = env::var("kind").ok_or("kind=NAME[,NAME] is missing")?;
    let kinds: Option<Vec<Act>> = names.split(',').map(Act::named).collect();
    let kinds = kinds.ok_or("unknown kind of exit")?;
    // Whether the machine has it is known before it begins.
    kinds.iter().try_for_each(|kind| kind.perform(1))?;
    println!("{{\"storm\":\"{mode}\"}}");
    let (pause, most) = (number("us", 0), number("count", u64::MAX));
    let batch = if pause > 0 { FEW } else { BATCH };
    let mut done = 1;
    while done < most {
        let times = batch.min(most - done);
        kinds.iter().try_for_each(|kind| kind.perform(times))?;
        done += times;
        if pause > 0 {
            thread::sleep(Duration::from_micros(pause));
        }
    }
    println!("{{\"done\":{done}}}");
    loop {
        thread::park();
    }
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
