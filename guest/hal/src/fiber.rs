//! Fibers: suspended computations with a stack, and the switch between them.
//! The scheduler in `libos` decides which runs; this only makes switching safe:
//! a fiber runs on the CPU that first ran it, never twice, and not after its end.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::cpu::MAX;
use crate::memory::stack::Stack;
use crate::percpu;

const SUSPENDED: u8 = 0;
const RUNNING: u8 = 1;
const FINISHED: u8 = 2;
const ANY_CPU: usize = usize::MAX;

/// What a fiber runs.
pub type Body = Box<dyn FnOnce() + Send>;

/// What a fiber does when its body has returned: find another fiber and
/// [`switch`] to it. Nothing that needs dropping may be on the stack then.
pub type End = fn();

/// A handle to a fiber. Cheap to clone.
#[derive(Clone)]
pub struct Fiber {
    inner: Arc<Inner>,
}

struct Inner {
    state: AtomicU8,
    /// The CPU that runs it, once one has.
    cpu: AtomicUsize,
    /// Saved stack pointer while it is suspended.
    rsp: UnsafeCell<u64>,
    stack: Option<Stack>,
    /// What to run, until it runs.
    body: UnsafeCell<Option<Body>>,
    end: End,
}

// SAFETY: 1. `claim` lets one CPU only move a fiber between SUSPENDED and RUNNING (`Inner::cpu`).
//    2. Only that CPU touches `rsp` and `body`, in `switch` and `run_fiber`; both run outside
//    interrupt handlers. 3. The other fields are atomics or do not change.
unsafe impl Sync for Inner {}
// SAFETY: 1. A body is `Send`, so that the CPU that begins a fiber may be another than its maker's.
//    2. A fiber that has begun stays on its CPU (`claim`). 3. Dropping it elsewhere touches no
//    frame of its stack (`Drop`).
unsafe impl Send for Inner {}

/// The fibers of one CPU. On their own cache lines, two for the prefetcher that loads pairs:
/// each switch writes them.
#[repr(align(128))]
struct Slots {
    /// The one that runs, once the CPU has adopted one.
    current: UnsafeCell<Option<Fiber>>,
    /// The one that was left last; the next one releases it.
    previous: UnsafeCell<Option<Fiber>>,
}

// SAFETY: 1. `slots` gives each CPU its own entry only, and a fiber stays on its CPU. 2. Interrupt
//    handlers do not switch (`switch` asserts it), so that no two uses on a CPU are interleaved.
unsafe impl Sync for Slots {}

static SLOTS: [Slots; MAX] = [const {
    Slots {
        current: UnsafeCell::new(None),
        previous: UnsafeCell::new(None),
    }
}; MAX];

/// This CPU's fibers.
#[inline(always)]
fn slots() -> &'static Slots {
    &SLOTS[percpu::index()]
}

impl Fiber {
    /// A fiber that will run `body`, then `end`, on `stack` when first
    /// switched to.
    pub fn new(stack: Stack, body: Body, end: End) -> Self {
        // What `switch_stacks` pops: six registers, then the address to go to.
        let mut frame = [0; 9];
        frame[6] = start_fiber as *const () as u64;
        let rsp = stack.top() - size_of_val(&frame) as u64;
        // SAFETY: 1. `Stack` maps whole pages, at least one, and its top is the end of the last:
        //    the frame lies within and is aligned to 8. 2. The stack is owned by this function and
        //    runs nothing yet, so that no reference to these bytes exists.
        unsafe { (rsp as *mut [u64; 9]).write(frame) };
        Self {
            inner: Arc::new(Inner {
                state: AtomicU8::new(SUSPENDED),
                cpu: AtomicUsize::new(ANY_CPU),
                rsp: UnsafeCell::new(rsp),
                stack: Some(stack),
                body: UnsafeCell::new(Some(body)),
                end,
            }),
        }
    }

    /// Makes what this CPU has run since it started a fiber.
    pub fn adopt() -> Self {
        let fiber = Self {
            inner: Arc::new(Inner {
                state: AtomicU8::new(RUNNING),
                cpu: AtomicUsize::new(percpu::index()),
                rsp: UnsafeCell::new(0),
                stack: None,
                body: UnsafeCell::new(None),
                end: || {},
            }),
        };
        let current = slots().current.get();
        // SAFETY: 1. Only this CPU uses its cell. 2. No other reference to it is held.
        let current = unsafe { &mut *current };
        assert!(current.is_none(), "this CPU has adopted a fiber already");
        *current = Some(fiber.clone());
        fiber
    }

    /// Whether this is the fiber that runs on this CPU.
    #[inline]
    pub fn is_current(&self) -> bool {
        // SAFETY: 1. Only this CPU uses its cell (`slots`). 2. The reference ends before the next
        //    switch: an interrupt handler may call this, and does not switch.
        let current = unsafe { (*slots().current.get()).as_ref() };
        current.is_some_and(|fiber| Arc::ptr_eq(&fiber.inner, &self.inner))
    }

    fn claim(&self) {
        let inner = &self.inner;
        let here = percpu::index();
        let cpu = inner.cpu.load(Ordering::Relaxed);
        assert!(
            cpu == here || (cpu == ANY_CPU && self.bind(here)),
            "a fiber of CPU {cpu} cannot run on CPU {here}"
        );
        let state = inner.state.load(Ordering::Relaxed);
        assert!(state == SUSPENDED, "the fiber is not suspended");
        inner.state.store(RUNNING, Ordering::Relaxed);
    }

    /// Binds a fiber that has not run to this CPU.
    #[cold]
    fn bind(&self, here: usize) -> bool {
        self.inner
            .cpu
            .compare_exchange(ANY_CPU, here, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let begun = self.body.get_mut().is_none();
        let finished = *self.state.get_mut() == FINISHED;
        if let Some(stack) = self.stack.take()
            && (finished || !begun)
        {
            stack.recycle();
        }
        // A stack with live frames is leaked: others may borrow from it.
    }
}

/// Suspends the running fiber and runs `to`; returns when another fiber switches
/// back. Does nothing if `to` is the running fiber.
///
/// # Panics
/// In an interrupt handler, if `to` belongs to another CPU, or has finished.
#[inline]
pub fn switch(to: Fiber) {
    if to.is_current() {
        return;
    }
    assert!(
        percpu::current().interrupt_depth.get() == 0,
        "interrupt handlers cannot switch fibers"
    );
    to.claim();
    // SAFETY: 1. `claim` has made the fiber this CPU's. 2. It does not run, and only a switch on
    //    this CPU writes the word.
    let to_rsp = unsafe { *to.inner.rsp.get() };
    let slots = slots();
    // SAFETY: 1. Only this CPU uses its cell (`slots`). 2. No other reference is held: those of
    //    `is_current` have ended, and interrupt handlers do not switch.
    let current = unsafe { &mut *slots.current.get() };
    let Some(from) = current.replace(to) else {
        panic!("this CPU has not adopted a fiber");
    };
    if from.inner.state.load(Ordering::Relaxed) == RUNNING {
        from.inner.state.store(SUSPENDED, Ordering::Relaxed);
    }
    let from_rsp = from.inner.rsp.get();
    // SAFETY: 1. Only this CPU uses its cell (`slots`). 2. No reference to it is held:
    //    `release_previous` has emptied it after the last switch.
    unsafe { *slots.previous.get() = Some(from) };
    // SAFETY: 1. Both fibers live until the switch is over: `current` and `previous` hold
    //    them. 2. `to_rsp` is what a switch saved or a new fiber's stack begins with.
    unsafe { switch_stacks(from_rsp, to_rsp) };
    release_previous();
}

/// Marks the running fiber: the next switch leaves it forever, and its stack
/// is used again. Gives what it does last.
fn finish() -> Option<End> {
    // SAFETY: 1. Only this CPU uses its cell (`slots`). 2. The reference ends before `end`
    //    switches.
    let fiber = unsafe { (*slots().current.get()).as_ref() }?;
    fiber.inner.state.store(FINISHED, Ordering::Relaxed);
    Some(fiber.inner.end)
}

/// The guard page of the running fiber's stack, if it has one.
pub(crate) fn current_guard() -> Option<Range<u64>> {
    // SAFETY: 1. Only this CPU uses its cell (`slots`). 2. It is called by the fault handler,
    //    behind which nothing runs: a fault between two instructions of `switch` sees one fiber or
    //    the other.
    let fiber = unsafe { (*slots().current.get()).as_ref() }?;
    Some(fiber.inner.stack.as_ref()?.guard())
}

/// Drops the reference to the fiber that was left.
fn release_previous() {
    // SAFETY: 1. Only this CPU uses its cell (`slots`). 2. The switch is over: the fiber that was
    //    left has saved its registers, and its stack is used no more.
    drop(unsafe { (*slots().previous.get()).take() });
}

extern "C" fn run_fiber() -> ! {
    release_previous();
    // SAFETY: 1. Only this CPU uses its cell (`slots`). 2. The reference ends before the body runs,
    //    which may switch.
    let fiber = unsafe { (*slots().current.get()).as_ref() };
    // SAFETY: 1. The fiber runs on this CPU and is this one: only `run_fiber` touches a body after
    //    `Fiber::new`. 2. The reference ends here, before the body runs.
    let body = fiber.and_then(|fiber| unsafe { (*fiber.inner.body.get()).take() });
    if let Some(body) = body {
        body();
    }
    if let Some(end) = finish() {
        end();
    }
    panic!("a fiber was continued after its end");
}

#[unsafe(naked)]
extern "C" fn start_fiber() -> ! {
    // `switch_stacks` returns here with the stack 16-byte aligned.
    naked_asm!(
        "xor ebp, ebp",
        "call {run}",
        "ud2",
        run = sym run_fiber,
    )
}

/// Saves the callee-saved registers and the stack pointer at `from`, and
/// continues where `to` was saved (System V ABI, 3.2.1).
#[unsafe(naked)]
unsafe extern "C" fn switch_stacks(from: *mut u64, to: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}
