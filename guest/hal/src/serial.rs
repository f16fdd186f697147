//! The first serial port, output only, polled. Each port access costs an
//! exit, so the driver checks the transmitter once for every sixteen bytes,
//! which is what its FIFO takes.

#![allow(unsafe_code)]

use core::fmt::{self, Write};

use tare_abi::ports::COM1;
use x86_64::instructions::port::Port;

use crate::cpu;
use crate::lock::IrqLock;

const FIFO_BYTES: usize = 16;
const FIFO_CONTROL: u16 = COM1 + 2;
const LINE_STATUS: u16 = COM1 + 5;
const FIFO_ENABLE: u8 = 1;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// Reads of the status of a transmitter that is never empty before it is
/// written to anyway.
const MOST_STATUS_READS: u32 = 10_000;

struct Console {
    started: bool,
    /// Bytes that the FIFO has room for before the next read of the
    /// transmitter's status.
    room: usize,
}

static CONSOLE: IrqLock<Console> = IrqLock::new(Console {
    started: false,
    room: 0,
});

/// Writes text; other cores wait, so that lines stay whole.
pub fn write_fmt(text: fmt::Arguments<'_>) {
    CONSOLE.lock().write_fmt(text).ok();
}

/// Writes without the lock, whose holder may be what died.
pub(crate) fn write_str_raw(text: &str) {
    write_bytes(text.as_bytes(), &mut 0);
}

/// The console without its lock, for a dying image.
pub(crate) struct Raw;

impl Write for Raw {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_str_raw(text);
        Ok(())
    }
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !self.started {
            self.started = true;
            // SAFETY: 1. COM1's registers are at fixed ports on every machine that `abi`
            //    describes; without a UART a write is ignored. 2. Enabling its FIFO changes no
            //    memory. 3. `CONSOLE` is locked, so no other core is in the middle of a line.
            unsafe { Port::<u8>::new(FIFO_CONTROL).write(FIFO_ENABLE) };
        }
        write_bytes(text.as_bytes(), &mut self.room);
        Ok(())
    }
}

/// A formatted text comes in pieces of a few bytes.
fn write_bytes(bytes: &[u8], room: &mut usize) {
    for &byte in bytes {
        if *room == 0 {
            wait_until_empty();
            *room = FIFO_BYTES;
        }
        *room -= 1;
        // SAFETY: 1. COM1's data register, at a fixed port. 2. The write transmits a byte and
        //    changes no memory. 3. Two cores at once (`write_str_raw` of a dying image) mix
        //    their bytes, and nothing else.
        unsafe { Port::<u8>::new(COM1).write(byte) };
    }
}

fn wait_until_empty() {
    for _ in 0..MOST_STATUS_READS {
        // SAFETY: 1. COM1's line status, at a fixed port. 2. A read clears error bits, which
        //    this driver does not use, and changes no memory.
        let status = unsafe { Port::<u8>::new(LINE_STATUS).read() };
        if status & TRANSMITTER_EMPTY != 0 {
            return;
        }
        cpu::pause();
    }
}
