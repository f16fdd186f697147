//! The serial console: output to screen and log, input, readers that do not read.

mod support;

use rustix::process::Signal;
use support::{Rig, Screen, code, eventually, kvm};
use tare_abi::exit::GuestExit;

#[test]
fn input_reaches_the_guest_and_its_end_wakes_no_thread() {
    if !kvm() {
        return;
    }
    let guest = code::all(&[&code::echo(), &code::print("done"), code::HALT]);
    let text = "0123456789".repeat(30) + "!";
    let mut running = Rig::new(&guest).input(text.as_bytes()).start();
    running.wait_for("done");
    running.close_input();
    let mut client = running.client();
    let mut run_ns = || -> u64 {
        let stats = client.stats().unwrap();
        let io = stats.threads.iter().find(|thread| thread.name == "io");
        io.unwrap().run_ns
    };
    std::thread::sleep(std::time::Duration::from_millis(50));
    let before = run_ns();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(
        run_ns(),
        before,
        "the end of input keeps the I/O thread busy"
    );
    running.signal(Signal::TERM);
    let ended = running.wait();
    ended.expect(143, "");
    assert_eq!(ended.stdout, text + "done");
}

#[test]
fn a_closed_standard_output_ends_nothing() {
    if !kvm() {
        return;
    }
    let guest = code::all(&[&code::print("unread"), &code::exit(GuestExit::Status(0))]);
    Rig::new(&guest).screen(Screen::Closed).run().expect(0, "");
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_the_guest() {
    if !kvm() {
        return;
    }
    let running = Rig::new(&code::flood(b'x')).screen(Screen::Ignored).start();
    let log = running.run_dir.console_log();
    // More than a pipe of 64 KiB holds.
    eventually("the guest goes on", || {
        std::fs::metadata(&log).is_ok_and(|log| log.len() > 70_000)
    });
    running.signal(Signal::TERM);
    running.wait().expect(143, "");
}
