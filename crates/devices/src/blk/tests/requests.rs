//! Every type of request, on both engines.

use super::*;

/// Runs `test` on each engine that works here.
fn on_each_engine(test: impl Fn(&File, MockMachine<Blk>)) {
    let plain = file();
    test(
        &plain,
        machine_with(settings(), &plain, sync_engine(&plain)),
    );
    let other = file();
    if let Some(engine) = uring(&other) {
        test(&other, machine_with(settings(), &other, engine));
    }
}

#[test]
fn a_disk_is_what_its_configuration_says() {
    let file = file();
    let machine = machine_with(settings(), &file, sync_engine(&file));
    let driver = Driver::new(&machine);
    assert_eq!(driver.read_memory(driver.places.device, 8), SECTORS);
    assert_eq!(driver.read_memory(driver.places.device + 12, 4), 254);
    assert_eq!(driver.read_memory(driver.places.device + 20, 4), 512);
    let offered = driver.offered();
    assert_eq!(offered & FEATURES, FEATURES);
    assert_eq!(offered & 1 << 5, 0, "not read-only");
    assert_eq!(offered & 1 << 12, 0, "one queue");
}

#[test]
fn a_read_gives_the_files_bytes() {
    on_each_engine(|_, machine| {
        let mut rings = Driver::new(&machine).start(FEATURES, 64);
        Wanted::new(0, 7, 1024).offer(&machine, &mut rings[0]);
        assert_eq!(serve(&machine, &mut rings[0], 0, 1), [1025]);
        assert_eq!(get(&machine.memory, STATUS, 1), [0]);
        assert_eq!(get(&machine.memory, DATA, 512), [7; 512]);
        assert_eq!(get(&machine.memory, DATA + 512, 512), [8; 512]);
        assert_eq!(machine.counter("read_bytes"), 1024);
    });
}

#[test]
fn a_write_is_in_the_file() {
    on_each_engine(|file, machine| {
        let mut rings = Driver::new(&machine).start(FEATURES, 64);
        put(&machine.memory, DATA, &[0xaa; 512]);
        assert_eq!(request(&machine, &mut rings[0], Wanted::new(1, 9, 512)), 0);
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, 9 * 512).unwrap();
        assert_eq!(sector, [0xaa; 512]);
        assert_eq!(machine.counter("writes"), 1);
    });
}

#[test]
fn a_flush_is_answered_after_it_was_done() {
    on_each_engine(|_, machine| {
        let mut rings = Driver::new(&machine).start(FEATURES, 64);
        assert_eq!(request(&machine, &mut rings[0], Wanted::new(4, 0, 0)), 0);
        assert_eq!(machine.counter("flushes"), 1);
    });
}

#[test]
fn the_serial_number_is_returned() {
    on_each_engine(|_, machine| {
        let mut rings = Driver::new(&machine).start(FEATURES, 64);
        assert_eq!(request(&machine, &mut rings[0], Wanted::new(8, 0, 20)), 0);
        assert_eq!(get(&machine.memory, DATA, 20), settings().serial);
    });
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zeros() {
    on_each_engine(|file, machine| {
        let mut rings = Driver::new(&machine).start(FEATURES, 64);
        for (kind, sector, flags) in [(11, 8u64, 0u32), (13, 40, 0), (13, 80, 1)] {
            let mut range = sector.to_le_bytes().to_vec();
            range.extend_from_slice(&8u32.to_le_bytes());
            range.extend_from_slice(&flags.to_le_bytes());
            put(&machine.memory, DATA, &range);
            let wanted = Wanted::new(kind, 0, 16);
            assert_eq!(request(&machine, &mut rings[0], wanted), 0, "{kind}");
            let mut bytes = [1; 8 * 512];
            file.read_exact_at(&mut bytes, sector * 512).unwrap();
            assert_eq!(bytes, [0; 8 * 512], "{kind} {flags}");
        }
        let mut after = [0; 512];
        file.read_exact_at(&mut after, 16 * 512).unwrap();
        assert_eq!(after, [16; 512]);
        assert_eq!(file.metadata().unwrap().len(), SECTORS * 512);
    });
}

#[test]
fn a_request_in_many_pieces_is_one() {
    on_each_engine(|_, machine| {
        let mut rings = Driver::new(&machine).start(FEATURES, 64);
        put_header(&machine, HEADER, 0, 3);
        let pieces = [
            (HEADER, 5, 0),
            (HEADER + 5, 11, 0),
            (DATA, 100, WRITE),
            (DATA + 100, 413, WRITE),
        ];
        rings[0].offer(&pieces);
        serve(&machine, &mut rings[0], 0, 1);
        assert_eq!(
            get(&machine.memory, DATA, 513),
            [&[3; 512][..], &[0]].concat()
        );
    });
}

#[test]
fn several_queues_work_at_once() {
    let file = file();
    let Some(engine) = uring(&file) else { return };
    let several = BlkSettings {
        queues: 3,
        ..settings()
    };
    let machine = machine_with(several, &file, engine);
    let driver = Driver::new(&machine);
    assert_ne!(driver.offered() & 1 << 12, 0, "MQ");
    assert_eq!(driver.read_memory(driver.places.device + 34, 2), 3);
    let mut rings = driver.start(FEATURES | 1 << 12, 64);
    for (queue, ring) in (0u64..).zip(&mut rings) {
        for n in 0..16 {
            let request = queue * 16 + n;
            Wanted {
                data: DATA + request * 512,
                status: STATUS + request * 0x40,
                ..Wanted::new(0, request, 512)
            }
            .offer(&machine, ring);
        }
    }
    for (queue, ring) in (0u16..).zip(&mut rings) {
        serve(&machine, ring, queue, 16);
    }
    for request in 0..48u64 {
        let read = get(&machine.memory, DATA + request * 512, 512);
        assert_eq!(read, [request as u8; 512]);
    }
}
