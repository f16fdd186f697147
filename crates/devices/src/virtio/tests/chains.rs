//! Descriptor chains and rings, good and hostile.

use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::MockSplitQueue;
use vm_memory::GuestAddress;

use super::super::{Chain, QueueError, QueueSettings, Virtqueue};
use super::*;
use crate::GuestRam;

const TABLE: u64 = BUFFERS + 0x1000;
const END: u64 = MEMORY_LEN as u64;

/// Lays something hostile into a ring of 16 entries.
type Attack = fn(&GuestRam, &mut Ring<'_>);

fn indirect(memory: &GuestRam, ring: &mut Ring<'_>, len: u32, table: &[(u64, u32, u16, u16)]) {
    for (n, descriptor) in table.iter().enumerate() {
        write_descriptor(memory, TABLE + n as u64 * 16, *descriptor);
    }
    ring.offer(&[(TABLE, len, INDIRECT)]);
}

const ATTACKS: &[(&str, Attack)] = &[
    ("a descriptor that follows itself", |_, ring| {
        ring.set_descriptor(0, BUFFERS, 16, NEXT | WRITE, 0);
        ring.offer_head(0);
    }),
    ("a loop of two", |_, ring| {
        ring.set_descriptor(0, BUFFERS, 16, NEXT | WRITE, 1);
        ring.set_descriptor(1, BUFFERS, 16, NEXT | WRITE, 0);
        ring.offer_head(0);
    }),
    ("a next index beyond the table", |_, ring| {
        ring.set_descriptor(0, BUFFERS, 16, NEXT | WRITE, 16);
        ring.offer_head(0);
    }),
    ("a head beyond the table", |_, ring| ring.offer_head(16)),
    ("the largest head", |_, ring| ring.offer_head(0xffff)),
    ("a buffer beyond memory", |_, ring| {
        ring.offer(&[(END, 16, WRITE)]);
    }),
    ("a buffer that leaves memory", |_, ring| {
        ring.offer(&[(END - 8, 16, WRITE)]);
    }),
    ("a buffer that wraps around", |_, ring| {
        ring.offer(&[(u64::MAX - 7, 16, WRITE)]);
    }),
    ("the longest buffer", |_, ring| {
        ring.offer(&[(BUFFERS, u32::MAX, WRITE)]);
    }),
    ("a chain of no bytes", |_, ring| {
        ring.offer(&[(BUFFERS, 0, WRITE)]);
    }),
    ("a buffer to read where one to write is due", |_, ring| {
        ring.offer(&[(BUFFERS, 16, 0)]);
    }),
    ("both directions in this device's queue", |_, ring| {
        ring.offer(&[(BUFFERS, 16, 0), (BUFFERS, 16, WRITE)]);
    }),
    ("a buffer to read behind one to write", |_, ring| {
        ring.offer(&[(BUFFERS, 16, WRITE), (BUFFERS, 16, 0)]);
    }),
    ("an indirect table within one", |memory, ring| {
        indirect(memory, ring, 16, &[(TABLE, 16, INDIRECT, 0)]);
    }),
    ("an indirect table beyond memory", |_, ring| {
        ring.offer(&[(END, 16, INDIRECT)]);
    }),
    ("an indirect table of no bytes", |_, ring| {
        ring.offer(&[(TABLE, 0, INDIRECT)]);
    }),
    ("an indirect table of half a descriptor", |_, ring| {
        ring.offer(&[(TABLE, 24, INDIRECT)]);
    }),
    ("an indirect table of 65,536 entries", |_, ring| {
        ring.offer(&[(TABLE, 16 << 16, INDIRECT)]);
    }),
    ("a loop in an indirect table", |memory, ring| {
        let flags = NEXT | WRITE;
        let table = [(BUFFERS, 16, flags, 1), (BUFFERS, 16, flags, 0)];
        indirect(memory, ring, 32, &table);
    }),
    ("an indirect chain longer than the queue", |memory, ring| {
        let entry = |n| (BUFFERS, 1, if n < 17 { NEXT | WRITE } else { WRITE }, n);
        let table: Vec<_> = (1..=17).map(entry).collect();
        indirect(memory, ring, 17 * 16, &table);
    }),
    ("more than 4 GiB in all", |memory, ring| {
        let table: Vec<_> = (1..=5)
            .map(|n| (0, 0xf_ffff, NEXT | WRITE, n % 5))
            .collect();
        indirect(memory, ring, 5 * 16, &table);
    }),
    ("an available index ahead of the ring", |_, ring| {
        ring.set_available_index(17);
    }),
    ("an available index behind the device", |_, ring| {
        ring.set_available_index(0xffff);
    }),
];

#[test]
fn every_attack_on_a_queue_stops_the_device_until_reset() {
    for features in [VERSION_1, VERSION_1 | EVENT_IDX | INDIRECT_DESC] {
        for (what, attack) in ATTACKS {
            let machine = machine();
            let driver = Driver::new(&machine);
            let mut rings = driver.start(features, 16);
            take(&machine.recorder.kicks);
            attack(&machine.memory, &mut rings[0]);
            assert_eq!(notified(&machine), Progress::Done, "{what}");
            assert_eq!(driver.status(), STARTED | NEEDS_RESET, "{what}");
            assert_eq!(machine.counter("malformed"), 1, "{what}");
            assert_eq!(
                take(&machine.recorder.signals),
                [1],
                "{what}: configuration"
            );
            assert_eq!(driver.read_memory(driver.places.isr, 1), 2, "{what}");
            assert_eq!(rings[0].used_index(), 0, "{what}");
            assert!(!answers(&machine, &mut rings[0]), "{what}");
            assert_eq!(machine.counter("malformed"), 1, "{what}: once");
            let mut rings = driver.start(features, 16);
            assert!(answers(&machine, &mut rings[0]), "{what}: reset cures it");
        }
    }
}

#[test]
fn requests_before_a_broken_one_are_answered() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1, 16);
    rings[0].offer(&[(BUFFERS, 16, WRITE)]);
    rings[0].offer_head(99);
    let _ = notified(&machine);
    assert_eq!(rings[0].take_used(), Some((0, 16)));
    assert_eq!(rings[0].take_used(), None);
}

#[test]
fn a_buffer_may_end_where_memory_ends_and_hold_nothing() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1, 16);
    rings[0].offer(&[(BUFFERS, 0, WRITE), (END - 16, 16, WRITE)]);
    let _ = notified(&machine);
    assert_eq!(rings[0].take_used(), Some((0, 16)));
}

#[test]
fn an_indirect_chain_of_the_queues_size_is_served() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1 | INDIRECT_DESC, 16);
    let entry = |n| (BUFFERS, 1, if n < 16 { NEXT | WRITE } else { WRITE }, n);
    let table: Vec<_> = (1..=16).map(entry).collect();
    indirect(&machine.memory, &mut rings[0], 16 * 16, &table);
    let _ = notified(&machine);
    assert_eq!(rings[0].take_used(), Some((0, 16)));
}

#[test]
fn a_request_gets_no_more_than_the_device_gives() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1, 16);
    rings[0].offer(&[(BUFFERS, 0x4000, WRITE)]);
    let _ = notified(&machine);
    assert_eq!(rings[0].take_used(), Some((0, REQUEST_LEN as u32)));
}

fn memory() -> GuestRam {
    GuestRam::from_ranges(&[(GuestAddress(0), 0x4_0000)]).unwrap()
}

/// A live queue over virtio-queue's mock driver.
fn live(mock: &MockSplitQueue<'_, GuestRam>, memory: &GuestRam, size: u16) -> Virtqueue {
    let settings = QueueSettings {
        descriptors: mock.desc_table_addr().0,
        available: mock.avail_addr().0,
        used: mock.used_addr().0,
        ..QueueSettings::new(size)
    };
    Virtqueue::new(settings.build(memory).unwrap(), false)
}

fn descriptor(address: u64, len: u32, flags: u16) -> RawDescriptor {
    RawDescriptor::from(Descriptor::new(address, len, flags, 0))
}

proptest! {
    #[test]
    fn bytes_pass_through_any_cut_into_buffers(
        lens in proptest::collection::vec(0u32..200, 1..8),
        offset in 0usize..300,
        data in proptest::collection::vec(any::<u8>(), 0..700),
    ) {
        let memory = memory();
        let mock = MockSplitQueue::create(&memory, GuestAddress(0x1000), 16);
        let mut queue = live(&mock, &memory, 16);
        let place = |n: usize| 0x1_0000 + n as u64 * 0x400;
        let spans = lens.iter().enumerate();
        for flags in [WRITE, 0] {
            let chain: Vec<_> = spans.clone()
                .map(|(n, len)| descriptor(place(n), *len, flags))
                .collect();
            mock.build_desc_chain(&chain).unwrap();
        }
        let mut chain = Chain::default();
        let total = lens.iter().sum::<u32>() as usize;
        let fits = offset + data.len() <= total || data.is_empty();

        // Both chains begin at descriptor 0, and the last one laid out is to be
        // read: what is written here is written by hand.
        prop_assert!(queue.pop(&memory, &mut chain).unwrap());
        prop_assert_eq!(chain.readable_len(), total);
        let flat: Vec<u8> = (0..total).map(|n| n as u8).collect();
        let mut rest = &flat[..];
        for (n, len) in lens.iter().enumerate() {
            let (part, tail) = rest.split_at(*len as usize);
            super::super::driver::put(&memory, place(n), part);
            rest = tail;
        }
        let mut read = vec![0; data.len()];
        match chain.read(&memory, offset, &mut read) {
            Ok(()) => {
                prop_assert!(fits);
                if !read.is_empty() {
                    prop_assert_eq!(&read[..], &flat[offset..offset + read.len()]);
                }
            }
            Err(error) => prop_assert!(!fits && matches!(error, QueueError::TooShort)),
        }
    }

    #[test]
    fn written_bytes_arrive_in_order(
        lens in proptest::collection::vec(1u32..200, 1..8),
        data in proptest::collection::vec(any::<u8>(), 0..700),
    ) {
        let memory = memory();
        let mock = MockSplitQueue::create(&memory, GuestAddress(0x1000), 16);
        let mut queue = live(&mock, &memory, 16);
        let descriptors: Vec<_> = lens
            .iter()
            .enumerate()
            .map(|(n, len)| descriptor(0x1_0000 + n as u64 * 0x400, *len, WRITE))
            .collect();
        mock.build_desc_chain(&descriptors).unwrap();
        let mut chain = Chain::default();
        prop_assert!(queue.pop(&memory, &mut chain).unwrap());
        let written = chain.write(&memory, 0, &data);
        prop_assert_eq!(written.is_ok(), data.len() <= chain.writable_len());
        let arrived: Vec<u8> = lens
            .iter()
            .enumerate()
            .flat_map(|(n, len)| get(&memory, 0x1_0000 + n as u64 * 0x400, *len as usize))
            .collect();
        let len = data.len().min(arrived.len());
        prop_assert_eq!(&arrived[..len], &data[..len]);
    }
}

#[test]
fn chains_put_back_are_popped_again_and_completed_at_once() {
    let memory = memory();
    let mock = MockSplitQueue::create(&memory, GuestAddress(0x1000), 16);
    let mut queue = live(&mock, &memory, 16);
    let chains: Vec<_> = (0..3)
        .map(|n| descriptor(0x1_0000 + n * 16, 16, WRITE))
        .collect();
    mock.add_desc_chains(&chains, 0).unwrap();
    let mut chain = Chain::default();
    for _ in 0..2 {
        for head in 0..3 {
            assert!(queue.pop(&memory, &mut chain).unwrap());
            assert_eq!(chain.head(), head);
        }
        assert!(!queue.pop(&memory, &mut chain).unwrap());
        queue.unpop(3);
    }
    queue.complete_all(&memory, &[(2, 5), (0, 6)]).unwrap();
    assert_eq!(mock.used().idx().load(), 2);
    assert_eq!(mock.used().ring().ref_at(0).unwrap().load().id(), 2);
    assert_eq!(mock.used().ring().ref_at(1).unwrap().load().len(), 6);
}

/// Chains that were used up and not seen yet would come back to a driver after it had seen none:
/// Tare's for networks then takes the device for one that has chains left.
#[test]
fn a_notification_is_asked_for_once_the_driver_sees_what_used_the_chains_up() {
    let memory = memory();
    let mock = MockSplitQueue::create(&memory, GuestAddress(0x1000), 16);
    let mut queue = live(&mock, &memory, 16);
    let chains = [0, 1].map(|n| descriptor(0x1_0000 + n * 16, 16, WRITE));
    mock.add_desc_chains(&chains, 0).unwrap();
    let mut chain = Chain::default();
    for head in 0..2 {
        assert!(queue.pop_or_ask(&memory, &mut chain).unwrap());
        queue.stage(&memory, &[(head, 8)]).unwrap();
        assert_eq!(mock.used().idx().load(), 0, "seen together");
    }
    assert!(!queue.pop_or_ask(&memory, &mut chain).unwrap());
    assert_eq!(mock.used().idx().load(), 2);
}
