//! Kills in mid-write and failures of power: nothing that was acknowledged is lost. Short
//! here; with TARE_SOAK=1 (`make soak`) for many rounds.

use std::fs::File;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tare_control::client::Client;
use tare_vhost::front::{Front, SLOTS};

use crate::daemon::Daemon;
use crate::support::fuse::{FuseDisk, HostCache};
use crate::support::needs::{built, kvm};
use crate::support::{TestDir, eventually};

const SECTOR: usize = 512;
const SECTORS: u64 = 256;

fn rounds(few: u32, many: u32) -> u32 {
    std::env::var_os("TARE_SOAK").map_or(few, |_| many)
}

/// A driver with as many writes in flight as its ring has room for, and the expected content of the
/// disk after all answers.
struct Writer {
    front: Front,
    /// Requests offered so far.
    offered: u16,
    /// Answers taken so far.
    answered: u16,
    /// The byte that each sector was last written with.
    model: Vec<u8>,
    random: u64,
}

impl Writer {
    fn connect(socket: &Path) -> Self {
        let mut front = Front::connect(socket);
        // A driver that knows the cache mode; before it negotiates that, every write is durable.
        front.config(32);
        front.share();
        front.start(0, 0).unwrap();
        Self {
            front,
            offered: 0,
            answered: 0,
            model: vec![0; SECTORS as usize],
            random: 0x2545_f491_4f6c_dd1d,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// A write from `slot`, to one of the sectors that only this slot writes: they are
    /// written one after the other.
    fn write(&mut self, slot: u16) {
        let slots = u64::from(SLOTS);
        let sector = self.below(SECTORS / slots) * slots + u64::from(slot);
        let byte = self.below(255) as u8 + 1;
        self.model[sector as usize] = byte;
        self.front.offer_write_in(slot, self.offered, sector, byte);
        self.offered = self.offered.wrapping_add(1);
    }

    fn write_in_all(&mut self) {
        (0..SLOTS).for_each(|slot| self.write(slot));
        self.front.notify();
    }

    /// The slots that have an answer since the last call.
    fn answers(&mut self) -> Vec<u16> {
        let mut slots = Vec::new();
        while self.answered != self.front.used() {
            let slot = self.front.used_slot(self.answered);
            assert_eq!(self.front.status(slot), 0);
            self.answered = self.answered.wrapping_add(1);
            slots.push(slot);
        }
        slots
    }

    /// Keeps all slots in use until `count` more answers came.
    fn work(&mut self, count: usize) {
        let mut came = 0;
        eventually("answers", || {
            for slot in self.answers() {
                came += 1;
                self.write(slot);
                self.front.notify();
            }
            came >= count
        });
    }

    fn finish(&mut self) {
        eventually("the last answers", || {
            self.answers();
            self.answered == self.offered
        });
    }
}

#[track_caller]
fn assert_disk(model: &[u8], disk: &[u8], when: &str) {
    for (sector, byte) in model.iter().enumerate() {
        let found = &disk[sector * SECTOR..][..SECTOR];
        assert!(
            found.iter().all(|it| it == byte),
            "{when}: sector {sector} is not {byte}"
        );
    }
}

#[test]
fn no_write_is_lost_when_the_daemon_is_killed() {
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; SECTORS as usize * SECTOR]);
    let mut daemon = Daemon::start(&place, &disk);
    let mut writer = Writer::connect(&place.path().join("s"));
    writer.write_in_all();
    for round in 0..rounds(4, 200) {
        let count = 20 + writer.below(200) as usize;
        writer.work(count);
        daemon.kill();
        daemon = Daemon::start_again(&place, &disk);
        writer.front.reconnect(&place.path().join("s"));
        writer.finish();
        let found = std::fs::read(&disk).unwrap();
        assert_disk(&writer.model, &found, &format!("after kill {round}"));
        writer.write_in_all();
    }
    writer.finish();
}

/// After each flush, and with a write-through cache after each write, checks what would survive a
/// power failure.
#[test]
fn what_is_durable_survives_a_failure_of_power() {
    for cache in ["writeback", "writethrough"] {
        let place = TestDir::new();
        let bytes = SECTORS as usize * SECTOR;
        let Some(disk) = FuseDisk::mount(&place.path().join("fs"), bytes, HostCache::No) else {
            return;
        };
        let mut daemon = Daemon::start(&place, &format!("{},cache={cache}", disk.path()));
        let mut writer = Writer::connect(&place.path().join("s"));
        let mut volatile = 0;
        for round in 0..rounds(30, 2_000) {
            writer.write_in_all();
            writer.finish();
            if cache == "writeback" {
                let durable = disk.durable();
                let lost = writer.model.iter().zip(durable.chunks(SECTOR));
                volatile += lost.filter(|(byte, found)| found[0] != **byte).count();
                writer.front.offer_flush_in(0, writer.offered);
                writer.offered = writer.offered.wrapping_add(1);
                writer.front.notify();
                writer.finish();
            }
            assert_disk(
                &writer.model,
                &disk.durable(),
                &format!("{cache}, round {round}"),
            );
        }
        assert_eq!(
            volatile > 0,
            cache == "writeback",
            "the disk forgets: {volatile}"
        );
        drop(writer);
        assert_eq!(daemon.signal(Signal::TERM).code, Some(143));
    }
}

/// The same for a machine's disk: its guest writes blocks again and again, each time with the next
/// pattern. What is durable adds up to the writes that were answered before, at least, where the cache is
/// write-through, and else to the flushes of a guest that flushes after each write.
#[test]
fn what_a_machine_has_made_durable_survives_a_failure_of_power() {
    const DEPTH: usize = 8;
    const BYTES: usize = 4 << 20;
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let endless = "read=0 verify=on ms=600000 warm_ms=0 ramp_ms=0";
    for (cache, job, durable) in [
        ("writethrough", format!("cif={DEPTH} {endless}"), "writes"),
        (
            "writeback",
            format!("cif=1 flush_every=1 {endless}"),
            "flushes",
        ),
    ] {
        let place = TestDir::new();
        let Some(disk) = FuseDisk::mount(&place.path().join("fs"), BYTES, HostCache::No) else {
            return;
        };
        let path = format!("{},cache={cache}", disk.path());
        let mut machine = place.loads_disk(&image, &path, &job);
        let mut control = Client::new(place.run_root().join("db/control.sock"));
        let mut told = 0;
        for round in 0..rounds(8, 500) {
            let before = told;
            eventually("the guest writes", || {
                let stats = control.stats();
                let devices = stats.iter().flat_map(|stats| &stats.devices);
                told = devices.filter_map(|it| it.counters.get(durable)).sum();
                told > before + 20
            });
            let (there, torn) = generations(&disk.durable());
            assert!(
                torn <= DEPTH,
                "{cache}: {torn} blocks are neither old nor new"
            );
            assert!(
                torn > 0 || there >= told,
                "{cache}, round {round}: {there} of {told} {durable}"
            );
        }
        let pid = Pid::from_child(&machine);
        kill_process(pid, Signal::TERM).unwrap();
        machine.wait().unwrap();
    }
}

/// How often the `blk` appliance has written the blocks of a disk together, and how many are neither
/// empty nor whole.
fn generations(disk: &[u8]) -> (u64, usize) {
    const BLOCK: usize = 4096;
    let blocks = (0..).zip(disk.chunks(BLOCK));
    let all: Vec<_> = blocks.map(|(n, bytes)| generation(bytes, n)).collect();
    let torn = all.iter().filter(|it| it.is_none()).count();
    (all.iter().flatten().sum(), torn)
}

/// How often the `blk` appliance has written the block with its pattern; `None`: it is
/// neither empty nor whole.
fn generation(bytes: &[u8], block: u64) -> Option<u64> {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|it| u64::from_le_bytes(*it)).collect();
    if words.iter().all(|word| *word == 0) {
        return Some(0);
    }
    let first = |generation: u64| (block ^ generation << 40).wrapping_mul(PRIME) | 1;
    let generation = (1..10_000).find(|it| first(*it) == words[0])?;
    let mut expected = words[0];
    let whole = words.iter().all(|word| {
        let same = *word == expected;
        expected = expected.wrapping_add(PRIME);
        same
    });
    whole.then_some(generation)
}

/// The guest writes blocks again and again, each time with the next pattern. What is in
/// them after the kill adds up to the writes that were answered before it, at least.
#[test]
fn no_write_is_lost_when_the_monitor_is_killed() {
    const DEPTH: usize = 8;
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    for round in 0..rounds(2, 50) {
        let place = TestDir::new();
        let disk = place.path().join("d.img");
        File::create(&disk).unwrap().set_len(4 << 20).unwrap();
        let job = "cif=8 read=0 verify=on ms=600000 warm_ms=0 ramp_ms=0";
        let mut machine = place.loads_disk(&image, disk.to_str().unwrap(), job);
        let mut control = Client::new(place.run_root().join("db/control.sock"));
        let mut writes = 0;
        eventually("the guest writes", || {
            let stats = control.stats();
            let devices = stats.iter().flat_map(|stats| &stats.devices);
            writes = devices.filter_map(|it| it.counters.get("writes")).sum();
            writes > 100 + 150 * u64::from(round)
        });
        let pid = control.stats().unwrap().pid;
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        machine.wait().unwrap();
        let found = std::fs::read(&disk).unwrap();
        let (there, torn) = generations(&found);
        assert!(torn <= DEPTH, "{torn} blocks are neither old nor new");
        assert!(torn > 0 || there >= writes, "{there} of {writes} writes");
    }
}
