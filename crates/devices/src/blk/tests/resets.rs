//! Reset with requests in flight, and more requests than may be in flight.

use super::*;

#[test]
fn a_reset_waits_for_the_engine_and_forgets_its_answers() {
    let (machine, gate) = held(settings());
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 64);
    Wanted::new(0, 1, 512).offer(&machine, &mut rings[0]);
    let _ = machine.io(|device| device.notified(0));
    driver.reset();
    assert_eq!(driver.status(), 0);
    assert_eq!(gate.lock().unwrap().drained, 1);
    assert_eq!(machine.counter("drained"), 1);
    gate.lock().unwrap().open = 9;
    let mut rings = driver.start(FEATURES, 64);
    let _ = machine.io(|device| device.backend_ready());
    assert_eq!(rings[0].used_index(), 0, "an answer from before the reset");
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(0, 2, 512)), 0);
}

#[test]
fn memory_is_the_drivers_again_after_a_reset() {
    let file = file();
    let Some(engine) = uring(&file) else { return };
    let machine = machine_with(settings(), &file, engine);
    let driver = Driver::new(&machine);
    for round in 0..20u8 {
        let mut rings = driver.start(FEATURES, 256);
        offer_deep_reads(&machine, &mut rings[0]);
        let _ = machine.io(|device| device.notified(0));
        driver.reset();
        // What the kernel still wrote now would be seen.
        for n in 0..32 {
            put(&machine.memory, DATA + n * 4096, &[0xf0 | round; 4096]);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        for n in 0..32 {
            let bytes = get(&machine.memory, DATA + n * 4096, 4096);
            assert_eq!(bytes, [0xf0 | round; 4096]);
        }
    }
    let mut rings = driver.start(FEATURES, 64);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(0, 1, 512)), 0);
}

#[test]
fn more_requests_than_fit_wait_their_turn() {
    let (machine, gate) = held(BlkSettings {
        queues: 8,
        ..settings()
    });
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES | 1 << 12 | 1 << 28, 256);
    put_header(&machine, HEADER, 0, 0);
    for (queue, ring) in (0u16..).zip(&mut rings) {
        for _ in 0..85 {
            ring.offer(&[(HEADER, 16, 0), (DATA, 512, WRITE), (STATUS, 1, WRITE)]);
        }
        while machine.io(|device| device.notified(queue)) == Progress::More {}
    }
    assert_eq!(gate.lock().unwrap().waiting, MAX_IN_FLIGHT);
    assert!(machine.counter("backpressure") > 0);
    gate.lock().unwrap().open = 10_000;
    for _ in 0..50 {
        let _ = machine.io(|device| device.backend_ready());
    }
    for ring in &rings {
        assert_eq!(ring.used_index(), 85);
    }
}

/// The kernel may finish requests on the thread that submitted them: here that
/// one sleeps while another resets, as an idle I/O thread and a vCPU do.
#[test]
fn a_reset_on_another_thread_waits_for_the_ring() {
    let program = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, vec![0x11; 1 << 20]).unwrap();
    let disk = Disk::open(&path, Access::ReadWrite).unwrap();
    let Some(engine) = uring(disk.file()) else {
        return;
    };
    let device = Blk::new(settings(), disk, engine, Box::new(MonotonicClock));
    let machine = MockMachine::new(device);
    let driver = Driver::new(&machine);
    let (to_io, notified) = std::sync::mpsc::channel();
    let (served, from_io) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let machine = &machine;
        scope.spawn(move || {
            for () in notified {
                let _ = machine.io(|device| device.notified(0));
                served.send(()).unwrap();
            }
        });
        for round in 0..20 {
            let mut rings = driver.start(FEATURES, 256);
            offer_deep_reads(machine, &mut rings[0]);
            to_io.send(()).unwrap();
            from_io.recv().unwrap();
            driver.reset();
            put(&machine.memory, DATA, &[0xf0 | round; 32 * 4096]);
            std::thread::sleep(std::time::Duration::from_millis(1));
            let bytes = get(&machine.memory, DATA, 32 * 4096);
            assert!(bytes.iter().all(|byte| *byte == 0xf0 | round));
        }
        drop(to_io);
    });
    assert!(machine.counter("drained") > 0, "nothing was in flight");
}
