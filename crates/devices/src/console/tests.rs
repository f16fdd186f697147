//! Ports as a driver and the host use them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{
    BATCH, Backend, CHUNK, CONTROL_QUEUE_SIZE, Console, Direction, MULTIPORT, Moved, PortSettings,
};
use crate::virtio::driver::{BUFFERS, Driver, MockMachine, Ring, WRITE, get, put};
use crate::virtio::{Interest, Progress};

const VERSION_1: u64 = 1 << 32;
const NEEDS_RESET: u8 = 64;
/// Queues: of port 0 (input), of port 1 (output), of control.
const INPUT: usize = 0;
const OUTPUT: usize = 5;
const TO_DRIVER: usize = 2;
const FROM_DRIVER: usize = 3;
/// Where messages lie.
const CONTROL: u64 = BUFFERS + 0x4_0000;

#[derive(Default)]
struct Host {
    input: VecDeque<u8>,
    has_ended: bool,
    output: Vec<u8>,
    room: usize,
    is_gone: bool,
    watched: [Interest; 2],
}

#[derive(Clone, Default)]
struct Pipes(Arc<Mutex<Host>>);

impl Backend for Pipes {
    fn read(&mut self, port: usize, bytes: &mut [u8]) -> Moved {
        assert_eq!(port, 0);
        let mut host = self.0.lock().unwrap();
        let count = bytes.len().min(host.input.len());
        for (byte, value) in bytes.iter_mut().zip(host.input.drain(..count)) {
            *byte = value;
        }
        match count {
            0 if host.has_ended => Moved::Closed,
            0 => Moved::Blocked,
            count => Moved::Bytes(count),
        }
    }

    fn write(&mut self, port: usize, bytes: &[u8]) -> Moved {
        assert_eq!(port, 1);
        let mut host = self.0.lock().unwrap();
        let count = bytes.len().min(host.room);
        host.room -= count;
        host.output.extend_from_slice(&bytes[..count]);
        match count {
            _ if host.is_gone => Moved::Closed,
            0 => Moved::Blocked,
            count => Moved::Bytes(count),
        }
    }

    fn watch(&mut self, port: usize, interest: Interest) {
        self.0.lock().unwrap().watched[port] = interest;
    }
}

const PORTS: [PortSettings; 2] = [
    PortSettings {
        name: "in",
        direction: Direction::Input,
    },
    PortSettings {
        name: "out",
        direction: Direction::Output,
    },
];

struct World {
    machine: MockMachine<Console<Pipes>>,
    host: Arc<Mutex<Host>>,
}

impl World {
    fn new() -> Self {
        let pipes = Pipes::default();
        pipes.0.lock().unwrap().room = usize::MAX;
        let host = Arc::clone(&pipes.0);
        let machine = MockMachine::new(Console::new(&PORTS, pipes));
        Self { machine, host }
    }

    fn start(&self) -> Vec<Ring<'_>> {
        Driver::new(&self.machine).start(VERSION_1 | MULTIPORT, CONTROL_QUEUE_SIZE)
    }

    /// A driver that has both ports open; its messages are read.
    fn opened(&self) -> Vec<Ring<'_>> {
        let mut rings = self.start();
        offer_messages(&mut rings[TO_DRIVER], 16);
        self.say(&mut rings, [0xff; 4], 0, 1);
        for port in [0, 1] {
            self.say(&mut rings, [port, 0, 0, 0], 3, 1);
            self.say(&mut rings, [port, 0, 0, 0], 6, 1);
        }
        while rings[TO_DRIVER].take_used().is_some() {}
        rings
    }

    fn notify(&self, queue: usize) -> Progress {
        self.machine.io(|device| device.notified(queue as u16))
    }

    /// A message of the driver's.
    fn say(&self, rings: &mut [Ring<'_>], port: [u8; 4], event: u8, value: u8) {
        let [a, b, c, d] = port;
        put(
            &self.machine.memory,
            CONTROL,
            &[a, b, c, d, event, 0, value, 0],
        );
        rings[FROM_DRIVER].offer(&[(CONTROL, 8, 0)]);
        let _ = self.notify(FROM_DRIVER);
        assert!(rings[FROM_DRIVER].take_used().is_some());
    }

    /// The messages that the driver got.
    fn heard(&self, ring: &mut Ring<'_>) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((head, len)) = ring.take_used() {
            let at = CONTROL + 0x1000 + u64::from(head) * 64;
            all.push(get(&self.machine.memory, at, len as usize));
        }
        all
    }

    fn status(&self) -> u8 {
        Driver::new(&self.machine).status()
    }

    fn output(&self) -> Vec<u8> {
        self.host.lock().unwrap().output.clone()
    }
}

fn offer_messages(ring: &mut Ring<'_>, count: u64) {
    for n in 0..count {
        ring.offer(&[(CONTROL + 0x1000 + n * 64, 64, WRITE)]);
    }
}

fn message(port: u8, event: u8, value: u8, name: &str) -> Vec<u8> {
    let mut bytes = vec![port, 0, 0, 0, event, 0, value, 0];
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

#[test]
fn ports_are_announced_named_and_opened_in_that_order() {
    let world = World::new();
    let mut rings = world.start();
    offer_messages(&mut rings[TO_DRIVER], 16);
    let _ = world.notify(TO_DRIVER);
    assert!(
        world.heard(&mut rings[TO_DRIVER]).is_empty(),
        "no reader asked"
    );
    world.say(&mut rings, [0xff; 4], 0, 1);
    let added = world.heard(&mut rings[TO_DRIVER]);
    assert_eq!(added, [message(0, 1, 1, ""), message(1, 1, 1, "")]);
    world.say(&mut rings, [1, 0, 0, 0], 3, 1);
    let ready = world.heard(&mut rings[TO_DRIVER]);
    assert_eq!(ready, [message(1, 7, 1, "out"), message(1, 6, 1, "")]);
    assert_eq!(world.machine.counter("control_sent"), 4);
    assert_eq!(world.machine.counter("control_received"), 2);
    assert_eq!(world.machine.counter("control_invalid"), 0);
}

#[test]
fn messages_wait_for_buffers() {
    let world = World::new();
    let mut rings = world.start();
    world.say(&mut rings, [0; 4], 0, 1);
    offer_messages(&mut rings[TO_DRIVER], 1);
    let _ = world.notify(TO_DRIVER);
    assert_eq!(world.heard(&mut rings[TO_DRIVER]).len(), 1);
    assert_eq!(world.machine.counter("control_sent"), 1);
}

#[test]
fn the_configuration_has_the_number_of_ports() {
    let world = World::new();
    let driver = Driver::new(&world.machine);
    assert_eq!(driver.read_memory(driver.places.device + 4, 4), 2);
    assert_eq!(driver.read_memory(driver.places.device, 4), 0);
    assert_eq!(driver.queue_count(), 6);
}

#[test]
fn a_driver_of_one_port_is_refused() {
    let world = World::new();
    let driver = Driver::new(&world.machine);
    driver.negotiate(VERSION_1);
    assert_eq!(driver.status() & 8, 0, "FEATURES_OK");
    assert_eq!(world.machine.counter("features_refused"), 1);
}

#[test]
fn input_from_before_the_port_opens_is_kept_and_its_end_follows_it() {
    let world = World::new();
    world.host.lock().unwrap().input.extend(b"early");
    world.host.lock().unwrap().has_ended = true;
    let mut rings = world.start();
    rings[INPUT].offer(&[(BUFFERS, 3, WRITE)]);
    rings[INPUT].offer(&[(BUFFERS + 16, 16, WRITE)]);
    rings[INPUT].offer(&[(BUFFERS + 32, 16, WRITE)]);
    let _ = world.notify(INPUT);
    assert_eq!(rings[INPUT].take_used(), None, "the port is not open");
    offer_messages(&mut rings[TO_DRIVER], 8);
    world.say(&mut rings, [0; 4], 0, 1);
    world.say(&mut rings, [0; 4], 3, 1);
    world.say(&mut rings, [0; 4], 6, 1);
    assert_eq!(rings[INPUT].take_used(), Some((0, 3)));
    assert_eq!(rings[INPUT].take_used(), Some((1, 2)));
    assert_eq!(rings[INPUT].take_used(), None, "the end fills no buffer");
    assert_eq!(get(&world.machine.memory, BUFFERS, 3), b"ear");
    assert_eq!(get(&world.machine.memory, BUFFERS + 16, 2), b"ly");
    let heard = world.heard(&mut rings[TO_DRIVER]);
    assert_eq!(heard.last(), Some(&message(0, 6, 0, "")));
    assert_eq!(world.machine.counter("rx_bytes"), 5);
}

#[test]
fn input_is_waited_for_only_with_a_buffer_for_it() {
    let world = World::new();
    let mut rings = world.opened();
    assert_eq!(world.host.lock().unwrap().watched[0], Interest::default());
    rings[INPUT].offer(&[(BUFFERS, 16, WRITE)]);
    let _ = world.notify(INPUT);
    assert_eq!(world.host.lock().unwrap().watched[0], Interest::READ);
    world
        .host
        .lock()
        .unwrap()
        .input
        .extend(b"0123456789abcdefgh");
    let _ = world.machine.io(|device| device.backend_ready());
    assert_eq!(rings[INPUT].take_used(), Some((0, 16)));
    assert_eq!(world.host.lock().unwrap().watched[0], Interest::default());
    assert_eq!(world.host.lock().unwrap().input.len(), 2, "the rest stays");
    assert!(world.machine.counter("rx_backpressure") > 0);
}

#[test]
fn a_driver_that_closes_the_port_gets_no_input() {
    let world = World::new();
    let mut rings = world.opened();
    rings[INPUT].offer(&[(BUFFERS, 16, WRITE)]);
    let _ = world.notify(INPUT);
    world.say(&mut rings, [0; 4], 6, 0);
    assert_eq!(world.host.lock().unwrap().watched[0], Interest::default());
    world.host.lock().unwrap().input.extend(b"x");
    let _ = world.machine.io(|device| device.backend_ready());
    assert_eq!(rings[INPUT].take_used(), None);
    world.say(&mut rings, [0; 4], 6, 1);
    assert_eq!(rings[INPUT].take_used(), Some((0, 1)));
}

#[test]
fn output_arrives_in_order_whatever_the_chains_are() {
    let world = World::new();
    let mut rings = world.opened();
    put(&world.machine.memory, BUFFERS, b"hello, world");
    rings[OUTPUT].offer(&[(BUFFERS, 5, 0), (BUFFERS + 5, 2, 0)]);
    rings[OUTPUT].offer(&[(BUFFERS + 7, 5, 0)]);
    let _ = world.notify(OUTPUT);
    assert_eq!(world.output(), b"hello, world");
    assert_eq!(rings[OUTPUT].take_used(), Some((0, 0)));
    assert_eq!(rings[OUTPUT].take_used(), Some((2, 0)));
    assert_eq!(world.machine.counter("tx_bytes"), 12);
}

#[test]
fn a_host_that_takes_no_more_leaves_the_rest_in_the_queue() {
    let world = World::new();
    let mut rings = world.opened();
    world.host.lock().unwrap().room = 3;
    put(&world.machine.memory, BUFFERS, b"abcdefgh");
    rings[OUTPUT].offer(&[(BUFFERS, 8, 0)]);
    assert_eq!(world.notify(OUTPUT), Progress::Done);
    assert_eq!(rings[OUTPUT].take_used(), None);
    assert!(world.host.lock().unwrap().watched[1].writable);
    // More output does not get past it, and asks the host nothing.
    rings[OUTPUT].offer(&[(BUFFERS, 1, 0)]);
    assert_eq!(world.notify(OUTPUT), Progress::Done);
    assert_eq!(world.output(), b"abc");
    assert_eq!(world.machine.counter("tx_backpressure"), 1);
    world.host.lock().unwrap().room = 100;
    let _ = world.machine.io(|device| device.backend_ready());
    assert_eq!(world.output(), b"abcdefgha");
    assert_eq!(world.host.lock().unwrap().watched[1], Interest::default());
    assert_eq!(rings[OUTPUT].used_index(), 2);
}

#[test]
fn output_that_nobody_takes_is_discarded_and_the_driver_hears_of_it() {
    let world = World::new();
    let mut rings = world.opened();
    world.host.lock().unwrap().is_gone = true;
    rings[OUTPUT].offer(&[(BUFFERS, 8, 0)]);
    rings[OUTPUT].offer(&[(BUFFERS, 4, 0)]);
    let _ = world.notify(OUTPUT);
    assert_eq!(rings[OUTPUT].used_index(), 2);
    assert_eq!(world.machine.counter("tx_discarded"), 12);
    let heard = rings[TO_DRIVER].take_used().unwrap();
    assert_eq!(heard.1, 8);
    let at = CONTROL + 0x1000 + u64::from(heard.0) * 64;
    assert_eq!(get(&world.machine.memory, at, 8), message(1, 6, 0, ""));
}

#[test]
fn queues_of_the_other_direction_move_nothing() {
    let world = World::new();
    let mut rings = world.opened();
    rings[1].offer(&[(BUFFERS, 8, 0)]);
    let _ = world.notify(1);
    assert_eq!(rings[1].take_used(), Some((0, 0)));
    assert_eq!(world.machine.counter("tx_discarded"), 8);
    rings[4].offer(&[(BUFFERS, 8, WRITE)]);
    let _ = world.notify(4);
    assert_eq!(rings[4].take_used(), None);
    assert!(world.heard(&mut rings[TO_DRIVER]).is_empty());
}

#[test]
fn long_output_goes_in_chunks_and_batches() {
    let world = World::new();
    let mut rings = world.opened();
    // One buffer, again and again, and a chunk more than a batch.
    let whole = 4 * CHUNK as u32;
    let mut spans = vec![(BUFFERS, whole, 0); BATCH / 4];
    spans.push((BUFFERS, CHUNK as u32, 0));
    rings[OUTPUT].offer(&spans);
    assert_eq!(world.notify(OUTPUT), Progress::More);
    assert_eq!(world.output().len(), BATCH * CHUNK);
    assert_eq!(rings[OUTPUT].used_index(), 0);
    assert_eq!(world.notify(OUTPUT), Progress::Done);
    assert_eq!(world.output().len(), (BATCH + 1) * CHUNK);
    assert_eq!(rings[OUTPUT].used_index(), 1);
}

#[test]
fn messages_that_make_no_sense_are_counted_and_change_nothing() {
    let world = World::new();
    let mut rings = world.start();
    offer_messages(&mut rings[TO_DRIVER], 16);
    world.say(&mut rings, [0; 4], 0, 1);
    let _ = world.heard(&mut rings[TO_DRIVER]);
    let wrong: [([u8; 4], u8, u8); 7] = [
        ([2, 0, 0, 0], 3, 1),             // no such port
        ([0xff, 0xff, 0xff, 0xff], 6, 1), // nor this one
        ([0; 4], 1, 1),                   // a device's event
        ([0; 4], 9, 1),                   // no event
        ([0; 4], 3, 2),                   // neither yes nor no
        ([0; 4], 6, 1),                   // open before it is ready
        ([0; 4], 7, 1),                   // a device's event
    ];
    for (port, event, value) in wrong {
        world.say(&mut rings, port, event, value);
    }
    rings[FROM_DRIVER].offer(&[(CONTROL, 7, 0)]);
    rings[FROM_DRIVER].offer(&[(CONTROL, 9, 0)]);
    let _ = world.notify(FROM_DRIVER);
    assert_eq!(world.machine.counter("control_invalid"), 9);
    assert_eq!(world.machine.counter("malformed"), 0);
    assert!(world.heard(&mut rings[TO_DRIVER]).is_empty());
}

#[test]
fn a_port_that_was_not_announced_is_not_ready() {
    let world = World::new();
    let mut rings = world.start();
    offer_messages(&mut rings[TO_DRIVER], 16);
    world.say(&mut rings, [0; 4], 3, 1);
    assert_eq!(world.machine.counter("control_invalid"), 1);
    assert!(world.heard(&mut rings[TO_DRIVER]).is_empty());
}

#[test]
fn a_message_is_lost_with_a_buffer_that_is_too_short_for_it() {
    let world = World::new();
    let mut rings = world.start();
    rings[TO_DRIVER].offer(&[(CONTROL, 7, WRITE)]);
    offer_messages(&mut rings[TO_DRIVER], 1);
    world.say(&mut rings, [0; 4], 0, 1);
    assert_eq!(rings[TO_DRIVER].take_used(), Some((0, 0)));
    assert_eq!(rings[TO_DRIVER].take_used(), Some((1, 8)));
    assert_eq!(world.machine.counter("control_dropped"), 1);
}

#[test]
fn a_buffer_of_the_wrong_direction_breaks_the_device() {
    for (queue, flags) in [(INPUT, 0), (OUTPUT, WRITE), (FROM_DRIVER, WRITE)] {
        let world = World::new();
        world.host.lock().unwrap().input.extend(b"x");
        let mut rings = world.opened();
        rings[queue].offer(&[(BUFFERS, 8, flags)]);
        let _ = world.notify(queue);
        assert_ne!(world.status() & NEEDS_RESET, 0, "queue {queue}");
        assert_eq!(world.machine.counter("malformed"), 1);
    }
}

#[test]
fn a_message_into_a_buffer_to_read_breaks_the_device() {
    let world = World::new();
    let mut rings = world.start();
    rings[TO_DRIVER].offer(&[(CONTROL, 8, 0)]);
    world.say(&mut rings, [0; 4], 0, 1);
    assert_ne!(world.status() & NEEDS_RESET, 0);
}

#[test]
fn a_reset_begins_again_and_the_hosts_end_stays_closed() {
    let world = World::new();
    world.host.lock().unwrap().has_ended = true;
    let mut rings = world.opened();
    rings[INPUT].offer(&[(BUFFERS, 16, WRITE)]);
    let _ = world.notify(INPUT);
    Driver::new(&world.machine).reset();
    assert_eq!(
        world.machine.io(|device| device.interest()),
        Interest::default()
    );
    let mut rings = world.start();
    offer_messages(&mut rings[TO_DRIVER], 16);
    world.say(&mut rings, [0; 4], 0, 1);
    world.say(&mut rings, [0; 4], 3, 1);
    let heard = world.heard(&mut rings[TO_DRIVER]);
    assert_eq!(heard.last(), Some(&message(0, 6, 0, "")));
}

fn is_drained(world: &World) -> bool {
    world.machine.io(|device| device.device().is_drained())
}

#[test]
fn a_drain_ends_when_the_host_has_everything() {
    let world = World::new();
    assert!(is_drained(&world), "nothing has started");
    let mut rings = world.opened();
    world.host.lock().unwrap().room = 3;
    rings[OUTPUT].offer(&[(BUFFERS, 8, 0)]);
    let drain = || {
        for queue in world.machine.io(|device| {
            device.device_mut().start_drain();
            device.device().output_queues()
        }) {
            let _ = world.machine.io(|device| device.notified(queue));
        }
    };
    drain();
    assert!(!is_drained(&world));
    world.host.lock().unwrap().room = 100;
    let _ = world.machine.io(|device| device.backend_ready());
    assert!(is_drained(&world));
    assert_eq!(world.output().len(), 8);
    // No reader takes it, or nothing can give it any more.
    world.host.lock().unwrap().room = 0;
    rings[OUTPUT].offer(&[(BUFFERS, 8, 0)]);
    drain();
    assert!(!is_drained(&world));
    world.host.lock().unwrap().is_gone = true;
    let _ = world.machine.io(|device| device.backend_ready());
    assert!(is_drained(&world));
    Driver::new(&world.machine).reset();
    assert!(is_drained(&world));
}

#[test]
fn a_chain_that_shrinks_under_way_gives_no_more_than_it_has() {
    let world = World::new();
    let mut rings = world.opened();
    world.host.lock().unwrap().room = 6;
    let head = rings[OUTPUT].offer(&[(BUFFERS, 8, 0)]);
    let _ = world.notify(OUTPUT);
    rings[OUTPUT].set_descriptor(head, BUFFERS, 4, 0, 0);
    world.host.lock().unwrap().room = 100;
    let _ = world.machine.io(|device| device.backend_ready());
    assert_eq!(world.output().len(), 6);
    assert_eq!(rings[OUTPUT].used_index(), 1);
}
