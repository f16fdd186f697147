//! [`VirtioNet`].

#![allow(unsafe_code)] // the queues' `add`

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use tare_hal::virtio::{Handler, Queue, QueueOptions, Transport};
use tare_net::frame::{self, Checksums, Medium};
use tare_net::link::{Link, Properties, Received, SendChecksums};
use virtio_drivers::transport::Transport as _;

use super::buffer::{self, BUFFER_LEN, Buffer, FRAME_MAX, Held, LONG_MAX, ReceivedFrame, TOGETHER};
use super::{features, header};
use crate::virtio;

const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
/// Most entries of a queue.
const LONGEST: u16 = 64;
/// Frames that the device sees without a flush: what a program writes in a turn at most (32 KiB),
/// in frames of 1,460 bytes.
const BATCH: u16 = 24;
/// The device cuts segments of both families.
const CUTS: u64 = features::CSUM | features::HOST_TSO4 | features::HOST_TSO6;
/// Long buffers that are kept for further frames.
const LONG_KEPT: usize = 16;
/// Smallest packet that IPv4 must carry (RFC 791).
const MTU_MIN: u16 = 68;
const MTU_MAX: u16 = 1500;

/// Why a network device cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// It did not accept the features asked for.
    #[error("the network device does not accept the negotiated features")]
    Features,
    /// A queue is not there.
    #[error("the network device has no queue {0}")]
    NoQueue(u16),
    /// A queue or the configuration space did not work out.
    #[error("the network device cannot be set up: {}", virtio::reason(.0))]
    Setup(virtio_drivers::Error),
}

/// A virtio network device.
pub(crate) struct VirtioNet {
    transport: Transport,
    pub(super) receive: Queue,
    pub(super) transmit: Queue,
    /// Buffers that the device has, by the token of their descriptor.
    pub(super) receiving: Vec<Option<Box<Buffer>>>,
    /// For the next frame that comes in several buffers.
    merged: Vec<u8>,
    transmitting: Vec<Option<Box<[u8]>>>,
    in_flight: usize,
    /// Buffers for frames, and long ones.
    spare: [Vec<Box<[u8]>>; 2],
    header_len: usize,
    features: u64,
    mac: [u8; 6],
    mtu: u16,
    /// Buffers that the device got back since it was last asked whether it waits for some.
    returned: usize,
}

impl VirtioNet {
    /// Takes the device over; `on_receive` is called when frames have come.
    pub(crate) fn new(mut transport: Transport, on_receive: Handler) -> Result<Self, OpenError> {
        transport.on_interrupt(RECEIVE, on_receive);
        let features = virtio::negotiate_by(&mut transport, &features::choose)
            .map_err(|virtio::Refused| OpenError::Features)?;
        let has = |feature| features & feature != 0;
        let event_idx = has(features::EVENT_IDX);
        let (mac, mtu) = read_config(&transport, features).map_err(OpenError::Setup)?;
        let receive = open_queue(&mut transport, RECEIVE, event_idx)?;
        let mut transmit = open_queue(&mut transport, TRANSMIT, event_idx)?;
        transmit.set_interrupts(false);
        transport.finish_init();
        let (receiving, transmitting) = (receive.size(), transmit.size());
        let mut net = Self {
            transport,
            receive,
            transmit,
            receiving: (0..receiving).map(|_| None).collect(),
            transmitting: (0..transmitting).map(|_| None).collect(),
            in_flight: 0,
            merged: Vec::new(),
            spare: [Vec::new(), Vec::new()],
            header_len: if has(features::VERSION_1) || has(features::MRG_RXBUF) {
                header::LEN
            } else {
                header::LEGACY_LEN
            },
            features,
            mac,
            mtu,
            returned: 0,
        };
        (0..receiving).for_each(|_| net.post(Buffer::new()));
        net.offer();
        Ok(net)
    }

    /// Gives the device a buffer to receive into.
    fn post(&mut self, mut buffer: Box<Buffer>) {
        // SAFETY: the buffer is kept in `receiving`, untouched, until the queue has given its
        // token back.
        let token = unsafe { self.receive.add(&[], &mut [&mut buffer.bytes]) };
        if let Some(token) = token {
            self.receiving[usize::from(token)] = Some(buffer);
        }
    }

    /// Notifies the device of the buffers that it got back, if it waits for some.
    fn offer(&mut self) {
        self.returned = 0;
        if self.receive.should_notify() {
            self.transport.notify(RECEIVE);
        }
    }

    /// The token of a frame that has come since all were taken.
    ///
    /// A device may ask for buffers before it shows the frames that used the last ones up: that is
    /// known only when all frames were taken that it shows. And it may have shown one before it saw
    /// that the next one is to interrupt: no interrupt comes for that, nor for any after it.
    fn look_again(&mut self) -> Option<u16> {
        self.offer();
        self.receive.peek()
    }

    /// A buffer that the device has filled, and how many bytes of it.
    #[inline(never)] // once in the image
    fn filled(&mut self, token: u16) -> Option<(Box<Buffer>, usize)> {
        let len = self.receive.take(token)? as usize;
        let buffer = self.receiving.get_mut(usize::from(token))?.take()?;
        Some((buffer, len))
    }

    /// The device has a buffer back.
    #[inline(never)] // once in the image
    fn give_back(&mut self, buffer: Box<Buffer>) {
        self.post(buffer);
        self.returned += 1;
        // The device looks for new buffers by itself while it has any left, so this waits until
        // it may have none.
        if self.returned >= self.receive.size() {
            self.offer();
        }
    }

    #[inline]
    fn checksums(&self, header: &[u8]) -> Checksums {
        match self.features & features::GUEST_CSUM {
            0 => Checksums::Unverified,
            _ => header::checksums(header),
        }
    }

    /// A frame whose first part is in that buffer, and the rest in the next ones; `None` if a part is
    /// missing, or memory.
    #[inline(never)]
    fn merge(
        &mut self,
        first: (Box<Buffer>, usize),
        count: u16,
    ) -> Option<Received<ReceivedFrame>> {
        let checksums = self.checksums(&first.0.bytes);
        let mut bytes = core::mem::take(&mut self.merged);
        bytes.clear();
        let parts = usize::from(count);
        let has_room =
            parts <= self.receiving.len() && bytes.try_reserve(parts * BUFFER_LEN).is_ok();
        let (mut buffer, mut len) = first;
        let mut start = self.header_len;
        for left in (0..count).rev() {
            if has_room {
                bytes.extend_from_slice(buffer.bytes.get(start..len).unwrap_or_default());
            }
            self.give_back(buffer);
            if left == 0 {
                break;
            }
            let token = self.receive.peek()?;
            (buffer, len) = self.filled(token)?;
            start = 0;
        }
        if !has_room {
            return None;
        }
        Some(Received {
            checksums,
            buffer: ReceivedFrame {
                start: 0,
                end: bytes.len(),
                held: Held::Merged(bytes),
            },
        })
    }

    /// Lets the device see what it does not see yet, and notifies it if it wants that.
    fn publish(&mut self) {
        self.transmit.publish();
        if self.transmit.should_notify() {
            self.transport.notify(TRANSMIT);
        }
    }

    /// Makes room in a full queue, if the device has sent some of it.
    #[cold]
    fn make_ready(&mut self) -> bool {
        self.flush();
        self.reclaim();
        self.in_flight < self.transmit.size()
    }

    /// Takes back what the device has sent.
    fn reclaim(&mut self) {
        while let Some(token) = self.transmit.peek() {
            if self.transmit.take(token).is_none() {
                return;
            }
            let sent = self.transmitting.get_mut(usize::from(token));
            if let Some(buffer) = sent.and_then(Option::take) {
                self.in_flight -= 1;
                self.keep(buffer);
            }
        }
    }

    /// Keeps a buffer for another frame.
    fn keep(&mut self, buffer: Box<[u8]>) {
        let is_long = buffer::is_long(&buffer);
        let spare = &mut self.spare[usize::from(is_long)];
        if !is_long || spare.len() < LONG_KEPT {
            spare.push(buffer);
        }
    }

    /// A buffer for a frame and its header; one without bytes if the frame cannot be sent.
    #[inline(never)] // once in the image, as is `submit`, and not with each kind of frame
    fn buffer(&mut self, len: usize, cut: u16) -> Box<[u8]> {
        let most = if cut == 0 { FRAME_MAX } else { LONG_MAX };
        if len > most || !self.send_ready() {
            return Box::default();
        }
        let spare = self.spare[usize::from(len > FRAME_MAX)].pop();
        spare.unwrap_or_else(|| buffer::to_send(len))
    }

    /// Completes the frame in a buffer, and prepares it for the device.
    #[inline(never)]
    fn submit(&mut self, mut buffer: Box<[u8]>, len: usize, cut: u16) {
        let end = self.header_len + len;
        let (head, frame) = buffer[..end].split_at_mut(self.header_len);
        let checksum = match self.features & features::CSUM {
            0 => {
                frame::complete_checksum(frame);
                None
            }
            _ => frame::leave_checksum_to_device(frame),
        };
        header::write(head, checksum);
        if let (1.., Some(checksum)) = (cut, checksum) {
            header::write_cut(head, frame, checksum.start, cut);
        }
        // SAFETY: the buffer is kept in `transmitting`, untouched, until the queue has given its
        // token back.
        let token = unsafe { self.transmit.prepare(&[&buffer[..end]], &mut []) };
        match token {
            Some(token) => {
                self.transmitting[usize::from(token)] = Some(buffer);
                self.in_flight += 1;
                // More than an answer: the device sends while the next ones are made.
                if self.transmit.unpublished() >= BATCH {
                    self.flush();
                }
            }
            None => self.keep(buffer),
        }
    }
}

fn open_queue(transport: &mut Transport, index: u16, event_idx: bool) -> Result<Queue, OpenError> {
    let options = QueueOptions {
        longest: LONGEST,
        indirect: false,
        event_idx,
    };
    Queue::new(transport, index, options).map_err(|error| match error {
        virtio_drivers::Error::InvalidParam => OpenError::NoQueue(index),
        error => OpenError::Setup(error),
    })
}

fn read_config(transport: &Transport, features: u64) -> virtio_drivers::Result<([u8; 6], u16)> {
    let mac = match features & features::MAC {
        0 => local_mac(),
        _ => transport.read_config_space::<[u8; 6]>(features::CONFIG_MAC)?,
    };
    let mtu = match features & features::MTU {
        0 => MTU_MAX,
        _ => transport.read_config_space::<u16>(features::CONFIG_MTU)?,
    };
    Ok((mac, mtu.clamp(MTU_MIN, MTU_MAX)))
}

/// A locally administered address, for a device that has none.
fn local_mac() -> [u8; 6] {
    let mut mac = [0; 6];
    crate::random::fill(&mut mac);
    mac[0] = (mac[0] & 0xfe) | 0x02;
    mac
}

impl Link for VirtioNet {
    type Buffer = ReceivedFrame;

    fn properties(&self) -> Properties {
        Properties {
            medium: Medium::Ethernet,
            mac: self.mac,
            mtu: self.mtu,
            // Where the device does not, `send` does.
            checksums: SendChecksums::Device,
            together: match self.features & CUTS {
                CUTS => TOGETHER,
                _ => 0,
            },
        }
    }

    fn receive(&mut self) -> Option<Received<ReceivedFrame>> {
        loop {
            let token = match self.receive.peek() {
                Some(token) => token,
                None if self.returned != 0 => self.look_again()?,
                None => return None,
            };
            let (buffer, len) = self.filled(token)?;
            let count = match self.features & features::MRG_RXBUF {
                0 => 1,
                _ => header::buffers(&buffer.bytes),
            };
            if count > 1 {
                match self.merge((buffer, len), count) {
                    None => continue,
                    merged => return merged,
                }
            }
            return Some(Received {
                checksums: self.checksums(&buffer.bytes),
                buffer: ReceivedFrame {
                    start: self.header_len,
                    end: len.clamp(self.header_len, buffer.bytes.len()),
                    held: Held::One(buffer),
                },
            });
        }
    }

    fn recycle(&mut self, filled: ReceivedFrame) {
        match filled.held {
            Held::One(buffer) => self.give_back(buffer),
            Held::Merged(bytes) => self.merged = bytes,
        }
    }

    #[inline]
    fn send_ready(&mut self) -> bool {
        self.in_flight < self.transmit.size() || self.make_ready()
    }

    fn send_room(&mut self) -> usize {
        self.reclaim();
        self.transmit.size() - self.in_flight
    }

    fn send_room_max(&self) -> usize {
        self.transmit.size()
    }

    fn send<R>(&mut self, len: usize, cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.buffer(len, cut);
        let Some(frame) = buffer.get_mut(self.header_len..self.header_len + len) else {
            return fill(&mut vec![0; len]);
        };
        let result = fill(frame);
        self.submit(buffer, len, cut);
        result
    }

    /// Frames since the last call become visible together: a device that is awake would else
    /// send the first of an answer's segments alone, and what is behind the device may treat
    /// each by itself.
    #[inline]
    fn flush(&mut self) {
        if self.transmit.unpublished() != 0 {
            self.publish();
        }
    }
}
