//! The port: guest accesses, output, queued input.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

use vm_superio::Serial;
use vm_superio::serial::{Error, NoEvents};

use super::line::CountedLine;
use super::{INPUT_LEN, IrqLine, SerialCounters};
use crate::CounterSource;

const PORTS: u16 = 8;
const DATA: u16 = 0;
const DLAB: u8 = 0x80;
const LINE_CONTROL: u8 = 3;
const MODEM_CONTROL: u16 = 4;

/// A serial port that writes to `W`.
pub struct SerialPort<W: Write> {
    uart: Serial<CountedLine, NoEvents, W>,
    input: VecDeque<u8>,
    counters: Arc<SerialCounters>,
}

impl<W: Write> SerialPort<W> {
    /// A port. On vCPU threads `out` is written and flushed for each byte, so it should neither
    /// block nor make a system call each time. A byte that it refuses is counted and lost.
    pub fn new(line: IrqLine, out: W) -> Self {
        let counters = Arc::<SerialCounters>::default();
        let line = CountedLine {
            line,
            counters: Arc::clone(&counters),
        };
        Self {
            uart: Serial::new(line, out),
            input: VecDeque::with_capacity(INPUT_LEN),
            counters,
        }
    }

    /// vCPU thread: a read at `offset` (0 to 7) from the first port. Registers
    /// are a byte wide; other bytes of a wider access read as ones.
    pub fn read(&mut self, offset: u16, data: &mut [u8]) {
        let wide = data.len() != 1 || offset >= PORTS;
        if wide {
            self.counters.malformed.increment();
            data.fill(0xff);
        }
        if let (Some(byte), 0..PORTS) = (data.first_mut(), offset) {
            let waiting = self.uart.fifo_capacity();
            *byte = self.uart.read(offset as u8);
            self.counters
                .rx_bytes
                .add((self.uart.fifo_capacity() - waiting) as u64);
            if offset == DATA {
                self.refill();
            }
        }
    }

    /// vCPU thread: a write at `offset` (0 to 7) from the first port. The first
    /// byte counts.
    pub fn write(&mut self, offset: u16, data: &[u8]) {
        if data.len() != 1 || offset >= PORTS {
            self.counters.malformed.increment();
        }
        let (Some(byte), 0..PORTS) = (data.first(), offset) else {
            return;
        };
        if offset == DATA && self.uart.read(LINE_CONTROL) & DLAB == 0 {
            self.counters.tx_bytes.increment();
        }
        // A line that cannot be raised is the monitor's fault, not the guest's.
        if let Err(Error::IOError(_)) = self.uart.write(offset as u8, *byte) {
            self.counters.tx_dropped.increment();
        }
        // The end of loop-back mode lets in what waited for it.
        if offset == MODEM_CONTROL {
            self.refill();
        }
    }

    /// I/O thread: input for the guest. Returns how many bytes were taken; the
    /// rest is to be offered again when [`input_room`](Self::input_room) is not 0.
    pub fn push_input(&mut self, input: &[u8]) -> usize {
        let taken = input.len().min(self.input_room());
        self.input.extend(&input[..taken]);
        self.counters
            .rx_backpressure
            .add((input.len() - taken) as u64);
        self.refill();
        taken
    }

    /// Bytes of input that would be taken now.
    pub fn input_room(&self) -> usize {
        INPUT_LEN - self.input.len()
    }

    /// Where output goes.
    #[cfg(test)]
    pub(crate) fn output_mut(&mut self) -> &mut W {
        self.uart.writer_mut()
    }

    /// Counters, shared.
    pub fn counters(&self) -> Arc<dyn CounterSource> {
        Arc::clone(&self.counters) as Arc<dyn CounterSource>
    }

    /// Moves waiting input into the port's own buffer.
    fn refill(&mut self) {
        let len = self.uart.fifo_capacity().min(self.input.len());
        if len == 0 {
            return;
        }
        let bytes: Vec<u8> = self.input.iter().take(len).copied().collect();
        // Loop-back mode takes no input; the bytes stay queued.
        let taken = match self.uart.enqueue_raw_bytes(&bytes) {
            Ok(taken) => taken,
            Err(Error::Trigger(_)) => len,
            Err(_) => 0,
        };
        self.input.drain(..taken);
    }
}
