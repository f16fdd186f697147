//! Requests that make no sense: a status, a counter, never a panic; and files
//! that let the device down.

use super::*;
use crate::virtio::driver::NEXT;

fn sync_machine() -> (File, MockMachine<Blk>) {
    let file = file();
    let machine = machine_with(settings(), &file, sync_engine(&file));
    (file, machine)
}

#[test]
fn a_request_that_makes_no_sense_gets_a_status() {
    let (_file, machine) = sync_machine();
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    for (wanted, status, counter) in [
        (Wanted::new(99, 0, 0), 2, "unsupported"),
        (Wanted::new(0, SECTORS, 512), 1, "out_of_range"),
        (Wanted::new(0, u64::MAX, 512), 1, "out_of_range"),
        (Wanted::new(1, SECTORS - 1, 1024), 1, "out_of_range"),
        (Wanted::new(0, 0, 511), 1, "malformed_requests"),
        (Wanted::new(1, 0, 0), 1, "malformed_requests"),
        (Wanted::new(8, 0, 19), 1, "malformed_requests"),
        (Wanted::new(11, 0, 15), 1, "malformed_requests"),
    ] {
        let before = machine.counter(counter);
        assert_eq!(
            request(&machine, &mut rings[0], wanted),
            status,
            "{counter}"
        );
        assert_eq!(machine.counter(counter), before + 1, "{counter}");
    }
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(0, 0, 512)), 0);
}

#[test]
fn ranges_are_checked() {
    let (file, machine) = sync_machine();
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    for (kind, sector, count, flags, status) in [
        (11, SECTORS, 1u32, 0u32, 1),
        (11, 0, 1, 1, 2),
        (13, 0, 1, 2, 2),
        (13, u64::MAX, u32::MAX, 0, 1),
        (13, 0, 0, 0, 1),
    ] {
        let mut range = sector.to_le_bytes().to_vec();
        range.extend_from_slice(&count.to_le_bytes());
        range.extend_from_slice(&flags.to_le_bytes());
        put(&machine.memory, DATA, &range);
        let got = request(&machine, &mut rings[0], Wanted::new(kind, 0, 16));
        assert_eq!(got, status, "{kind} {sector} {count} {flags}");
    }
    let mut second = [0; 512];
    file.read_exact_at(&mut second, 512).unwrap();
    assert_eq!(second, [1; 512], "nothing was touched");
}

#[test]
fn a_chain_without_status_or_header_is_given_back() {
    let (_file, machine) = sync_machine();
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    put_header(&machine, HEADER, 0, 0);
    rings[0].offer(&[(HEADER, 16, 0)]);
    assert_eq!(serve(&machine, &mut rings[0], 0, 1), [0]);
    rings[0].offer(&[(HEADER, 15, 0), (STATUS, 1, WRITE)]);
    assert_eq!(serve(&machine, &mut rings[0], 0, 1), [1]);
    assert_eq!(get(&machine.memory, STATUS, 1), [1]);
    rings[0].offer(&[(STATUS, 1, WRITE)]);
    assert_eq!(serve(&machine, &mut rings[0], 0, 1), [1]);
    assert_eq!(machine.counter("malformed_requests"), 3);
}

#[test]
fn data_in_the_wrong_direction_is_refused() {
    let (_file, machine) = sync_machine();
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    // A write whose data the device could only write.
    put_header(&machine, HEADER, 1, 0);
    rings[0].offer(&[(HEADER, 16, 0), (DATA, 512, WRITE), (STATUS, 1, WRITE)]);
    serve(&machine, &mut rings[0], 0, 1);
    assert_eq!(get(&machine.memory, STATUS, 1), [1]);
    // A read whose data the device could only read.
    put_header(&machine, HEADER, 0, 0);
    rings[0].offer(&[(HEADER, 16, 0), (DATA, 512, 0), (STATUS, 1, WRITE)]);
    serve(&machine, &mut rings[0], 0, 1);
    assert_eq!(get(&machine.memory, STATUS, 1), [1]);
    assert_eq!(machine.counter("malformed_requests"), 2);
}

#[test]
fn a_chain_outside_memory_breaks_the_queue_only() {
    let (_file, machine) = sync_machine();
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 64);
    put_header(&machine, HEADER, 0, 0);
    rings[0].offer(&[
        (HEADER, 16, NEXT),
        (1 << 40, 512, WRITE),
        (STATUS, 1, WRITE),
    ]);
    let _ = machine.io(|device| device.notified(0));
    assert_ne!(driver.status() & 0x40, 0, "DEVICE_NEEDS_RESET");
    let mut rings = driver.start(FEATURES, 64);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(0, 1, 512)), 0);
}

#[test]
fn overlapping_buffers_hurt_only_the_guest() {
    let (_file, machine) = sync_machine();
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    put_header(&machine, HEADER, 0, 5);
    rings[0].offer(&[
        (HEADER, 16, 0),
        (DATA, 512, WRITE),
        (DATA, 512, WRITE),
        (DATA + 511, 1, WRITE),
    ]);
    assert_eq!(serve(&machine, &mut rings[0], 0, 1), [1025]);
    assert_eq!(get(&machine.memory, DATA + 511, 1), [0]);
}

#[test]
fn a_read_only_disk_is_not_written() {
    let file = file();
    let disk = disk(&file, Access::ReadOnly);
    let engine = sync_engine(&file);
    let machine = MockMachine::new(Blk::new(settings(), disk, engine, Box::new(MonotonicClock)));
    let driver = Driver::new(&machine);
    let offered = driver.offered();
    assert_ne!(offered & 1 << 5, 0);
    assert_eq!(offered & (1 << 11 | 1 << 13 | 1 << 14), 0);
    let mut rings = driver.start(1 << 32 | 1 << 5, 64);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(1, 1, 512)), 1);
    assert_eq!(machine.counter("read_only_violations"), 1);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(0, 1, 512)), 0);
    driver.write_memory(driver.places.device + 32, 1, 0);
    assert_eq!(machine.counter("invalid_accesses"), 1);
}

#[test]
fn a_file_cut_short_fails_reads_beyond_and_no_others() {
    let file = file();
    for engine in [Some(sync_engine(&file)), uring(&file)]
        .into_iter()
        .flatten()
    {
        let machine = machine_with(settings(), &file, engine);
        let mut rings = Driver::new(&machine).start(FEATURES, 64);
        file.set_len(100 * 512).unwrap();
        assert_eq!(
            request(&machine, &mut rings[0], Wanted::new(0, 99, 1024)),
            1
        );
        assert_eq!(
            request(&machine, &mut rings[0], Wanted::new(0, 500, 512)),
            1
        );
        assert_eq!(machine.counter("truncated"), 2);
        assert_eq!(request(&machine, &mut rings[0], Wanted::new(0, 1, 512)), 0);
        file.set_len(SECTORS * 512).unwrap();
    }
}

#[test]
fn a_full_host_is_an_io_error() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let file = file();
    // The device believes in the file; the engine writes elsewhere.
    let machine = machine_with(settings(), &file, sync_engine(&full));
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(1, 1, 512)), 1);
    assert_eq!(machine.counter("no_space"), 1);
    assert_eq!(machine.counter("io_errors"), 1);
}

#[test]
fn the_negotiation_limits_what_is_known() {
    let (_file, machine) = sync_machine();
    let mut rings = Driver::new(&machine).start(1 << 32, 64);
    let mut range = [0; 16];
    range[8] = 1;
    put(&machine.memory, DATA, &range);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(11, 0, 16)), 2);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(13, 0, 16)), 2);
}

proptest! {
    #[test]
    fn what_the_parser_accepts_lies_on_the_disk(
        readable in 0usize..5000,
        writable in 0usize..5000,
        start: [u8; 32],
        kind in prop::sample::select(vec![0u32, 1, 4, 8, 11, 13, 14]),
        sector in prop::sample::select(vec![0u64, 1, 7, 8, 9, u64::MAX]),
    ) {
        let mut start = start;
        start[..4].copy_from_slice(&kind.to_le_bytes());
        start[8..16].copy_from_slice(&sector.to_le_bytes());
        let limits = RequestLimits { sectors: 8, writable: true, block_sectors: 1 };
        let shape = Shape { readable, writable, start };
        if let Ok(
            Request::Read { offset, len }
            | Request::Write { offset, len }
            | Request::Discard { offset, len }
            | Request::WriteZeroes { offset, len, .. },
        ) = parse(&shape, limits) {
            prop_assert!(len > 0 && len % 512 == 0 && offset % 512 == 0);
            prop_assert!(offset + len <= 8 * 512);
        }
    }
}
