//! What is checked, in order.

mod ensure;
mod paravirt;
mod programs;
mod several;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::sync::{Condvar, Event, LazyLock, Mutex, mpsc};
use tare_libos::thread::{self, JoinHandle};
use tare_libos::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tare_libos::{heap, sched};

use ensure::ensure;

/// A check: figures, or why it failed.
pub(crate) type Check = fn() -> Result<String, String>;

/// All checks by name.
pub(crate) const ALL: &[(&str, Check)] = &[
    ("spawn-join", spawn_join),
    ("spawn-many", spawn_many),
    ("yield", yield_turns),
    ("sleep", || patient(sleep_accuracy)),
    ("sleep-on-every-core", || patient(sleep_on_every_core)),
    ("timers-in-order", || patient(timers_in_order)),
    ("timeout", timeouts),
    ("mutex", mutex),
    ("condvar", condvar),
    ("bounded-channel", bounded_channel),
    ("cross-core-channel", cross_core_channel),
    ("cross-core-wakeups", cross_core_wakeups),
    ("lazy", lazy),
    ("heap", heap_returns),
    ("clock", clock),
    ("wall-clock", wall_clock),
    ("paravirt", paravirt::check),
    ("wake-several", several::check),
    ("programs", programs::check),
    ("random", random),
    ("poller", || patient(poller)),
    ("idle-halts", || patient(idle_halts)),
];

/// A check of times: a busy host may take the time of one try, not of each.
fn patient(check: Check) -> Result<String, String> {
    (1..5).find_map(|_| check().ok()).map_or_else(check, Ok)
}

fn other_core() -> usize {
    thread::cores() - 1
}

fn spawn_join() -> Result<String, String> {
    let name = |core| {
        thread::Builder::new().name("named").core(core).spawn(|| {
            (
                thread::current_core(),
                thread::current().name().map(String::from),
            )
        })
    };
    for core in 0..thread::cores() {
        let (ran_on, name) = name(core).map_err(|error| format!("{error}"))?.join();
        ensure(ran_on == core, || {
            format!("core {ran_on} ran core {core}'s thread")
        })?;
        ensure(name.as_deref() == Some("named"), || {
            format!("name {name:?}")
        })?;
    }
    let refused = name(thread::cores());
    ensure(refused.is_err(), || "a core too many was accepted".into())?;
    Ok(format!("cores {}", thread::cores()))
}

fn spawn_many() -> Result<String, String> {
    let before = heap::stats().used;
    for round in 0..3 {
        let threads: Vec<_> = (0..50_u64).map(|n| thread::spawn(move || n)).collect();
        let sum: u64 = threads.into_iter().map(JoinHandle::join).sum();
        ensure(sum == 1225, || format!("round {round}: sum {sum}"))?;
    }
    thread::yield_now();
    let kept = heap::stats().used.saturating_sub(before);
    // Stacks are kept for the next threads: 50 of them, once.
    ensure(kept < 52 * 40 * 1024, || format!("{kept} bytes were kept"))?;
    Ok(format!("threads 150 kept_kib {}", kept / 1024))
}

fn yield_turns() -> Result<String, String> {
    let turns = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..3)
        .map(|id| {
            let turns = Arc::clone(&turns);
            thread::spawn(move || {
                for _ in 0..3 {
                    turns.lock().push(id);
                    thread::yield_now();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    let turns = turns.lock();
    ensure(*turns == [0, 1, 2, 0, 1, 2, 0, 1, 2], || {
        format!("{turns:?}")
    })?;
    Ok("round robin".into())
}

fn sleep_accuracy() -> Result<String, String> {
    let mut late_us = Vec::new();
    for ms in [1, 5, 20] {
        let deadline = Instant::now() + Duration::from_millis(ms);
        thread::sleep_until(deadline);
        let late = Instant::now().duration_since(deadline);
        ensure(Instant::now() >= deadline, || {
            format!("{ms} ms ended early")
        })?;
        ensure(late < Duration::from_millis(200), || {
            format!("{ms} ms: {late:?} late")
        })?;
        late_us.push(late.as_micros());
    }
    Ok(format!("late_us {late_us:?}"))
}

/// Every core has its own timer.
fn sleep_on_every_core() -> Result<String, String> {
    for core in 0..thread::cores() {
        let deadline = Instant::now() + Duration::from_millis(5);
        thread::spawn_on(core, move || thread::sleep_until(deadline)).join();
        let late = Instant::now().duration_since(deadline);
        ensure(
            Instant::now() >= deadline && late < Duration::from_millis(200),
            || format!("core {core}: {late:?} late"),
        )?;
    }
    Ok(format!("cores {}", thread::cores()))
}

fn timers_in_order() -> Result<String, String> {
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    for ms in [30_u64, 10, 20] {
        let sender = sender.clone();
        thread::spawn(move || {
            thread::sleep_until(start + Duration::from_millis(ms));
            sender.send(ms).ok();
        });
    }
    drop(sender);
    let order: Vec<_> = receiver.iter().collect();
    ensure(order == [10, 20, 30], || format!("{order:?}"))?;
    Ok(format!("{order:?}"))
}

fn timeouts() -> Result<String, String> {
    let (sender, receiver) = mpsc::channel::<()>();
    let outcome = receiver.recv_timeout(Duration::from_millis(3));
    ensure(outcome == Err(mpsc::RecvTimeoutError::Timeout), || {
        format!("{outcome:?}")
    })?;
    drop(sender);
    let event = Event::new();
    ensure(
        !event.wait_until(Instant::now() + Duration::from_millis(3)),
        || "an event that was not set".into(),
    )?;
    thread::current().unpark();
    let start = Instant::now();
    thread::park_timeout(Duration::from_secs(5));
    ensure(start.elapsed() < Duration::from_secs(5), || {
        "an early unpark was lost".into()
    })?;
    Ok("recv, event, park".into())
}

fn mutex() -> Result<String, String> {
    let counter = Arc::new(Mutex::new(0_u32));
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let counter = Arc::clone(&counter);
            thread::spawn_on(n % thread::cores(), move || {
                for _ in 0..50 {
                    let mut guard = counter.lock();
                    let old = *guard;
                    thread::yield_now();
                    *guard = old + 1;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    let count = *counter.lock();
    ensure(count == 400, || format!("{count} of 400"))?;
    Ok(format!("count {count}"))
}

fn condvar() -> Result<String, String> {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let waiters: Vec<_> = (0..4)
        .map(|n| {
            let shared = Arc::clone(&shared);
            thread::spawn_on(n % thread::cores(), move || {
                drop(shared.1.wait_while(shared.0.lock(), |state| *state == 0));
            })
        })
        .collect();
    thread::yield_now();
    *shared.0.lock() = 1;
    shared.1.notify_all();
    waiters.into_iter().for_each(JoinHandle::join);
    Ok("broadcast to 4".into())
}

fn bounded_channel() -> Result<String, String> {
    let (sender, receiver) = mpsc::sync_channel(2);
    let producer = thread::spawn_on(other_core(), move || {
        (0..200_u32).all(|n| sender.send(n).is_ok())
    });
    let received: u32 = receiver.iter().sum();
    let complete = producer.join();
    ensure(complete && received == 19_900, || format!("sum {received}"))?;
    Ok(format!("sum {received}"))
}

fn cross_core_channel() -> Result<String, String> {
    let (to_other, from_us) = mpsc::channel::<u32>();
    let (to_us, from_other) = mpsc::channel::<u32>();
    let echo = thread::spawn_on(other_core(), move || {
        from_us.iter().for_each(|n| {
            to_us.send(n + 1).ok();
        });
    });
    let start = Instant::now();
    for n in 0..200 {
        to_other.send(n).map_err(|error| format!("{error}"))?;
        let answer = from_other.recv().map_err(|error| format!("{error}"))?;
        ensure(answer == n + 1, || format!("{answer} for {n}"))?;
    }
    let each = start.elapsed().as_micros() / 200;
    drop(to_other);
    echo.join();
    Ok(format!("round_trips 200 each_us {each}"))
}

/// Many wake-ups of a core that is about to halt: a lost one hangs.
fn cross_core_wakeups() -> Result<String, String> {
    let ping = Arc::new(Event::new());
    let pong = Arc::new(Event::new());
    let (their_ping, their_pong) = (Arc::clone(&ping), Arc::clone(&pong));
    let partner = thread::spawn_on(other_core(), move || {
        for _ in 0..1000 {
            their_ping.wait();
            their_pong.set();
        }
    });
    for round in 0..1000_u32 {
        ping.set();
        // Vary where the partner is on its way to the halt.
        for _ in 0..round % 64 {
            core::hint::spin_loop();
        }
        let in_time = pong.wait_until(Instant::now() + Duration::from_secs(10));
        ensure(in_time, || format!("wake-up {round} was lost"))?;
    }
    partner.join();
    let stats = sched::core_stats(0);
    Ok(format!(
        "rounds 1000 ipis {} skipped {}",
        stats.ipis_sent, stats.ipis_skipped
    ))
}

fn lazy() -> Result<String, String> {
    static MADE: LazyLock<Instant> = LazyLock::new(|| {
        thread::sleep(Duration::from_millis(2));
        Instant::now()
    });
    let threads: Vec<_> = (0..4)
        .map(|n| thread::spawn_on(n % thread::cores(), || *MADE))
        .collect();
    let seen: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    ensure(seen.iter().all(|one| *one == seen[0]), || {
        "made twice".into()
    })?;
    Ok("made once".into())
}

fn heap_returns() -> Result<String, String> {
    let before = heap::stats();
    let blocks: Vec<Vec<u8>> = (1..60).map(|n| alloc::vec![n as u8; n * 7]).collect();
    let intact = blocks
        .iter()
        .enumerate()
        .all(|(at, block)| block.iter().all(|b| *b == (at + 1) as u8));
    drop(blocks);
    let after = heap::stats();
    ensure(intact, || "blocks overlap".into())?;
    // Threads that end on other cores give back more, the network takes a little.
    ensure(after.used <= before.used + 4096, || {
        format!("{before:?} {after:?}")
    })?;
    Ok(format!(
        "total_kib {} used_kib {}",
        after.total / 1024,
        after.used / 1024
    ))
}

fn clock() -> Result<String, String> {
    let mut last = Instant::now();
    for _ in 0..1000 {
        let now = Instant::now();
        ensure(now >= last, || format!("{last:?} then {now:?}"))?;
        last = now;
    }
    let there = thread::spawn_on(other_core(), Instant::now).join();
    let skew = Instant::now().duration_since(there);
    ensure(there >= last && skew < Duration::from_secs(1), || {
        format!("skew {skew:?}")
    })?;
    Ok(format!("skew_below_us {}", skew.as_micros()))
}

fn wall_clock() -> Result<String, String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).as_secs();
    ensure((1_700_000_000..5_000_000_000).contains(&seconds), || {
        format!("{seconds}")
    })?;
    Ok(format!("unix {seconds}"))
}

fn random() -> Result<String, String> {
    let (mut a, mut b) = ([0; 32], [0; 32]);
    tare_libos::random::fill(&mut a);
    tare_libos::random::fill(&mut b);
    ensure(a != b && a != [0; 32], || "the same twice".into())?;
    Ok(format!("first {:02x}{:02x}", a[0], a[1]))
}

/// A poller lets its core halt after 200 ms without work; time wakes it.
fn poller() -> Result<String, String> {
    let until = Instant::now() + Duration::from_millis(400);
    let before = sched::core_stats(thread::current_core());
    let alarm = thread::spawn(move || {
        while Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
    });
    thread::active();
    while Instant::now() < until {
        thread::yield_idle();
    }
    alarm.join();
    let after = sched::core_stats(thread::current_core());
    let halts = after.halts - before.halts;
    ensure((1..100).contains(&halts), || format!("{halts} halts"))?;
    Ok(format!(
        "idle_turns {} halts {halts}",
        after.idle_turns - before.idle_turns
    ))
}

fn idle_halts() -> Result<String, String> {
    let core = thread::current_core();
    let before = sched::core_stats(core);
    thread::sleep(Duration::from_millis(100));
    let after = sched::core_stats(core);
    let halted = Duration::from_nanos(after.halted_ns - before.halted_ns);
    let halts = after.halts - before.halts;
    ensure(halted > Duration::from_millis(80), || {
        format!("halted {halted:?}")
    })?;
    ensure(halts < 20, || format!("{halts} halts in 100 ms"))?;
    Ok(format!("halts {halts} halted_ms {}", halted.as_millis()))
}
