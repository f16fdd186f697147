//! What was answered as durable is on disk after the process was killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;

const CHILD: &str = "TARE_TEST_DISK";
const NAME: &str = "blk::tests::durability::flushed_writes_survive_the_death_of_the_process";

/// Writes the numbers of rounds over eight sectors each, and says a number when
/// the flush behind it was answered. Until it is killed.
fn write_for_ever(path: &std::path::Path) {
    let disk = Disk::open(path, Access::ReadWrite).unwrap();
    let engine = choose(&disk).unwrap().engine;
    let device = Blk::new(settings(), disk, engine, Box::new(MonotonicClock));
    let machine = MockMachine::new(device);
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    for round in 1u32.. {
        for n in 0..8 {
            let data = DATA + n * 512;
            put(&machine.memory, data, &round.to_le_bytes().repeat(128));
            Wanted {
                data,
                status: STATUS + n * 0x40,
                ..Wanted::new(1, u64::from(round % 200) * 8 + n, 512)
            }
            .offer(&machine, &mut rings[0]);
        }
        serve(&machine, &mut rings[0], 0, 8);
        assert_eq!(request(&machine, &mut rings[0], Wanted::new(4, 0, 0)), 0);
        println!("flushed {round}");
    }
}

/// Kills it when it has said the number `round`; the last number that it said.
fn killed_after(round: u32, mut child: Child) -> u32 {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut numbers = lines.map_while(Result::ok).filter_map(|line| {
        let number = line.rsplit_once("flushed ")?.1.parse().ok()?;
        Some::<u32>(number)
    });
    let reached = numbers.find(|number| *number >= round);
    child.kill().unwrap();
    let last = numbers.last().or(reached);
    child.wait().unwrap();
    last.expect("it ended before it was killed")
}

#[test]
fn flushed_writes_survive_the_death_of_the_process() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_for_ever(path.as_ref());
    }
    let program = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = dir.path().join("disk.img");
    for round in [1, 100, 450] {
        let file = File::create(&path).unwrap();
        file.set_len(SECTORS * 512).unwrap();
        let child = Command::new(&program)
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let flushed = killed_after(round, child);
        let bytes = std::fs::read(&path).unwrap();
        for round in flushed.saturating_sub(198).max(1)..=flushed {
            let at = (round % 200) as usize * 8 * 512;
            for word in bytes[at..at + 8 * 512].chunks(4) {
                let found = u32::from_le_bytes(word.try_into().unwrap());
                // The round that was killed may have begun over the oldest ones.
                assert!(found == round || found == round + 200, "{found} in {round}");
            }
        }
        Disk::open(&path, Access::ReadWrite).expect("the lock ended with the process");
    }
}
