//! The appliance's one [`Stack`]: its lock, its thread, and waiting.
//!
//! Received frames and timers are the network thread's; what an application
//! writes is sent by the writing thread itself. The lock spins and is never
//! held while a thread switches or waits, and never taken by an interrupt
//! handler: that sets [`WORK`], which wakes the network thread.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use tare_hal::once::OnceCell;
use tare_net::memory::Memory;
use tare_net::stack::Instant as StackInstant;
use tare_net::stack::{Ipv6Setup, Progress, Seeds, Setup, Stack};

use super::device::Device;
use super::waiter::Waiter;
use crate::heap;
use crate::io::{ErrorKind, Result};
use crate::sync::{Event, SpinGuard, SpinLock};
use crate::thread;
use crate::time::Instant;

/// Frames handled under the lock before others may have it.
const BUDGET: usize = 8;

pub(super) type SystemStack = Stack<Device, Waiter>;

static SYSTEM: OnceCell<SpinLock<System>> = OnceCell::new();

/// Frames have come, or the next deadline is nearer than it was.
pub(super) static WORK: Event = Event::new();

struct System {
    stack: SystemStack,
    /// Until when the network thread sleeps; `None` while it is awake, and it
    /// will look at the deadline before it sleeps.
    sleeps_until: Option<Option<StackInstant>>,
}

/// What the command line says of the network.
pub(crate) struct Configuration {
    pub(crate) ipv4: Setup,
    pub(crate) ipv6: Ipv6Setup,
    /// Makes this host's IPv6 addresses.
    pub(crate) ipv6_secret: [u8; 16],
    pub(crate) name_servers: Vec<IpAddr>,
}

impl Configuration {
    /// No network but the loopback.
    pub(crate) const fn loopback_only() -> Self {
        Self {
            ipv4: Setup::LoopbackOnly,
            ipv6: Ipv6Setup::Off,
            ipv6_secret: [0; 16],
            name_servers: Vec::new(),
        }
    }
}

/// How the network thread waits.
#[cfg_attr(not(target_os = "none"), allow(dead_code))] // the host only blocks
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    /// Until an interrupt or a deadline.
    Block,
    /// A thread polls and declares its idle turns.
    Poll,
    /// A thread polls as if every turn had work.
    Spin,
}

/// The heap but for its reserve; the host's is not accounted.
fn memory() -> Memory {
    match heap::stats().total {
        0 => Memory::UNLIMITED,
        total => Memory {
            total,
            has_room: heap::has_room,
        },
    }
}

/// Makes the network of the appliance and starts its threads. Called once, at
/// boot; on the host by the first use, without a device.
pub(crate) fn start(device: Device, setup: Configuration, turns: Turns) {
    let mut secret = [0; 16];
    crate::random::fill(&mut secret);
    let seeds = Seeds {
        general: crate::random::seed(),
        secret,
    };
    let mut stack = Stack::new_in(memory(), device, setup.ipv4, seeds, now());
    stack.set_name_servers(setup.name_servers);
    stack.start_ipv6(setup.ipv6, setup.ipv6_secret, now());
    let system = System {
        stack,
        sleeps_until: None,
    };
    if SYSTEM.set(SpinLock::new(system)).is_ok() {
        spawn("net", serve);
        match turns {
            Turns::Block => {}
            Turns::Poll => spawn("net-poll", poll_and_declare),
            Turns::Spin => spawn("net-spin", poll_for_ever),
        }
    }
}

fn spawn(name: &str, run: fn()) {
    let thread = thread::Builder::new().name(name).spawn(run);
    if let Err(error) = thread {
        log::error!("net: cannot start its thread: {error}");
    }
}

/// The network thread.
fn serve() {
    loop {
        if poll_all() {
            // Those who were woken now run and answer; then their answers'
            // deadlines count, not that of an acknowledgement they carry.
            thread::yield_now();
            if poll_all() {
                continue;
            }
        }
        let deadline = {
            let mut system = system().lock();
            let deadline = system.stack.deadline();
            system.sleeps_until = Some(deadline);
            deadline
        };
        match deadline {
            None => WORK.wait(),
            Some(at) => drop(WORK.wait_until(to_instant(at))),
        }
        system().lock().sleeps_until = None;
    }
}

/// Handles what is there; says whether there was anything.
#[inline(never)] // once in the image
fn poll_all() -> bool {
    let mut any = false;
    loop {
        let mut system = system().lock();
        let frames = system.stack.frames_received();
        let progress = system.stack.poll(now(), BUDGET);
        any |= system.stack.frames_received() != frames;
        drop(system);
        if progress == Progress::Idle {
            return any;
        }
    }
}

fn poll_and_declare() {
    loop {
        if poll_all() {
            thread::active();
            thread::yield_now();
        } else {
            thread::yield_idle();
        }
    }
}

fn poll_for_ever() {
    loop {
        poll_all();
        thread::yield_now();
    }
}

#[inline]
fn system() -> &'static SpinLock<System> {
    loop {
        match SYSTEM.get() {
            Some(system) => return system,
            None => start_without_device(),
        }
    }
}

#[cold]
fn start_without_device() {
    start(
        Device::absent(),
        Configuration::loopback_only(),
        Turns::Block,
    );
}

/// The stack, locked. When let go, wakes the network thread if a deadline is nearer than the one it sleeps for.
pub(super) struct Guard(SpinGuard<'static, System>);

#[inline]
pub(super) fn lock() -> Guard {
    Guard(system().lock())
}

impl core::ops::Deref for Guard {
    type Target = SystemStack;

    fn deref(&self) -> &SystemStack {
        &self.0.stack
    }
}

impl core::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut SystemStack {
        &mut self.0.stack
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if let Some(until) = self.0.sleeps_until {
            wake_for_deadline(&self.0.stack, until);
        }
    }
}

/// Wakes the network thread, which sleeps `until` then, if a deadline is nearer.
fn wake_for_deadline(stack: &SystemStack, until: Option<StackInstant>) {
    if let Some(deadline) = stack.deadline()
        && until.is_none_or(|until| deadline < until)
    {
        WORK.set();
    }
}

/// What a waiting call does with the stack.
pub(super) trait Attempt {
    /// The call's result.
    type Output;

    /// Tries; `WouldBlock` means later.
    fn attempt(&mut self, stack: &mut SystemStack, now: StackInstant) -> Result<Self::Output>;

    /// Asks to be woken when trying may help.
    fn register(&self, stack: &mut SystemStack, waiter: Waiter);

    /// Takes that back.
    fn cancel(&self, stack: &mut SystemStack, waiter: &Waiter);
}

/// Tries until it is done or `timeout` has passed.
pub(super) fn wait_for<A: Attempt>(timeout: Option<Duration>, mut call: A) -> Result<A::Output> {
    let mut waiting: Option<(Waiter, Option<Instant>)> = None;
    loop {
        let mut stack = lock();
        let result = call.attempt(&mut stack, now());
        let would_block = matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock);
        if !would_block || timeout == Some(Duration::ZERO) {
            if let Some((waiter, _)) = &waiting {
                call.cancel(&mut stack, waiter);
            }
            return result;
        }
        let (waiter, deadline) = waiting.get_or_insert_with(|| {
            let deadline = timeout.map(|timeout| Instant::now() + timeout);
            (Waiter::Thread(thread::current()), deadline)
        });
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            call.cancel(&mut stack, waiter);
            return Err(ErrorKind::TimedOut.into());
        }
        call.register(&mut stack, waiter.clone());
        drop(stack);
        match deadline {
            None => thread::park(),
            Some(deadline) => thread::park_until(*deadline),
        }
    }
}

pub(super) fn now() -> StackInstant {
    StackInstant::from_micros((Instant::now().as_nanos() / 1000) as i64)
}

/// The first point at which `now` is not before `at`.
fn to_instant(at: StackInstant) -> Instant {
    Instant::from_nanos(at.total_micros().max(0) as u64 * 1000)
}
