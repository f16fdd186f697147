//! [`Queue`]: the events of an instance that were not read yet (kernel `fs/notify/notification.c`,
//! `fs/notify/inotify/inotify_fsnotify.c`).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use linux_raw_sys::general::{IN_IGNORED, IN_Q_OVERFLOW};
use tare_libos::sync::SpinLock;

use super::super::Watchers;
use crate::errno::{Errno, Result};

/// Most events that wait, but for the one that says that there were more, as Linux has it.
pub(crate) const MOST_EVENTS: usize = 16_384;
/// Most bytes that wait in all queues: what is beyond is lost as where a queue is full.
const MOST_BYTES: usize = 2 << 20;
/// Bytes of `struct inotify_event` without a name.
const HEAD: usize = 16;
/// Most bytes of a name, with its NUL and padding.
const MOST_NAME: usize = 256;
/// Room that an empty queue keeps.
const KEPT: usize = 4096;

/// Bytes that wait in all queues.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// An event, as it is read.
pub(super) struct Event {
    bytes: [u8; HEAD + MOST_NAME],
    length: usize,
}

impl Event {
    /// Of the watch `number`; an empty name is none.
    pub(super) fn new(number: i32, mask: u32, cookie: u32, name: &[u8]) -> Self {
        let name = &name[..name.len().min(MOST_NAME - 1)];
        let padded = match name.len() {
            0 => 0,
            length => (length + 1).next_multiple_of(HEAD),
        };
        let mut bytes = [0; HEAD + MOST_NAME];
        let fields = [number as u32, mask, cookie, padded as u32];
        for (slot, field) in bytes.chunks_exact_mut(4).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        bytes[HEAD..HEAD + name.len()].copy_from_slice(name);
        let length = HEAD + padded;
        Self { bytes, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[derive(Default)]
struct Events {
    /// As they are read, one behind the other.
    bytes: Vec<u8>,
    /// Where the first one begins: those before were read.
    start: usize,
    count: usize,
    /// Bytes of the last one.
    last: usize,
    /// One says that there were more.
    has_overflow: bool,
}

impl Events {
    /// Those that wait.
    fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn add(&mut self, event: &Event) {
        WAITING.fetch_add(event.length, Ordering::Relaxed);
        self.bytes.extend_from_slice(event.bytes());
        self.count += 1;
        self.last = event.length;
    }

    /// Whether the last one is the same, but for its cookie (`inotify_merge`).
    fn ends_with(&self, event: &Event) -> bool {
        if self.count == 0 || self.last != event.length {
            return false;
        }
        let last = &self.bytes[self.bytes.len() - self.last..];
        let is_cookie = |at: usize| (8..12).contains(&at);
        let mut pairs = last.iter().zip(event.bytes()).enumerate();
        field(last, MASK) & IN_IGNORED == 0
            && pairs.all(|(at, (one, other))| one == other || is_cookie(at))
    }

    /// Takes the first one, if `to` has room for it; gives its bytes.
    fn take(&mut self, to: &mut [u8]) -> Option<usize> {
        let first = self.waiting();
        let mask = field(first, MASK);
        let length = HEAD + field(first, NAME_BYTES) as usize;
        to.get_mut(..length)?.copy_from_slice(first.get(..length)?);
        self.start += length;
        self.count -= 1;
        self.has_overflow &= mask & IN_Q_OVERFLOW == 0;
        Some(length)
    }

    /// Gives room back: what waits is a quarter of it at least.
    fn shrink(&mut self) {
        if 2 * self.start < self.bytes.len() {
            return;
        }
        self.bytes.drain(..core::mem::take(&mut self.start));
        if self.bytes.capacity() > 4 * self.bytes.len().max(KEPT) {
            self.bytes.shrink_to(2 * self.bytes.len());
        }
    }
}

/// Which of an event's fields.
const MASK: usize = 1;
const NAME_BYTES: usize = 3;

fn field(event: &[u8], field: usize) -> u32 {
    let bytes = event.get(4 * field..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The queue of an instance.
#[derive(Default)]
pub(crate) struct Queue {
    events: SpinLock<Events>,
    /// Events that came: edges of event queues.
    arrivals: AtomicU64,
    /// The number of the last watch. It changes under the lock of the watches.
    pub(super) last_number: AtomicI32,
    pub(super) watchers: Watchers,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let waiting = self.events.get_mut().waiting().len();
        WAITING.fetch_sub(waiting, Ordering::Relaxed);
    }
}

impl Queue {
    /// Adds an event, unless the last one says the same; whether who waits is to be woken.
    pub(super) fn add(&self, event: &Event) -> bool {
        let mut events = self.events.lock();
        let is_full = events.count >= MOST_EVENTS;
        if !is_full && events.ends_with(event) {
            return false;
        }
        if !is_full && WAITING.load(Ordering::Relaxed) + event.length <= MOST_BYTES {
            events.add(event);
        } else if events.has_overflow {
            return false;
        } else {
            events.has_overflow = true;
            events.add(&Event::new(-1, IN_Q_OVERFLOW, 0, &[]));
        }
        self.arrivals.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes as many events as there is room for: EINVAL if that is none, EAGAIN if there are none.
    pub(super) fn read(&self, to: &mut [u8]) -> Result<usize> {
        let mut events = self.events.lock();
        let mut done = 0;
        while events.count > 0
            && let Some(length) = events.take(&mut to[done..])
        {
            done += length;
        }
        if done == 0 {
            let is_empty = events.count == 0;
            return Err(if is_empty {
                Errno::EAGAIN
            } else {
                Errno::EINVAL
            });
        }
        WAITING.fetch_sub(done, Ordering::Relaxed);
        events.shrink();
        Ok(done)
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.events.lock().waiting().len()
    }

    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    const EVENT: u32 = 2;
    /// What waits is counted over all queues.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// A watch's number, a mask, a cookie and a name.
    type Read = (i32, u32, u32, Vec<u8>);

    /// What can be read with `room` bytes.
    fn read(queue: &Queue, room: usize) -> Result<Vec<Read>> {
        let mut bytes = vec![0; room];
        let count = queue.read(&mut bytes)?;
        let mut rest = &bytes[..count];
        let mut events = Vec::new();
        while !rest.is_empty() {
            let field = |at: usize| u32::from_le_bytes(rest[4 * at..][..4].try_into().unwrap());
            let (head, behind) = rest.split_at(HEAD);
            let (name, next) = behind.split_at(field(3) as usize);
            assert_eq!(name.len() % head.len(), 0);
            let name = name.split(|byte| *byte == 0).next().unwrap();
            events.push((field(0) as i32, field(1), field(2), name.into()));
            rest = next;
        }
        Ok(events)
    }

    #[test]
    fn events_are_read_whole_and_in_order() {
        let _turn = TURN.lock();
        let queue = Queue::default();
        assert_eq!(read(&queue, 0), Err(Errno::EAGAIN));
        assert!(queue.add(&Event::new(1, EVENT, 7, b"fifteen letters")));
        assert!(queue.add(&Event::new(1, EVENT, 7, b"sixteen letters!")));
        assert!(queue.add(&Event::new(2, EVENT, 0, b"")));
        assert_eq!(queue.bytes(), 32 + 48 + 16);
        assert_eq!(read(&queue, 31), Err(Errno::EINVAL));
        let first = (1, EVENT, 7, b"fifteen letters".to_vec());
        assert_eq!(read(&queue, 79), Ok(vec![first]));
        let rest = read(&queue, 1000).unwrap();
        assert_eq!(rest[0].3, b"sixteen letters!");
        assert_eq!(rest[1], (2, EVENT, 0, vec![]));
        assert_eq!(queue.bytes(), 0);
        assert_eq!(queue.arrivals(), 3);
    }

    #[test]
    fn only_the_last_event_is_the_same_as_another() {
        let _turn = TURN.lock();
        let queue = Queue::default();
        let added = [
            Event::new(1, EVENT, 3, b"a"),
            // The same, though its cookie is another.
            Event::new(1, EVENT, 4, b"a"),
            Event::new(1, EVENT, 0, b"b"),
            Event::new(1, EVENT, 0, b"a"),
            Event::new(1, EVENT, 0, b""),
            Event::new(1, IN_IGNORED, 0, b""),
            Event::new(1, IN_IGNORED, 0, b""),
        ]
        .map(|event| queue.add(&event));
        assert_eq!(added, [true, false, true, true, true, true, true]);
    }

    #[test]
    fn a_full_queue_says_once_that_more_was_lost() {
        let _turn = TURN.lock();
        let queue = Queue::default();
        for number in 0..MOST_EVENTS as i32 {
            assert!(queue.add(&Event::new(number, EVENT, 0, b"")));
        }
        assert!(queue.add(&Event::new(1, EVENT, 0, b"")));
        assert!(!queue.add(&Event::new(2, EVENT, 0, b"")));
        let all = read(&queue, HEAD * (MOST_EVENTS + 2)).unwrap();
        assert_eq!(all.len(), MOST_EVENTS + 1);
        let overflow = (-1, IN_Q_OVERFLOW, 0, vec![]);
        assert_eq!(all.last(), Some(&overflow));
        assert!(queue.events.lock().bytes.capacity() <= 4 * KEPT);
        assert!(queue.add(&Event::new(1, EVENT, 0, b"")));
    }

    #[test]
    fn long_names_fill_a_queue_by_their_bytes() {
        let _turn = TURN.lock();
        let queue = Queue::default();
        let name = |number: u32| {
            let mut name = [b'x'; 300];
            name[..4].copy_from_slice(&number.to_le_bytes());
            name
        };
        for number in 0..MOST_EVENTS as u32 {
            queue.add(&Event::new(1, EVENT, 0, &name(number)));
        }
        assert!(queue.events.lock().has_overflow);
        assert!(queue.bytes() <= MOST_BYTES + HEAD);
    }
}
