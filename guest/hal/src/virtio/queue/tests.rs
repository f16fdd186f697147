//! Queues beside a device that is played by the test: it reads and writes the same memory.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::Registers;
use super::*;

const NETWORK: u32 = 1;

fn queue(offered: u32, options: QueueOptions) -> Result<Queue> {
    let (device, _) = Registers::new(NETWORK, 1, offered).leak();
    let mut transport = Transport::in_memory(device).expect("a device");
    Queue::new(&mut transport, 0, options)
}

fn options(longest: u16) -> QueueOptions {
    QueueOptions {
        longest,
        indirect: false,
        event_idx: false,
    }
}

/// The device's side of a queue, which reads what requests hold.
struct Device(DeviceSide);

/// A request as the device finds it.
struct Found {
    token: u16,
    /// Bytes to read, and the address and length of those to write.
    read: Vec<u8>,
    written: Vec<(u64, u32)>,
}

impl Device {
    fn of(queue: &Queue) -> Self {
        Self(queue.device_side())
    }

    fn next(&mut self) -> Option<Found> {
        let token = self.0.take_next()?;
        let mut chain = Vec::new();
        let first: Descriptor = self.0.at(16 * usize::from(token));
        if first.flags == INDIRECT {
            let len = first.len as usize / 16;
            let table = first.address as *const Descriptor;
            // SAFETY: 1. The address and length are those that `add_table` wrote. 2. The driver
            //    keeps the table until it takes the request, which this test does later.
            chain.extend(unsafe { core::slice::from_raw_parts(table, len) });
        } else {
            let mut next = first;
            while next.flags & NEXT != 0 {
                chain.push(next);
                next = self.0.at(16 * usize::from(next.next));
            }
            chain.push(next);
        }
        for (place, descriptor) in chain.iter().enumerate() {
            let is_last = place + 1 == chain.len();
            assert_eq!(descriptor.flags & NEXT == 0, is_last);
        }
        let mut found = Found {
            token,
            read: Vec::new(),
            written: Vec::new(),
        };
        for it in chain {
            if it.flags & WRITE != 0 {
                found.written.push((it.address, it.len));
                continue;
            }
            assert!(found.written.is_empty(), "read before written");
            // SAFETY: 1. The address and length are those of a buffer that the test has added. 2.
            //    The test keeps it until it has taken the request.
            let bytes =
                unsafe { core::slice::from_raw_parts(it.address as *const u8, it.len as usize) };
            found.read.extend(bytes);
        }
        Some(found)
    }
}

#[test]
fn a_queue_is_as_long_as_device_and_driver_want_it() {
    for (offered, longest, size) in [
        (0, 64, None),
        (1, 64, Some(1)),
        (8, 64, Some(8)),
        (16, 64, Some(16)),
        (48, 64, Some(32)),
        (64, 64, Some(64)),
        (256, 64, Some(64)),
        (u32::MAX, 256, Some(256)),
        (100, 256, Some(64)),
    ] {
        let made = queue(offered, options(longest));
        assert_eq!(
            made.ok().map(|it| it.size()),
            size,
            "{offered} of {longest}"
        );
    }
}

#[test]
fn what_a_device_makes_up_is_not_taken() {
    let mut queue = queue(8, options(8)).unwrap();
    let mut device = Device::of(&queue);
    let (head, data) = ([1u8; 4], [2u8; 8]);
    // SAFETY: 1. The arrays live to the end of the test, beyond the queue's use of them.
    let token = unsafe { queue.add(&[&head, &data], &mut []) }.unwrap();
    assert_eq!(token, 0);
    for id in [1, 7, 8, 0xffff, 0x1_0000, u32::MAX] {
        device.0.complete(id, 99);
        let claimed = queue.peek().expect("a completion");
        assert_eq!(queue.take(claimed), None, "{id:#x}");
        assert_eq!(queue.take(token), None, "{id:#x}");
        // The driver would give the device up; here it takes back what it said.
        device.0.take_back();
    }
    device.0.complete(token.into(), 0);
    assert_eq!(queue.take(token), Some(0));
    assert!(queue.has_room(8) && !queue.has_room(9));
    // Once more the same: it is in flight no longer.
    device.0.complete(token.into(), 0);
    assert_eq!(queue.take(token), None);
}

#[test]
fn notifications_are_wanted_as_the_device_says() {
    let event_idx = QueueOptions {
        event_idx: true,
        ..options(4)
    };
    for (options, by_index) in [(options(4), false), (event_idx, true)] {
        let mut queue = queue(4, options).unwrap();
        let mut device = Device::of(&queue);
        let byte = [0u8];
        // Past the point where indices begin anew.
        for round in 0..70_000u32 {
            // The device wants to know of every third request only.
            let wants = round % 3 == 0;
            if by_index {
                let event = if wants {
                    round as u16
                } else {
                    (round as u16).wrapping_sub(1)
                };
                device.0.ask_at(event);
            } else {
                device.0.set_flags(u16::from(!wants));
            }
            // SAFETY: 1. The byte lives to the end of the round, beyond the queue's use of it.
            let token = unsafe { queue.add(&[&byte], &mut []) }.unwrap();
            assert_eq!(queue.should_notify(), wants, "round {round}");
            device.next().unwrap();
            device.0.complete(token.into(), 0);
            assert_eq!(queue.take(token), Some(0));
        }
    }
}

#[test]
fn what_is_prepared_is_seen_at_once_and_notified_once() {
    let event_idx = QueueOptions {
        event_idx: true,
        ..options(4)
    };
    let mut queue = queue(4, event_idx).unwrap();
    let mut device = Device::of(&queue);
    let byte = [0u8];
    for round in 0..30_000u16 {
        // The device wants to know of the first one.
        device.0.ask_at(round.wrapping_mul(3));
        let tokens: Vec<_> = (0..3)
            // SAFETY: 1. The byte lives to the end of the test, beyond the queue's use of it.
            .map(|_| unsafe { queue.prepare(&[&byte], &mut []) }.unwrap())
            .collect();
        assert!(device.next().is_none() && queue.unpublished() == 3);
        queue.publish();
        assert!(queue.should_notify() && !queue.should_notify());
        assert_eq!(queue.unpublished(), 0);
        for token in tokens {
            assert_eq!(device.next().unwrap().token, token);
            device.0.complete(token.into(), 0);
            assert_eq!(queue.take(token), Some(0));
        }
        assert!(device.next().is_none());
    }
}

proptest! {
    /// Requests of one to three buffers, completed in any order.
    #[test]
    fn requests_come_back_as_they_were_completed(
        log in 0u32..6,
        indirect in any::<bool>(),
        event_idx in any::<bool>(),
        steps in prop::collection::vec((0u8..3, 0usize..64), 1..300),
    ) {
        let options = QueueOptions { longest: 32, indirect, event_idx };
        let mut queue = queue(1 << log, options).unwrap();
        let mut device = Device::of(&queue);
        let mut in_flight: HashMap<u16, (u8, usize)> = HashMap::new();
        let mut held: Vec<Found> = Vec::new();
        let bytes: Vec<Vec<u8>> = (0..=255u8).map(|n| vec![n; 3]).collect();
        let mut results = vec![[0u8; 2]; 256];
        let mut number = 0u8;
        for (what, which) in steps {
            match what {
                0 => {
                    let buffers = which % 3 + 1;
                    let data = &bytes[usize::from(number)][..];
                    let result = &mut results[usize::from(number)][..];
                    let fits = queue.has_room(buffers);
                    let token = match buffers {
                        // SAFETY: 1. `bytes` and `results` live longer than the queue's use of
                        //    them, and neither moves its buffers.
                        1 => unsafe { queue.add(&[data], &mut []) },
                        // SAFETY: 1. As for one buffer: both live longer than the queue's use of
                        //    them. 2. Each request has its own `result`.
                        2 => unsafe { queue.add(&[data], &mut [result]) },
                        // SAFETY: 1. As for one buffer: all live longer than the queue's use of
                        //    them. 2. Each request has its own `result`.
                        _ => unsafe { queue.add(&[data, data], &mut [result]) },
                    };
                    prop_assert_eq!(token.is_some(), fits);
                    if let Some(token) = token {
                        prop_assert!(in_flight.insert(token, (number, buffers)).is_none());
                        number = number.wrapping_add(1);
                    }
                }
                1 => held.extend(device.next()),
                _ if held.is_empty() => {}
                _ => {
                    let found = held.swap_remove(which % held.len());
                    let (number, buffers) = in_flight[&found.token];
                    let copies = if buffers == 3 { 2 } else { 1 };
                    prop_assert_eq!(&found.read, &vec![number; 3 * copies]);
                    prop_assert_eq!(found.written.len(), usize::from(buffers > 1));
                    device.0.complete(found.token.into(), number.into());
                    prop_assert_eq!(queue.peek(), Some(found.token));
                    prop_assert_eq!(queue.take(found.token), Some(number.into()));
                    in_flight.remove(&found.token);
                }
            }
            let taken: usize = if indirect {
                in_flight.len()
            } else {
                in_flight.values().map(|(_, buffers)| buffers).sum()
            };
            prop_assert_eq!(usize::from(queue.free_len), queue.size() - taken);
        }
    }
}
