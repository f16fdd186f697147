//! What a thread does to itself: park, yield, poll; and how threads begin and
//! end.

use alloc::boxed::Box;
use alloc::string::String;
use core::cell::RefCell;

use tare_hal::cpu;
use tare_hal::fiber::Fiber;
use tare_hal::memory::stack::Stack;
use tare_hal::{PerCpu, clock, smp};
use tare_policy::poller::Poller;

use super::core::SWITCHES;
use super::timers::TimerId;
use super::{CoreStats, INBOXES, Thread, local};
use crate::idle::{self, Work};
use crate::thread::{SpawnError, ThreadId};
use crate::time::Instant;

/// The polling threads of a core, each with its account.
static POLLERS: PerCpu<RefCell<alloc::vec::Vec<(ThreadId, Poller)>>> =
    PerCpu::new([const { RefCell::new(alloc::vec::Vec::new()) }; cpu::MAX]);

/// The thread that calls.
#[inline]
pub fn current() -> Thread {
    local().current()
}

/// The core that runs this thread.
#[inline]
pub fn current_core() -> usize {
    cpu::index()
}

/// How many cores there are.
#[inline]
pub fn cores() -> usize {
    smp::count()
}

/// Blocks until this thread is unparked; may return earlier.
pub fn park() {
    let core = local();
    let thread = core.current();
    if thread.prepare_park() {
        stop_polling(&thread);
        core.block();
        thread.finish_park();
    }
}

/// Blocks until this thread is unparked or `deadline` has passed.
pub fn park_until(deadline: Instant) {
    let core = local();
    let thread = core.current();
    if !thread.prepare_park() {
        return;
    }
    stop_polling(&thread);
    let timer = arm(&thread, deadline);
    core.block();
    disarm(&thread, timer);
    thread.finish_park();
}

/// Lets the other ready threads of this core run.
pub fn yield_now() {
    let core = local();
    core.push_ready(core.current());
    core.block();
}

/// Longest time for which a program runs while other threads of its core are ready.
const PROGRAM_SLICE_NS: u64 = 5_000_000;

/// Before this thread leaves the library OS for a program's code, which no scheduler
/// interrupts: lets the other ready threads of this core run, and has the program
/// interrupted at `limit` and at the next deadline, or soon if threads are ready again by then.
/// `wait` is given what runs the others, to call it; `limit` is called behind that.
pub fn before_program(limit: impl FnOnce() -> Option<Instant>, wait: impl FnOnce(fn())) {
    let core = local();
    core.collect();
    if core.ready_to_work() != 0 {
        wait(yield_now);
    }
    let slice = (core.ready_to_work() != 0).then(|| clock::now_ns() + PROGRAM_SLICE_NS);
    let limit = limit().map(Instant::as_nanos);
    let deadlines = [slice, core.next_deadline_ns(), limit];
    let deadline = deadlines.into_iter().flatten().min();
    core.program_deadline_ns.set(deadline);
    if let Some(deadline_ns) = deadline {
        tare_hal::timer::arm(deadline_ns);
    }
}

/// Whether nothing has become ready since [`before_program`], and the deadline has not passed;
/// called with interrupt handlers off. A timer that fired in between, as it does where the
/// host stops this CPU there, would interrupt no program any more: one that spins would keep
/// the others of its core waiting forever. Until [`after_program`], threads that other cores make
/// ready come with an interrupt, as to a core that halts: a program need not make a call.
pub fn may_run_program() -> bool {
    let core = local();
    if cores() > 1 {
        core.inbox().announce_halt();
    }
    let deadline_ns = core.program_deadline_ns.get();
    !core.inbox().is_filled() && deadline_ns.is_none_or(tare_hal::timer::is_armed)
}

/// Behind a program's run, also one that [`may_run_program`] prevented.
pub fn after_program() {
    if cores() > 1 {
        // How long a program was not interrupted is not a figure of halts.
        let _ = local().inbox().end_halt();
    }
}

/// Lets other threads run and says that this was an idle turn: this thread
/// polls, and found nothing. When all pollers of a core have found nothing for
/// 200 ms and no other thread is ready, the core halts until an interrupt;
/// then each poller gets a turn. What is polled must therefore come with an
/// interrupt or a deadline: [`Thread::unpark`] wakes a parked thread, and no
/// core whose pollers halt.
pub fn yield_idle() {
    let core = local();
    let thread = core.current();
    idle::count_idle_turn();
    with_poller(&thread, |poller| {
        core.pollers.borrow_mut().idle_turn(poller, clock::now_ns());
    });
    core.push_ready(thread);
    core.polling.set(core.polling.get() + 1);
    core.collect();
    let may_halt = core.pollers.borrow().may_halt(core.ready_to_work());
    if may_halt && core.idle.may_halt_pollers() {
        core.idle.wait(core);
        core.pollers.borrow_mut().woken();
    } else {
        cpu::pause();
    }
    core.block();
    core.polling.set(core.polling.get() - 1);
}

/// Says that this thread, a poller, found work: its idle time starts anew.
pub fn active() {
    let core = local();
    with_poller(&core.current(), |poller| {
        core.pollers.borrow_mut().active(poller);
    });
}

/// How a core has spent its time.
///
/// # Panics
/// If there is no such core.
pub fn core_stats(core: usize) -> CoreStats {
    let inbox = &INBOXES[core];
    CoreStats {
        switches: SWITCHES[core].get(),
        inbox: inbox.delivered(),
        ipis_sent: inbox.ipis_sent.get(),
        ipis_skipped: inbox.ipis_skipped.get(),
        ipis_shared: inbox.ipis_shared.get(),
        ..idle::stats(core)
    }
}

/// The running thread, for a dying image: none in an interrupt handler, or in
/// the middle of a switch.
pub(crate) fn running() -> Option<Thread> {
    if cpu::in_interrupt() {
        return None;
    }
    local().try_current()
}

/// Makes what this core has run since it started a thread.
pub(crate) fn adopt(name: &str) {
    let thread = Thread::new(Some(String::from(name)), cpu::index(), Fiber::adopt());
    local().set_current(thread);
}

/// Starts a thread.
pub(crate) fn start(
    name: Option<String>,
    stack_size: usize,
    core: usize,
    body: Box<dyn FnOnce() + Send>,
) -> Result<Thread, SpawnError> {
    if core != cpu::index() && !smp::wait_online(core) {
        return Err(SpawnError::NoSuchCore {
            core,
            cores: cores(),
        });
    }
    let stack = Stack::new(stack_size).ok_or(SpawnError::NoMemory { bytes: stack_size })?;
    let fiber = Fiber::new(stack, body, end);
    let thread = Thread::new(name, core, fiber);
    thread.make_ready();
    Ok(thread)
}

/// Leaves this thread forever. Nothing on its stack may need dropping.
fn end() {
    stop_polling(&current());
    local().block();
}

fn arm(thread: &Thread, deadline: Instant) -> TimerId {
    local()
        .timers
        .borrow_mut()
        .insert(deadline.as_nanos(), thread.clone())
}

/// Takes the timer back unless it was what ended the wait.
fn disarm(thread: &Thread, timer: TimerId) {
    if !thread.take_timed_out() {
        local().timers.borrow_mut().remove(timer);
    }
}

fn with_poller(thread: &Thread, act: impl FnOnce(&mut Poller)) {
    let mut pollers = POLLERS.get().borrow_mut();
    let index = pollers.iter().position(|(id, _)| *id == thread.id());
    let index = index.unwrap_or_else(|| {
        let poller = local().pollers.borrow_mut().join();
        pollers.push((thread.id(), poller));
        pollers.len() - 1
    });
    act(&mut pollers[index].1);
}

/// A thread that blocks or ends no longer polls.
#[inline]
fn stop_polling(thread: &Thread) {
    let mut pollers = POLLERS.get().borrow_mut();
    if pollers.is_empty() {
        return;
    }
    if let Some(index) = pollers.iter().position(|(id, _)| *id == thread.id()) {
        let (_, poller) = pollers.swap_remove(index);
        local().pollers.borrow_mut().leave(poller);
    }
}
