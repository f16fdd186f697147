//! Interrupts: all at depth 1, few at depth 32, flushes at once, and none held
//! beyond its deadline.

use std::cell::Cell;

use tare_policy::coalesce::Parameters;

use super::*;

const EPOCH_NS: u64 = 10_000_000;
const EVENT_IDX: u64 = 1 << 29;

/// A device whose completions the test lets pass one by one.
struct Bench {
    machine: MockMachine<Blk>,
    gate: Arc<Mutex<Gate>>,
    clock: TestClock,
    next: Cell<u64>,
}

impl Bench {
    fn new() -> Self {
        Self::with_queues(1)
    }

    fn with_queues(queues: u16) -> Self {
        let file = file();
        let gate = Arc::<Mutex<Gate>>::default();
        let engine = Held {
            engine: SyncIoEngine::new(file.try_clone().unwrap()),
            gate: Arc::clone(&gate),
        };
        let clock = TestClock::default();
        let short_epochs = Parameters {
            epoch_ns: EPOCH_NS,
            ..Parameters::default()
        };
        let automatic = BlkSettings {
            coalesce: Settings::new(short_epochs).unwrap(),
            queues,
            ..settings()
        };
        let disk = disk(&file, Access::ReadWrite);
        let device = Blk::new(automatic, disk, Box::new(engine), Box::new(clock.clone()));
        Self {
            machine: MockMachine::new(device),
            gate,
            clock,
            next: Cell::new(0),
        }
    }

    fn offer(&self, ring: &mut DriverRing<'_>, kind: u32) {
        self.offer_on(0, ring, kind);
    }

    fn offer_on(&self, queue: u16, ring: &mut DriverRing<'_>, kind: u32) {
        let slot = self.next.replace(self.next.get() + 1) % 64;
        let len = if kind == 4 { 0 } else { 512 };
        Wanted {
            data: DATA + slot * 512,
            status: STATUS + slot * 0x20,
            ..Wanted::new(kind, slot, len)
        }
        .offer(&self.machine, ring);
        let _ = self.machine.io(|device| device.notified(queue));
    }

    /// One completion after `ns`; the number of interrupts that it caused.
    fn complete(&self, ring: &mut DriverRing<'_>, ns: u64) -> usize {
        self.clock.0.fetch_add(ns, Ordering::Relaxed);
        self.gate.lock().unwrap().open = 1;
        let _ = self.machine.io(|device| device.backend_ready());
        assert!(ring.take_used().is_some(), "nothing was completed");
        self.interrupts()
    }

    fn interrupts(&self) -> usize {
        take(&self.machine.recorder.signals).len()
    }

    /// Interrupts for `count` completions, `depth` in flight, at 100,000 a
    /// second, after the load has lasted for six epochs.
    fn steady(&self, ring: &mut DriverRing<'_>, depth: usize, count: usize) -> usize {
        for _ in 0..depth {
            self.offer(ring, 0);
        }
        let mut interrupts = 0;
        let warm_up = (6 * EPOCH_NS / 10_000) as usize;
        let mut completed = 0;
        for n in 0..warm_up + count {
            let caused = self.complete(ring, 10_000);
            completed += 1;
            if n >= warm_up {
                interrupts += caused;
            }
            // The driver submits again for each completion that an interrupt reported.
            if caused > 0 {
                ring.set_used_event(ring.used_index());
                (0..std::mem::take(&mut completed)).for_each(|_| self.offer(ring, 0));
            }
        }
        (0..completed).for_each(|_| self.offer(ring, 0));
        interrupts
    }
}

#[test]
fn at_depth_1_every_completion_interrupts() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES, 128);
    assert_eq!(bench.steady(&mut rings[0], 1, 500), 500);
    assert_eq!(bench.machine.counter("interrupts_held"), 0);
}

#[test]
fn at_depth_32_one_completion_in_four_interrupts() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES, 128);
    let interrupts = bench.steady(&mut rings[0], 32, 4_000);
    assert!((990..=1010).contains(&interrupts), "{interrupts} of 4000");
    let counter = |name: &str| bench.machine.counter(name);
    assert!(counter("coalesce_r0250_completions") > 0);
    // Nothing else ended a wait; the last may go on.
    let waits = counter("coalesce_held") - counter("coalesce_released_ratio");
    assert!(waits <= 3, "{waits}");
}

#[test]
fn the_mean_depth_is_the_requests_in_flight_per_completion() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES, 128);
    bench.steady(&mut rings[0], 3, 4_000);
    let completions = bench.machine.counter("coalesce_completions");
    assert_eq!(bench.machine.counter("in_flight_sum"), 3 * completions);
}

/// An fsync writes on one CPU's queue and may flush on another's.
#[test]
fn a_flush_makes_the_writes_of_other_queues_urgent() {
    for (flushes, caused) in [(true, 3), (false, 1)] {
        let bench = Bench::with_queues(2);
        let mut rings = Driver::new(&bench.machine).start(FEATURES | 1 << 12, 128);
        let [first, second] = &mut rings[..] else {
            panic!("two queues");
        };
        bench.steady(first, 32, 100);
        if flushes {
            bench.offer_on(1, second, 4);
        }
        bench.gate.lock().unwrap().open = 32 + usize::from(flushes);
        let _ = bench.machine.io(|device| device.backend_ready());
        while first.take_used().is_some() {}
        bench.interrupts();
        // Few writes before the reads that keep the queue deep.
        for kind in [1, 1, 1, 0, 0, 0, 0, 0] {
            bench.offer(first, kind);
        }
        // They take as long as those before them.
        bench.clock.0.fetch_add(320_000, Ordering::Relaxed);
        let found: usize = (0..3).map(|_| bench.complete(first, 1_000)).sum();
        assert_eq!(found, caused, "flushes: {flushes}");
    }
}

#[test]
fn a_flush_among_deep_reads_interrupts_at_once() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES, 128);
    bench.steady(&mut rings[0], 32, 100);
    // 32 reads before it: it comes last, in order.
    bench.offer(&mut rings[0], 4);
    for _ in 0..32 {
        bench.complete(&mut rings[0], 10_000);
        bench.offer(&mut rings[0], 0);
    }
    assert_eq!(bench.complete(&mut rings[0], 10_000), 1);
    assert!(bench.machine.counter("coalesce_delivered_urgent") > 0);
}

#[test]
fn what_is_held_is_delivered_at_its_deadline() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES, 128);
    let deadline = || bench.machine.io(|device| device.deadline_ns());
    bench.steady(&mut rings[0], 32, 100);
    while bench.complete(&mut rings[0], 10_000) > 0 {
        assert_eq!(deadline(), None, "nothing held, no timer");
        bench.offer(&mut rings[0], 0);
    }
    let now_ns = bench.clock.now_ns();
    let due_ns = deadline().unwrap();
    assert!((now_ns + 1..=now_ns + 1_000_000).contains(&due_ns));
    bench.clock.0.store(due_ns - 1, Ordering::Relaxed);
    bench.machine.io(|device| device.deadline_passed());
    assert_eq!(bench.interrupts(), 0);
    bench.clock.0.store(due_ns, Ordering::Relaxed);
    bench.machine.io(|device| device.deadline_passed());
    assert_eq!(bench.interrupts(), 1);
    assert_eq!(deadline(), None);
    assert_eq!(bench.machine.counter("coalesce_expiries"), 1);
    assert!(bench.machine.counter("coalesce_released_deadline") > 0);
}

#[test]
fn the_drivers_own_wish_covers_what_was_held() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES | EVENT_IDX, 128);
    rings[0].set_used_event(0);
    bench.steady(&mut rings[0], 32, 100);
    // The driver wants to hear of the next completion, which is a held one.
    bench.machine.io(|device| device.deadline_passed());
    rings[0].set_used_event(rings[0].used_index());
    let mut completions = 1;
    while bench.complete(&mut rings[0], 10_000) == 0 {
        bench.offer(&mut rings[0], 0);
        completions += 1;
    }
    assert!((1..=4).contains(&completions), "{completions}");
}

#[test]
fn changed_settings_let_go_what_was_held() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES, 128);
    bench.steady(&mut rings[0], 32, 100);
    while bench.complete(&mut rings[0], 10_000) > 0 {
        bench.offer(&mut rings[0], 0);
    }
    let off = Settings::with_mode(Mode::Off);
    bench
        .machine
        .io(|device| device.device_mut().set_coalescing(off));
    let _ = bench.machine.io(|device| device.notified(0));
    assert_eq!(bench.interrupts(), 1);
    assert_eq!(bench.complete(&mut rings[0], 10_000), 1);
}

#[test]
fn the_settings_in_force_let_nothing_go() {
    let bench = Bench::new();
    let mut rings = Driver::new(&bench.machine).start(FEATURES, 128);
    bench.steady(&mut rings[0], 32, 100);
    while bench.complete(&mut rings[0], 10_000) > 0 {
        bench.offer(&mut rings[0], 0);
    }
    // As for another change of the disk's rules, such as its limits.
    bench.machine.io(|device| {
        let disk = device.device_mut();
        disk.set_coalescing(disk.coalescing());
    });
    let _ = bench.machine.io(|device| device.notified(0));
    assert_eq!(bench.interrupts(), 0);
}
