//! The end by a panic: message, thread, backtrace, exit.

#![allow(unsafe_code)]

use core::fmt::{self, Write};
use core::panic::PanicInfo;

use tare_abi::exit::GuestExit;

use crate::memory::image::Image;
use crate::once::OnceCell;
use crate::{memory, percpu, power, serial};

/// Frames printed at most.
const MAX_FRAMES: usize = 32;

/// Writes what runs on this core, such as ` in thread 3 'net'`.
pub type Describe = fn(&mut dyn Write) -> fmt::Result;

static DESCRIBE: OnceCell<Describe> = OnceCell::new();

/// Sets how panics and faults name the running thread.
pub fn set_describe(describe: Describe) {
    DESCRIBE.set(describe).ok();
}

pub(crate) fn describe_thread(out: &mut serial::Raw) {
    if let Some(describe) = DESCRIBE.get() {
        describe(out).ok();
    }
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    if percpu::current().dying.replace(true) {
        serial::write_str_raw("\npanic while reporting a panic\n");
    } else {
        let mut console = serial::Raw;
        write!(console, "\npanic: {}", info.message()).ok();
        if let Some(location) = info.location() {
            write!(console, ", at {location}").ok();
        }
        write!(console, ", on core {}", percpu::index()).ok();
        describe_thread(&mut console);
        writeln!(console).ok();
        backtrace(&mut console, 0, frame_pointer());
    }
    power::exit(GuestExit::Panic)
}

#[inline(always)]
fn frame_pointer() -> u64 {
    let rbp: u64;
    // SAFETY: 1. The instruction reads a register and changes nothing. 2. Images are built with
    //    frame pointers; `backtrace` checks the value all the same.
    unsafe {
        core::arch::asm!("mov {}, rbp", out(reg) rbp, options(nomem, nostack, preserves_flags))
    };
    rbp
}

/// Prints the return addresses on the stack by its frame pointers; `rip` is
/// printed first unless it is 0. Stops at the first address that is not a frame.
pub(crate) fn backtrace(out: &mut serial::Raw, rip: u64, mut frame: u64) {
    let text = Image::sections().text;
    let mut print = |address: u64| writeln!(out, "  at {address:#x}").ok();
    if rip != 0 {
        print(rip);
    }
    for _ in 0..MAX_FRAMES {
        if !memory::may_be_stack(frame) {
            return;
        }
        // SAFETY: 1. `may_be_stack` has checked that the address is a multiple of 8 and that both
        //    words lie in RAM below the devices or in the window of stacks. 2. Any two words are
        //    valid. 3. What is not mapped there (a guard page, ring 0's memory for ring 3, low
        //    memory of programs) faults, and the image ends with the line "fault while reporting a
        //    fault".
        let [next, address] = unsafe { *(frame as *const [u64; 2]) };
        if !text.contains(&address) {
            return;
        }
        print(address);
        if next <= frame {
            return;
        }
        frame = next;
    }
}
