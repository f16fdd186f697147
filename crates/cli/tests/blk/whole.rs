//! fio on a file system in a Linux guest, over `tare blk`: what it reads is what
//! it wrote, coalescing spares interrupts, and a killed daemon's successor goes
//! on where it was, with the write cache that the guest has chosen. Another guest
//! has a file system mounted while its disk grows.

use crate::daemon::Daemon;
use crate::linux::{Linux, check_file_system, disk_with_file_system};
use crate::support::TestDir;

const DISK_BYTES: u64 = 256 << 20;

const SCRIPT: &str = r#"
mount -t ext4 /dev/vda /mnt
echo "SERIAL $(cat /sys/block/vda/serial)"
echo "QUEUES" /sys/block/vda/mq/*
verify="fio --name=v --directory=/mnt --bs=4k --size=4M --numjobs=3 --thread
    --ioengine=libaio --iodepth=16 --direct=1 --fsync=32 --rw=randwrite
    --verify=crc32c --verify_fatal=1 --group_reporting --minimal"
deep="fio --name=d --filename=/dev/vda --readonly --bs=4k --thread --ioengine=libaio
    --iodepth=32 --direct=1 --rw=randread --number_ios=6000 --minimal"
$verify >/tmp/out 2>&1; echo "VERIFIED $?"
$deep >/tmp/out; echo "DEEP $?"
read go
$deep >/tmp/out; echo "DEEP $?"
read go
cache=/sys/block/vda/cache_type
echo "CACHE $(cat $cache)"
echo "write through" >$cache; echo "CACHE $(cat $cache)"
read go
echo "RUNNING"
$verify >/tmp/out 2>&1; code=$?
[ $code = 0 ] || cat /tmp/out
echo "VERIFIED $code"
umount /mnt; sync
echo "CLEAN $?"
"#;

#[test]
fn fio_verifies_coalescing_spares_interrupts_and_a_kill_is_survived() {
    let place = TestDir::new();
    let Some(linux) = Linux::new(&place, SCRIPT) else {
        return;
    };
    let disk = disk_with_file_system(&place, DISK_BYTES);
    let served = format!("{disk},coalesce=off,serial=whole-7");
    let mut daemon = Daemon::start(&place, &served);
    let mut guest = linux.boot(&place);
    assert_eq!(guest.says("SERIAL"), "whole-7");
    assert_eq!(guest.says("QUEUES").split(' ').count(), 2);
    assert_eq!(guest.says("VERIFIED"), "0");

    let before = Interrupts::of(&daemon);
    assert_eq!(guest.says("DEEP"), "0");
    let off = Interrupts::of(&daemon).since(&before);
    assert_eq!(off.held, 0, "{off:?}");
    // A fixed ratio: a translated guest is slower than the disk, so that few
    // requests are in flight there and the rule itself has nothing to hold. On a busy host
    // the driver's event index merges as many interrupts by itself, and holds end by
    // their deadline: how both compare is the host's load, what the rule sends is not.
    let hold = "disk0.coalesce.longest_hold_us=20000";
    let args = ["set", "disk", "disk0.coalesce=1/4", hold];
    assert_eq!(place.run(&args).code, Some(0));
    let before = Interrupts::of(&daemon);
    guest.go_on();
    assert_eq!(guest.says("DEEP"), "0");
    let held = Interrupts::of(&daemon).since(&before);
    println!(
        "interrupts per I/O: off {:.3}, 1/4 {:.3}",
        off.ratio(),
        held.ratio()
    );
    assert!(held.held > 0, "{held:?}");
    // Each change of the setting may deliver what was held.
    let most = held.completions / 4 + held.expired + 4;
    assert!(held.sent <= most, "{held:?}");
    // Holds that all expire spare nothing.
    assert!(held.sent < held.completions, "{held:?}");

    let args = ["set", "disk", "disk0.coalesce=auto"];
    assert_eq!(place.run(&args).code, Some(0));
    guest.go_on();
    assert_eq!(guest.says("CACHE"), "write back");
    assert_eq!(guest.says("CACHE"), "write through");
    assert_eq!(daemon.counter("cache_changes"), 1);
    assert_eq!(daemon.counter("durable_writes"), 0);
    guest.go_on();
    guest.says("RUNNING");
    let writes = daemon.counter("writes");
    daemon.until("it writes", |stats| {
        stats.devices[0].counters["writes"] > writes + 300
    });
    daemon.kill();
    let successor = Daemon::start(&place, &served);
    assert_eq!(guest.says("VERIFIED"), "0");
    println!("done again: {}", successor.counter("resubmitted"));
    assert_eq!(successor.counter("io_errors"), 0);
    assert_eq!(successor.counter("malformed"), 0);
    // Only the log holds it: QEMU sends the driver's choice once.
    assert_eq!(successor.counter("cache_changes"), 0);
    assert_eq!(guest.says("CLEAN"), "0");
    guest.ends();
    // Nothing is written any more.
    let written = successor.counter("writes") + successor.counter("write_zeroes");
    assert_eq!(successor.counter("durable_writes"), written);
    assert!(written > 0);
    drop(successor);
    check_file_system(&disk);
}

const GROWS: &str = r#"
mount -t ext4 /dev/vda /mnt
echo N >/sys/module/printk/parameters/time; echo 8 >/proc/sys/kernel/printk
echo "LOUD"
read go
echo "AGAIN"
read go
echo 4 >/proc/sys/kernel/printk
echo "SIZE $(cat /sys/block/vda/size)"
umount /mnt; sync
echo "CLEAN $?"
"#;

#[test]
fn a_linux_guest_learns_the_new_size_of_its_disk() {
    let place = TestDir::new();
    let Some(linux) = Linux::new(&place, GROWS) else {
        return;
    };
    let disk = disk_with_file_system(&place, DISK_BYTES);
    let mut daemon = Daemon::start(&place, &disk);
    let mut guest = linux.boot(&place);
    guest.says("LOUD");
    place
        .run(&["set", "disk", "disk0.size=512M"])
        .expect(0, "536870912");
    let said = guest.says("virtio_blk");
    assert!(said.contains("[vda] new size: 1048576"), "{said}");
    assert_eq!(daemon.counter("config_changes"), 1);
    guest.go_on();
    guest.says("AGAIN");
    // QEMU comes back to a successor, and does not read the size by itself.
    daemon.kill();
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.set_len(3 * DISK_BYTES).unwrap();
    let daemon = Daemon::start(&place, &disk);
    let said = guest.says("virtio_blk");
    assert!(said.contains("[vda] new size: 1572864"), "{said}");
    guest.go_on();
    assert_eq!(guest.says("SIZE"), "1572864");
    assert_eq!(guest.says("CLEAN"), "0");
    guest.ends();
    drop(daemon);
    check_file_system(&disk);
}

#[derive(Debug)]
struct Interrupts {
    sent: u64,
    requests: u64,
    /// Completions of all kinds, those that were held, and holds that a deadline ended.
    completions: u64,
    held: u64,
    expired: u64,
}

impl Interrupts {
    fn of(daemon: &Daemon) -> Self {
        Self {
            sent: daemon.counter("interrupts"),
            requests: daemon.counter("reads"),
            completions: daemon.counter("coalesce_completions"),
            held: daemon.counter("coalesce_held"),
            expired: daemon.counter("coalesce_expiries")
                + daemon.counter("coalesce_delivered_deadline"),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            requests: self.requests - before.requests,
            completions: self.completions - before.completions,
            held: self.held - before.held,
            expired: self.expired - before.expired,
        }
    }

    fn ratio(&self) -> f64 {
        self.sent as f64 / self.requests.max(1) as f64
    }
}
