//! From the hal's hands to the application's `main` and back.

use core::fmt::{self, Write};

use tare_abi::exit::GuestExit;
use tare_hal::{cpu, panic, power, smp};

use crate::entry::Termination;
use crate::{idle, logger, sched, thread};

/// Stack of the thread that runs `main`, bytes.
const MAIN_STACK_BYTES: usize = 128 * 1024;

/// Runs `main` in a thread on core 0 while the other cores start, and ends the
/// machine with its status. Called by [`entry!`](crate::entry!) only.
pub fn start<T: Termination + 'static>(main: fn() -> T) -> ! {
    panic::set_describe(describe);
    logger::init();
    idle::init();
    sched::adopt("boot");
    cpu::start_interrupts();
    smp::start(further_core);
    let main = thread::Builder::new()
        .name("main")
        .stack_size(MAIN_STACK_BYTES)
        .spawn(move || {
            crate::devices::start();
            main().status()
        });
    match main {
        Ok(handle) => power::exit(GuestExit::Status(handle.join())),
        Err(error) => panic!("cannot start: {error}"),
    }
}

/// A further core: its first thread only lends its stack to the idle loop.
fn further_core() -> ! {
    sched::adopt("idle");
    cpu::start_interrupts();
    loop {
        thread::park();
    }
}

/// Names the running thread in panics and faults.
fn describe(out: &mut dyn Write) -> fmt::Result {
    match sched::running() {
        Some(thread) => match thread.name() {
            Some(name) => write!(out, " in thread {} '{name}'", thread.id().0),
            None => write!(out, " in thread {}", thread.id().0),
        },
        None => Ok(()),
    }
}
