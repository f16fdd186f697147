//! TCP_RR over the loopback (KVM Message Passing 2015): a client sends one byte, a
//! server sends one back. The client runs on the first core, the server on the
//! last: on one vCPU they share it.
//!
//! Prints JSON, a line each: `{"khz":N}`, `{"begin":true}` (and waits 100 ms),
//! `{"end":true}` (and waits again), `{"rr":[..]}` in batches, cycles of a
//! transaction, then the counters of all cores, at last `{"done":true}`. Command
//! line: `transactions=N` (500), `pause_ms=N` instead of the 100 ms, and `hold`, which keeps the machine for who
//! wants its statistics.

#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use tare_libos::hal::clock;
use tare_libos::io::{self, Read, Write};
use tare_libos::net::{TcpListener, TcpStream};
use tare_libos::sched::{CoreStats, core_stats};
use tare_libos::{env, println, thread};

const PORT: u16 = 5002;
/// Transactions in a printed line.
const BATCH: usize = 100;
/// Transactions that are not counted.
const WARM_UP: u64 = 20;
/// Time for the host to read the machine's statistics, unless given.
const PAUSE_MS: u64 = 100;

fn tcp_rr() -> io::Result<()> {
    let transactions = number("transactions", 500).clamp(1, 1_000_000);
    let pause = Duration::from_millis(number("pause_ms", PAUSE_MS).min(60_000));
    println!("{{\"khz\":{}}}", clock::ticks_per_s() / 1000);
    let listener = TcpListener::bind(("127.0.0.1", PORT))?;
    let server = thread::spawn_on(thread::cores() - 1, move || serve(&listener));
    let mut client = TcpStream::connect(("127.0.0.1", PORT))?;
    client.set_nodelay(true)?;
    println!("{{\"begin\":true}}");
    thread::sleep(pause);
    let mut transact = || -> io::Result<u64> {
        client.write_all(b"?")?;
        client.read_exact(&mut [0])?;
        Ok(clock::ticks())
    };
    let mut last = 0;
    for _ in 0..WARM_UP {
        last = transact()?;
    }
    let before = stats();
    let stamps = (0..transactions)
        .map(|_| transact())
        .collect::<io::Result<Vec<u64>>>()?;
    let after = stats();
    println!("{{\"end\":true}}");
    thread::sleep(pause);
    drop(client);
    server.join()?;
    let cycles: Vec<u64> = stamps
        .into_iter()
        .map(|stamp| stamp.saturating_sub(core::mem::replace(&mut last, stamp)))
        .collect();
    cycles.chunks(BATCH).for_each(print);
    print_counters(transactions, &before, &after);
    println!("{{\"done\":true}}");
    if env::has_word("hold") {
        thread::park();
    }
    Ok(())
}

tare_libos::entry!(tcp_rr);

/// On the host, over the shim of `tare_libos::thread`.
#[cfg(not(target_os = "none"))]
fn main() -> io::Result<()> {
    tcp_rr()
}

/// Answers one client until it leaves.
fn serve(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

fn stats() -> Vec<CoreStats> {
    (0..thread::cores()).map(core_stats).collect()
}

fn print(batch: &[u64]) {
    let numbers: Vec<_> = batch.iter().map(|cycles| format!("{cycles}")).collect();
    println!("{{\"rr\":[{}]}}", numbers.join(","));
}

fn print_counters(transactions: u64, before: &[CoreStats], after: &[CoreStats]) {
    let sum = |of: fn(&CoreStats) -> u64| {
        let all = |stats: &[CoreStats]| stats.iter().map(of).sum::<u64>();
        all(after) - all(before)
    };
    println!(
        "{{\"transactions\":{transactions},\"halts\":{},\"ipis\":{},\"timers\":{},\"timers_renewed\":{},\"switches\":{}}}",
        sum(|s| s.halts),
        sum(|s| s.ipis_sent),
        sum(|s| s.timers_armed),
        sum(|s| s.timers_renewed),
        sum(|s| s.switches),
    );
}

fn number(key: &'static str, default: u64) -> u64 {
    let given = env::var(key).and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}
