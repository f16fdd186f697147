//! Random calls, and the end of the machine at any write: what is found then is a file system
//! without faults, with all that was synced.

#![allow(clippy::unwrap_used)]

mod support;

use support::workload::{Workload, files};
use support::{LossyDisk, Random, faults, formatted};
use tare_ext4::{Ext4Volume, mount_on};
use tare_libos::block::Access;
use tare_linux::volume::Volume;

/// A small cache: it writes back between syncs too.
const CACHE: u64 = 600 << 10;
const STEPS: usize = 150;

fn mounted(disk: &LossyDisk) -> Ext4Volume {
    mount_on("disk0", Box::new(disk.clone()), Access::ReadWrite, CACHE).unwrap()
}

/// How often; `TARE_SOAK=ROUNDS` for more.
fn rounds(usual: u64) -> u64 {
    let soak = std::env::var("TARE_SOAK").ok();
    soak.and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}

#[test]
fn random_calls_leave_what_a_model_says() {
    let empty = formatted(8, &[]);
    for seed in 0..rounds(6) {
        let disk = LossyDisk::new(empty.clone());
        let volume = mounted(&disk);
        let mut work = Workload::new(&volume, seed).unwrap();
        for step in 0..STEPS {
            let done = work.step();
            assert_eq!(done, Ok(()), "seed {seed}, step {step}");
        }
        assert_eq!(files(&volume), Ok(work.now.clone()), "seed {seed}");
        volume.end();
        let image = disk.after_power_loss(|_| false);
        assert_eq!(faults(&image), None, "seed {seed}");
        let again = mounted(&LossyDisk::new(image));
        assert_eq!(files(&again), Ok(work.now.clone()), "seed {seed}");
    }
}

/// How many writes and flushes a whole run has.
fn writes_of_a_run(empty: &[u8], seed: u64) -> u64 {
    let disk = LossyDisk::new(empty.to_vec());
    let volume = mounted(&disk);
    let mut work = Workload::new(&volume, seed).unwrap();
    (0..STEPS).for_each(|_| work.step().unwrap());
    disk.done()
}

#[test]
fn what_was_synced_is_there_after_a_kill_or_a_loss_of_power_at_any_write() {
    let empty = formatted(8, &[]);
    let mut kept = 0;
    for seed in 0..rounds(16) {
        let mut random = Random(seed ^ 0xdead);
        let most = writes_of_a_run(&empty, seed);
        let disk = LossyDisk::new(empty.clone());
        // The mount itself writes too.
        disk.fail_after(random.below(most));
        let opened = mount_on("disk0", Box::new(disk.clone()), Access::ReadWrite, CACHE);
        let work = opened.as_ref().ok().and_then(|volume| {
            let mut work = Workload::new(volume, seed).ok()?;
            while work.step().is_ok() {}
            Some(work)
        });
        let mut images = vec![disk.after_a_kill(), disk.after_power_loss(|_| false)];
        for _ in 0..2 {
            images.push(disk.after_power_loss(|_| random.below(2) == 0));
        }
        for (number, image) in images.into_iter().enumerate() {
            let what = format!("seed {seed}, image {number}");
            assert_eq!(faults(&image), None, "{what}");
            let volume = mounted(&LossyDisk::new(image));
            let Some(work) = &work else {
                continue;
            };
            let found = files(&volume).unwrap();
            for (path, content) in &work.durable {
                if !work.touched.contains(path) {
                    assert!(found.get(path) == Some(content), "{what}: {path} differs");
                    kept += 1;
                }
            }
            // It can be used.
            let mut after = Workload::continued(&volume, seed + 1, found);
            (0..20).for_each(|step| assert_eq!(after.step(), Ok(()), "{what}, step {step}"));
        }
    }
    assert!(kept > 100, "{kept} files were compared");
}
