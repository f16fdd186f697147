//! The port as a guest's driver and the monitor use it.

use std::io::{self, Write};

use proptest::prelude::*;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::{INPUT_LEN, IrqLine, SerialPort};

const DATA: u16 = 0;
const INTERRUPT_ENABLE: u16 = 1;
const LINE_CONTROL: u16 = 3;
const MODEM_CONTROL: u16 = 4;
const LINE_STATUS: u16 = 5;
const DATA_READY: u8 = 1;

fn port<W: Write>(out: W) -> (SerialPort<W>, EventFd) {
    let line = EventFd::new(EFD_NONBLOCK).unwrap();
    let port = SerialPort::new(IrqLine(line.try_clone().unwrap()), out);
    (port, line)
}

fn read<W: Write>(port: &mut SerialPort<W>, offset: u16) -> u8 {
    let mut data = [0];
    port.read(offset, &mut data);
    data[0]
}

fn counter<W: Write>(port: &SerialPort<W>, name: &str) -> u64 {
    port.counters().snapshot()[name]
}

#[test]
fn output_arrives_in_order() {
    let (mut port, _line) = port(Vec::new());
    for byte in b"hello\n" {
        port.write(DATA, &[*byte]);
    }
    assert_eq!(port.output_mut(), b"hello\n");
    assert_eq!(counter(&port, "tx_bytes"), 6);
}

#[test]
fn the_divisor_is_not_printed() {
    let (mut port, _line) = port(Vec::new());
    port.write(LINE_CONTROL, &[0x80]);
    port.write(DATA, &[1]);
    port.write(LINE_CONTROL, &[0x03]);
    assert_eq!(port.output_mut(), b"");
    assert_eq!(counter(&port, "tx_bytes"), 0);
}

#[test]
fn output_that_is_refused_is_counted() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (mut port, _line) = port(Full);
    port.write(DATA, b"x");
    assert_eq!(counter(&port, "tx_dropped"), 1);
}

#[test]
fn input_raises_the_line_and_waits_in_order() {
    let (mut port, line) = port(io::sink());
    port.write(INTERRUPT_ENABLE, &[1]);
    let input: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
    assert_eq!(port.push_input(&input), 1000);
    assert_eq!(line.read().unwrap(), 1);
    let mut got = Vec::new();
    while read(&mut port, LINE_STATUS) & DATA_READY != 0 {
        got.push(read(&mut port, DATA));
    }
    assert_eq!(got, input);
    assert_eq!(counter(&port, "rx_bytes"), 1000);
    assert!(counter(&port, "interrupts") > 1);
}

#[test]
fn input_is_bounded() {
    let (mut port, _line) = port(io::sink());
    let mut taken = 0;
    for _ in 0..100 {
        taken += port.push_input(&[b'x'; 1000]);
    }
    assert!(taken <= INPUT_LEN + 64);
    assert_eq!(port.input_room(), 0);
    assert_eq!(counter(&port, "rx_backpressure"), 100_000 - taken as u64);
    read(&mut port, DATA);
    assert_eq!(port.input_room(), 1);
}

#[test]
fn a_line_without_a_reader_does_not_stop_the_port() {
    let (mut port, line) = port(io::sink());
    line.write(u64::MAX - 1).unwrap();
    port.write(INTERRUPT_ENABLE, &[3]);
    port.push_input(b"abc");
    assert_eq!(read(&mut port, DATA), b'a');
}

proptest! {
    #[test]
    fn any_access_is_harmless(accesses: Vec<(u8, u16, Vec<u8>)>) {
        let (mut port, _line) = port(Vec::new());
        for (kind, offset, mut data) in accesses {
            match kind % 3 {
                0 => port.write(offset % 9, &data),
                1 => port.read(offset % 9, &mut data),
                _ => { port.push_input(&data); }
            }
        }
    }

    #[test]
    fn odd_accesses_are_counted(offset in 0u16..20, len in 0usize..5) {
        let (mut port, _line) = port(Vec::new());
        port.read(offset, &mut vec![0; len]);
        port.write(offset, &vec![0; len]);
        let odd = offset > 7 || len != 1;
        prop_assert_eq!(counter(&port, "malformed"), if odd { 2 } else { 0 });
    }
}

#[test]
fn input_that_came_in_loop_back_mode_arrives_after_it() {
    let (mut port, line) = port(io::sink());
    port.write(INTERRUPT_ENABLE, &[1]);
    port.write(MODEM_CONTROL, &[0x10]);
    assert_eq!(port.push_input(b"ls"), 2);
    assert_eq!(read(&mut port, LINE_STATUS) & DATA_READY, 0);
    port.write(MODEM_CONTROL, &[0]);
    assert_eq!(line.read().unwrap(), 1);
    assert_eq!([read(&mut port, DATA), read(&mut port, DATA)], *b"ls");
}
