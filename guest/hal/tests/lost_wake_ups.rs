//! The code of `cpu::flag` and `cpu::doorbell` itself, in all interleavings of a CPU with
//! devices and other CPUs, by loom.
//!
//! A CPU is a thread. Whoever interrupts it, another thread, raises a line of its interrupt
//! controller; before each access of the CPU's code to its own area the lines are looked at,
//! and what is raised is delivered there, as between two instructions. A CPU that halts
//! without hope is a deadlock, which loom reports. What entry code in assembly does
//! (`ring::gate`, `trap::entry`) is played here; `interrupt_flag.rs` has each of its
//! instructions.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Mutex, Notify};
use loom::thread;

mod atomics {
    pub(crate) use loom::sync::atomic::Ordering;

    /// A flag whose stores are exchanges: loom leaves the order of two stores open where no
    /// fence tells it, and so lets a load see the earlier one behind the later. Loads may be
    /// late all the same.
    #[derive(Debug)]
    pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.0.swap(value, order);
        }

        pub(crate) fn compare_exchange(
            &self,
            old: bool,
            new: bool,
            success: Ordering,
            failure: Ordering,
        ) -> Result<bool, bool> {
            self.0.compare_exchange(old, new, success, failure)
        }
    }

    thread_local! {
        /// Whether fences do nothing: a fault that the model must find.
        pub(crate) static WITHOUT_FENCES: std::cell::Cell<bool> =
            const { std::cell::Cell::new(false) };
    }

    pub(crate) fn fence(order: Ordering) {
        if !WITHOUT_FENCES.get() {
            loom::sync::atomic::fence(order);
        }
    }
}
#[path = "../src/cpu/doorbell.rs"]
#[allow(unreachable_pub)]
mod doorbell;
#[path = "../src/cpu/flag.rs"]
mod flag;

use atomics::{AtomicBool, WITHOUT_FENCES};
use doorbell::Doorbell;
use flag::Area;

/// Times that loom takes one thread away for another where it need not, with devices, and with
/// CPUs that wake each other: the fault of [`Announces::Before`] needs three.
const PREEMPTIONS: usize = 2;
const PREEMPTIONS_OF_CPUS: usize = 3;

/// The interrupt controller of a CPU.
struct Lines {
    raised: AtomicU64,
    woken: Notify,
}

impl Lines {
    fn new() -> Self {
        Self {
            raised: AtomicU64::new(0),
            woken: Notify::new(),
        }
    }

    fn raise(&self, bit: u32) {
        self.raised.fetch_or(1 << bit, Ordering::AcqRel);
        self.woken.notify();
    }
}

/// Faults in what is played, which the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The halt gate does not look at what is pending.
    HaltsWithoutLook,
    /// A vector that finds the flag off is not noted.
    ForgetsVector,
    /// Entry code leaves the flag on.
    LeavesFlagOn,
}

/// A CPU, for the thread that plays it.
struct Cpu<'a> {
    lines: &'a Lines,
    handler: &'a dyn Fn(u32),
    is_on: Cell<bool>,
    pending: Cell<u64>,
    /// Delivered while it was pending already.
    merged: Cell<u32>,
    /// Delivered and not ended, where the controller waits for ends.
    in_service: Cell<u64>,
    /// The controller ends interrupts when it delivers them.
    ends_early: bool,
    /// Handlers that are running; how many ran.
    depth: Cell<u32>,
    handled: Cell<u32>,
    fault: Fault,
}

impl<'a> Cpu<'a> {
    fn new(lines: &'a Lines, ends_early: bool, fault: Fault, handler: &'a dyn Fn(u32)) -> Self {
        Self {
            lines,
            handler,
            is_on: Cell::new(true),
            pending: Cell::new(0),
            merged: Cell::new(0),
            in_service: Cell::new(0),
            ends_early,
            depth: Cell::new(0),
            handled: Cell::new(0),
            fault,
        }
    }

    /// Takes the line that the controller delivers next, if there is one.
    fn next_line(&self) -> Option<u32> {
        // One that changes nothing reads the newest value, as a controller has it.
        let raised = self.lines.raised.fetch_or(0, Ordering::AcqRel);
        let bit = raised.checked_ilog2()?;
        let is_free = self.in_service.get() >> bit == 0;
        is_free.then(|| {
            self.lines.raised.fetch_and(!(1 << bit), Ordering::AcqRel);
            if !self.ends_early {
                self.in_service.set(self.in_service.get() | 1 << bit);
            }
            bit
        })
    }

    /// What entry code does with a vector that finds the flag off.
    fn note(&self, bit: u32) {
        if self.fault == Fault::ForgetsVector {
            return;
        }
        if self.pending.get() & 1 << bit != 0 {
            self.merged.set(self.merged.get() + 1);
        }
        self.pending.set(self.pending.get() | 1 << bit);
    }

    /// An end is of the highest vector in service, whichever was handled.
    fn end(&self) {
        if let Some(highest) = self.in_service.get().checked_ilog2() {
            self.in_service.set(self.in_service.get() & !(1 << highest));
        }
    }

    /// Between two instructions.
    fn may_be_interrupted(&self) {
        while let Some(bit) = self.next_line() {
            let was_on = self.is_on.get();
            self.is_on.set(was_on && self.fault == Fault::LeavesFlagOn);
            if was_on {
                flag::arrived(self, bit);
            } else {
                self.note(bit);
            }
        }
    }

    /// The halt gate. It lets interrupts in only as it halts; its first look is not separated
    /// from the halt.
    fn wait(&self) {
        assert!(!self.is_on.get(), "halts with handlers on");
        self.may_be_interrupted();
        if self.pending.get() != 0 && self.fault != Fault::HaltsWithoutLook {
            return;
        }
        loop {
            if let Some(bit) = self.next_line() {
                self.note(bit);
                return;
            }
            self.lines.woken.wait();
        }
    }

    fn halt_if(&self, may_halt: impl FnOnce() -> bool) {
        flag::halt_if(self, || self.wait(), may_halt);
        assert!(self.is_on.get(), "goes on with handlers off");
    }

    /// What `cpu::disable_interrupts` and `cpu::restore_interrupts` do around a lock.
    fn without_handlers<R>(&self, act: impl FnOnce() -> R) -> R {
        let was_on = flag::disable(self);
        let result = act();
        if was_on {
            flag::enable(self);
        }
        result
    }
}

impl Area for Cpu<'_> {
    fn is_on(&self) -> bool {
        self.may_be_interrupted();
        self.is_on.get()
    }

    fn set(&self, on: bool) {
        self.may_be_interrupted();
        self.is_on.set(on);
    }

    fn pending(&self) -> u64 {
        self.may_be_interrupted();
        self.pending.get()
    }

    fn take_pending(&self) -> u64 {
        self.may_be_interrupted();
        self.pending.take()
    }

    fn handle(&self, bit: u32) {
        assert!(!self.is_on.get(), "a handler runs with handlers on");
        self.depth.set(self.depth.get() + 1);
        assert_eq!(self.depth.get(), 1, "a handler interrupts another");
        self.may_be_interrupted();
        (self.handler)(bit);
        self.end();
        self.may_be_interrupted();
        self.depth.set(self.depth.get() - 1);
        self.handled.set(self.handled.get() + 1);
    }

    fn end_merged(&self) {
        self.may_be_interrupted();
        let merged = self.merged.take();
        (0..merged).for_each(|_| self.end());
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Devices finish requests and interrupt; the CPU works on what they finished, and halts while
/// there is nothing. `devices` has the vector and the requests of each.
fn devices_and_a_cpu(ends_early: bool, fault: Fault, devices: &'static [(u32, u64)]) {
    check(PREEMPTIONS, move || {
        let lines = Arc::new(Lines::new());
        let finished = Arc::new(AtomicU64::new(0));
        let all: u64 = devices.iter().map(|(_, requests)| requests).sum();
        for (bit, requests) in devices {
            let (lines, finished) = (lines.clone(), finished.clone());
            thread::spawn(move || {
                for _ in 0..*requests {
                    finished.fetch_add(1, Ordering::AcqRel);
                    lines.raise(*bit);
                }
            });
        }
        let (work, is_in_section) = (Cell::new(0), Cell::new(false));
        let handler = |_| {
            assert!(!is_in_section.get(), "a handler runs in a critical section");
            work.set(work.get() + finished.swap(0, Ordering::AcqRel));
        };
        let cpu = Cpu::new(&lines, ends_early, fault, &handler);
        let mut done = 0;
        while done < all {
            cpu.halt_if(|| work.get() == 0);
            done += cpu.without_handlers(|| {
                is_in_section.set(true);
                let work = work.take();
                is_in_section.set(false);
                work
            });
        }
        assert_eq!(done, all);
        assert!(cpu.handled.get() > 0);
        assert_eq!(cpu.in_service.get(), 0, "an interrupt is never ended");
    });
}

/// One device that interrupts twice by one vector, and two of different priority.
const ONE: &[(u32, u64)] = &[(0, 2)];
const TWO: &[(u32, u64)] = &[(0, 1), (1, 1)];

#[test]
fn a_halted_cpu_sees_each_interrupt() {
    for ends_early in [false, true] {
        for devices in [ONE, TWO] {
            devices_and_a_cpu(ends_early, Fault::None, devices);
        }
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_halt_without_a_look_is_found() {
    devices_and_a_cpu(true, Fault::HaltsWithoutLook, ONE);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_vector_that_is_not_noted_is_found() {
    devices_and_a_cpu(true, Fault::ForgetsVector, ONE);
}

#[test]
#[should_panic(expected = "handlers on")]
fn entry_code_that_leaves_the_flag_on_is_found() {
    devices_and_a_cpu(true, Fault::LeavesFlagOn, ONE);
}

/// Vector of wake-ups, and of a device whose handler leaves work for its own CPU.
const WAKE: u32 = 1;
const DEVICE: u32 = 0;

/// What CPUs and handlers leave for a CPU.
struct Inbox {
    threads: Mutex<Vec<u32>>,
    bell: Doorbell,
    lines: Lines,
}

impl Inbox {
    fn new() -> Self {
        Self {
            threads: Mutex::new(Vec::new()),
            bell: Doorbell::new(AtomicBool::new(false), AtomicBool::new(false)),
            lines: Lines::new(),
        }
    }

    fn leave(&self, thread: u32) {
        let mut threads = self.threads.lock().unwrap();
        threads.push(thread);
        self.bell.fill();
    }
}

/// When the CPU announces a halt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announces {
    WithInterruptsOff,
    /// A fault that the model must find, as it did: an interrupt in between takes the announcement
    /// back, and the CPU halts.
    Before,
}

/// Two CPUs, or one and a device, leave work for a CPU that halts. A CPU that leaves some
/// interrupts only if it must.
fn wakers_and_a_cpu(with_device: bool, announces: Announces) {
    check(PREEMPTIONS_OF_CPUS, move || {
        let inbox = Arc::new(Inbox::new());
        let waker = |thread| {
            let inbox = inbox.clone();
            move || {
                inbox.leave(thread);
                if inbox.bell.ring() {
                    inbox.lines.raise(WAKE);
                }
            }
        };
        thread::spawn(waker(1));
        if with_device {
            let inbox = inbox.clone();
            thread::spawn(move || inbox.lines.raise(DEVICE));
        } else {
            thread::spawn(waker(2));
        }
        let handler = |bit| {
            if bit == DEVICE {
                inbox.leave(2);
            }
        };
        let cpu = Cpu::new(&inbox.lines, true, Fault::None, &handler);
        let taken = RefCell::new(Vec::new());
        while taken.borrow().len() < 2 {
            if inbox.bell.is_filled() {
                cpu.without_handlers(|| {
                    let mut threads = inbox.threads.lock().unwrap();
                    inbox.bell.empty();
                    taken.borrow_mut().append(&mut threads);
                });
                continue;
            }
            if announces == Announces::Before {
                inbox.bell.announce_halt();
            }
            cpu.halt_if(|| {
                if announces == Announces::WithInterruptsOff {
                    inbox.bell.announce_halt();
                }
                !inbox.bell.is_filled()
            });
            inbox.bell.end_halt();
        }
        let mut taken = taken.into_inner();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn a_cpu_that_halts_gets_all_that_others_leave() {
    wakers_and_a_cpu(false, Announces::WithInterruptsOff);
}

#[test]
fn a_cpu_that_halts_gets_what_its_own_handlers_leave() {
    wakers_and_a_cpu(true, Announces::WithInterruptsOff);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_doorbell_without_fences_is_found() {
    WITHOUT_FENCES.set(true);
    wakers_and_a_cpu(false, Announces::WithInterruptsOff);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_halt_that_is_announced_too_early_is_found() {
    wakers_and_a_cpu(false, Announces::Before);
}
