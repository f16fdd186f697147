//! What the host's end of published ports keeps to, whatever frames come from a guest in whatever
//! order and whatever clients do: no panic; bounds on connections and memory; an end to what is sent at
//! one time; clients receive exactly what the guest sent in sequence, and the guest what clients sent.
//! Shared by the fuzz target and `tare_forward`'s tests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;

use tare_devices::net::RxOffload;
use tare_forward::{
    Beside, DatagramClient, Ends, FrameOwner, Limits, Readiness, Settings, Slot, Stream, Table,
};
use tare_tcp::time::{Duration, Instant};

/// Bytes of a step.
const STEP: usize = 12;
/// Steps of one input.
const STEPS_MAX: usize = 600;
const CONNECTIONS: usize = 6;
const BUFFERS: usize = 256 << 10;
/// Frames at one time: more than all windows hold.
const FRAMES_MAX: usize = 10_000;
const GUEST: [u8; 4] = [10, 0, 2, 15];
const GATEWAY: [u8; 4] = [10, 0, 2, 2];
/// The guest's first number.
const GUESTS_FIRST: u32 = 0xffff_f000;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// The byte that the guest sends at an offset from its first number, and that a client sends.
fn guests(offset: u32) -> u8 {
    (offset.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

fn clients(offset: u32) -> u8 {
    (offset.wrapping_mul(0x85eb_ca6b) >> 24) as u8
}

#[derive(Default)]
struct Socket {
    unread: u32,
    read: u32,
    ended: bool,
    broken: bool,
    room: usize,
    received: u32,
    finished: bool,
}

#[derive(Clone, Default)]
struct Client(Rc<RefCell<Socket>>);

impl Stream for Client {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.0.borrow_mut();
        assert!(!bytes.is_empty());
        if socket.broken {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if socket.unread == 0 && !socket.ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(socket.unread as usize);
        for byte in &mut bytes[..count] {
            *byte = clients(socket.read);
            socket.read += 1;
        }
        socket.unread -= count as u32;
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = self.0.borrow_mut();
        assert!(!socket.finished && !bytes.is_empty());
        if socket.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(socket.room);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        for byte in &bytes[..count] {
            assert_eq!(*byte, guests(socket.received), "out of sequence");
            socket.received += 1;
        }
        socket.room -= count;
        Ok(count)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.borrow_mut().finished = true;
        Ok(())
    }

    fn reset(self) {}
}

/// What the guest knows of a connection.
struct Known {
    slot: Slot,
    client: Client,
    /// Its ports: the host's and the guest's.
    ports: [u16; 2],
    /// The table's first number, and the highest that it has used.
    first: u32,
    next: u32,
    /// The highest number that the guest has used.
    sent: u32,
}

/// The first byte says who is beside; then 12 bytes a step.
pub(crate) fn judge(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else {
        return;
    };
    let mut world = World::new(*mode);
    let (steps, _) = rest.as_chunks::<STEP>();
    for step in steps.iter().take(STEPS_MAX) {
        world.step(step);
        world.drain();
    }
    for which in 0..world.known.len() {
        world.with(which, |socket| socket.room = usize::MAX / 2);
        world.drain();
    }
}

struct World {
    table: Table<Client>,
    known: Vec<Known>,
    now: Instant,
    clients: u16,
    /// Clients' ports and the guest's between which datagrams went, and the last one's time.
    asked: HashMap<[u16; 2], Instant>,
}

impl World {
    fn new(mode: u8) -> Self {
        let mut table = Table::new(Settings {
            guest_mac: [2, 0, 0, 0, 0, 15],
            gateway_mac: [2, 0, 0, 0, 0, 2],
            v4: Ends {
                guest: GUEST.into(),
                gateway: GATEWAY.into(),
            },
            v6: None,
            mtu: 1500,
            beside: match mode & 5 {
                0 | 4 => Beside::Nothing,
                1 => Beside::Passt,
                _ => Beside::WaitingPasst,
            },
            limits: Limits {
                connections: CONNECTIONS,
                buffers: BUFFERS,
            },
            secret: [3; 16],
        });
        let now = Instant::from_micros(1_000_000);
        let accepted = RxOffload {
            csum: mode & 2 != 0,
            ..RxOffload::default()
        };
        table.restart(accepted, now);
        Self {
            table,
            known: Vec::new(),
            now,
            clients: 0,
            asked: HashMap::new(),
        }
    }

    fn step(&mut self, step: &[u8; STEP]) {
        let word = |at: usize| u16::from_le_bytes([step[at], step[at + 1]]);
        let which = usize::from(step[1]) % self.known.len().max(1);
        match step[0] % 10 {
            0 => self.open(word(2)),
            1..=4 => self.segment(which, step),
            5 => self.with(which, |socket| socket.unread += u32::from(word(2))),
            6 => self.with(which, |socket| socket.room += usize::from(word(2)) * 4),
            7 => match step[2] % 8 {
                0 => self.with(which, |socket| socket.ended = true),
                1 => self.with(which, |socket| socket.broken = true),
                2 => {
                    self.table.restart(RxOffload::default(), self.now);
                    self.known.clear();
                    self.asked.clear();
                }
                3 | 4 => self.ask(word(4), word(6), word(8)),
                _ => self.answer_datagram(word(4), word(6), step),
            },
            8 => {
                self.now = self.now + Duration::from_millis(u64::from(word(2)));
                self.table.deadline_passed(self.now);
            }
            _ => self.damaged(which, step),
        }
    }

    /// A client comes. Its SYN is the next frame, since there was no other.
    fn open(&mut self, port: u16) {
        self.clients += 1;
        let client = Client::default();
        let from = SocketAddr::from(([127, 0, 0, 1], 1000 + self.clients % 8));
        let before = self.table.open_connections();
        let opened = self.table.open(client.clone(), from, port | 1, self.now);
        assert_eq!(opened.is_ok(), before < CONNECTIONS);
        let Ok(slot) = opened else {
            return;
        };
        let frame = self.table.peek(self.now).expect("a SYN");
        let tcp = &frame.bytes[34..];
        assert_eq!((tcp[13], half(tcp, 2)), (SYN, port | 1));
        let (ports, first) = ([half(tcp, 0), half(tcp, 2)], whole(tcp, 4));
        self.table.consume();
        self.known
            .retain(|known| known.slot != slot && known.ports != ports);
        self.known.push(Known {
            slot,
            client,
            ports,
            first,
            next: first.wrapping_add(1),
            sent: GUESTS_FIRST.wrapping_add(1),
        });
    }

    /// A client's datagram: the next frame, of an empty queue, or fragments one behind the other.
    fn ask(&mut self, client: u16, port: u16, len: u16) {
        let (client, port, len) = (client % 8, port % 4, usize::from(len) % 5000);
        let from = DatagramClient {
            port,
            host: None,
            address: SocketAddr::from(([127, 0, 0, 1], client)),
        };
        let bytes = vec![client as u8; len];
        self.table.datagram(from, port, &bytes, self.now);
        let mut udp = Vec::new();
        let mut has_more = true;
        while has_more {
            let frame = self.table.peek(self.now).expect("a datagram");
            assert!(frame.bytes.len() <= 1514);
            let place = half(frame.bytes, 20);
            assert_eq!(
                (frame.bytes[23], usize::from(place & 0x1fff) * 8),
                (17, udp.len())
            );
            udp.extend_from_slice(&frame.bytes[34..]);
            has_more = place & 0x2000 != 0;
            self.table.consume();
        }
        assert_eq!((udp.len(), half(&udp, 4)), (8 + len, 8 + len as u16));
        let ports = [half(&udp, 0), half(&udp, 2)];
        assert_eq!(ports, [client, port]);
        assert!(udp[8..].iter().all(|byte| *byte == client as u8));
        self.asked.insert(ports, self.now);
    }

    /// A datagram of the guest's, with a changed byte: what goes to a client goes to one that has asked, whole.
    fn answer_datagram(&mut self, client: u16, port: u16, step: &[u8; STEP]) {
        let len = usize::from(step[3] % 40);
        let ports = [client % 10, port % 5];
        let mut datagram = [ports[1], ports[0], 8 + len as u16, 0]
            .map(u16::to_be_bytes)
            .concat();
        datagram.resize(8 + len, 7);
        let mut frame = packet(17, &datagram);
        let at = usize::from(step[10]) % frame.len();
        frame[at] ^= step[11];
        let is_whole = frame[20..22].iter().all(|byte| *byte == 0);
        let is_remembered = |ports| {
            let asked = self.asked.get(ports);
            asked.is_some_and(|asked| self.now.since(*asked) <= Duration::from_secs(300))
        };
        match self.table.take(&frame, self.now) {
            FrameOwner::Client(answer) => {
                let ports = [answer.client.address.port(), answer.client.port];
                assert!(is_remembered(&ports), "{ports:?}");
                // Fragments of several steps may be one datagram.
                assert!(answer.bytes.len() <= if is_whole { len } else { 65_507 });
            }
            FrameOwner::Table | FrameOwner::Passt => {
                let is_lost = step[11] == 0 && is_remembered(&ports);
                assert!(!is_lost, "{ports:?}");
            }
        }
    }

    /// A segment of the guest's: numbers near those that are expected, or far from them.
    fn segment(&mut self, which: usize, step: &[u8; STEP]) {
        let Some(known) = self.known.get_mut(which) else {
            return;
        };
        let scaled = |at: usize, scale: u8| {
            let near = i32::from(half(step, at) as i16);
            match scale & 3 {
                0 => 0,
                1 => near >> 8,
                2 => near,
                _ => near << 8,
            }
        };
        let flags = match step[2] & 0x3f {
            flags @ 0..0x20 => flags,
            // Mostly what a connection consists of.
            0x20..0x28 => SYN | ACK,
            _ => ACK,
        };
        let len = match flags & SYN {
            0 => usize::from(half(step, 8)) % 3000,
            _ => 0,
        };
        let seq = match flags & SYN {
            0 => known.sent.wrapping_add_signed(scaled(4, step[3])),
            _ => GUESTS_FIRST,
        };
        let ack = known.next.wrapping_add_signed(scaled(6, step[3] >> 2));
        let end = seq.wrapping_add(len as u32);
        if (end.wrapping_sub(known.sent) as i32) > 0 {
            known.sent = end;
        }
        let window = u16::from_le_bytes([step[10], step[11]]);
        let frame = frame(known.ports, (seq, ack), flags, window, len);
        self.table.take(&frame, self.now);
        self.table.settle(self.now);
    }

    /// Headers with a changed byte, cut somewhere; no data, which would not be the guest's.
    fn damaged(&mut self, which: usize, step: &[u8; STEP]) {
        let Some(known) = self.known.get(which) else {
            return;
        };
        let numbers = (known.sent, known.next);
        let mut frame = frame(known.ports, numbers, step[4], half(step, 6), 0);
        let at = usize::from(step[2]) % frame.len();
        // The length of IP's header would move numbers of one kind to places of another.
        frame[at] ^= if at == 14 { step[3] & 0xf0 } else { step[3] };
        // A SYN would say where the guest's numbers begin.
        frame[47] &= !SYN;
        frame.truncate(usize::from(step[5] % 80));
        self.table.take(&frame, self.now);
        self.table.settle(self.now);
    }

    /// Something changes at a client.
    fn with(&mut self, which: usize, change: impl FnOnce(&mut Socket)) {
        let Some(known) = self.known.get(which) else {
            return;
        };
        change(&mut known.client.0.borrow_mut());
        let ready = Readiness {
            readable: true,
            writable: true,
            ended: known.client.0.borrow().ended,
            failed: known.client.0.borrow().broken,
        };
        self.table.host_ready(known.slot, ready, self.now);
    }

    /// Takes all frames, and looks at those with data.
    fn drain(&mut self) {
        let mut frames = 0;
        while let Some(frame) = self.table.peek(self.now) {
            frames += 1;
            assert!(frames < FRAMES_MAX, "no end of frames");
            let bytes = frame.bytes.to_vec();
            self.table.consume();
            self.look(&bytes);
        }
        assert!(!self.table.has_output());
        assert!(self.table.deadline().is_none_or(|due| due > self.now));
        assert!(self.table.buffered() <= BUFFERS);
        assert!(self.table.open_connections() <= CONNECTIONS);
    }

    fn look(&mut self, frame: &[u8]) {
        if frame[12..14] != [8, 0] {
            return;
        }
        let tcp = &frame[34..];
        let data = &tcp[usize::from(tcp[12] >> 4) * 4..];
        assert_eq!(usize::from(half(frame, 16)) + 14, frame.len());
        let ports = [half(tcp, 0), half(tcp, 2)];
        let Some(known) = self.known.iter_mut().find(|known| known.ports == ports) else {
            return;
        };
        let seq = whole(tcp, 4);
        if tcp[13] & SYN != 0 && seq != known.first {
            // The guest refused it, and is tried again with another number; no data went before.
            let read = known.client.0.borrow().read;
            assert_eq!(read, 0, "data of the client is lost");
            (known.first, known.next) = (seq, seq.wrapping_add(1));
        }
        if data.is_empty() {
            return;
        }
        let offset = seq.wrapping_sub(known.first.wrapping_add(1));
        for (byte, at) in data.iter().zip(offset..) {
            assert_eq!(*byte, clients(at), "not what the client sent");
        }
        let end = seq.wrapping_add(data.len() as u32);
        if (end.wrapping_sub(known.next) as i32) > 0 {
            known.next = end;
        }
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn whole(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A frame of the guest's with an IPv4 packet, without checksums, which the table does not look at.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend(GUEST);
    frame.extend(GATEWAY);
    frame.extend(payload);
    frame
}

/// A frame with a segment. Its data follows from its number.
fn frame(ports: [u16; 2], (seq, ack): (u32, u32), flags: u8, window: u16, len: usize) -> Vec<u8> {
    let mut segment = [ports[1], ports[0]].map(u16::to_be_bytes).concat();
    segment.extend(seq.to_be_bytes());
    segment.extend(ack.to_be_bytes());
    segment.extend([0x50, flags]);
    segment.extend(window.to_be_bytes());
    segment.extend([0; 4]);
    let offset = seq.wrapping_sub(GUESTS_FIRST.wrapping_add(1));
    segment.extend((0..len as u32).map(|n| guests(offset.wrapping_add(n))));
    packet(6, &segment)
}
