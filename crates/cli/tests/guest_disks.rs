//! The library OS's disks in whole machines: driver, load generator, files.
//!
//! They need /dev/kvm, `tare-monitor` beside `tare` and the images (`cargo
//! xtask test` builds both), and SKIP without; with TARE_REQUIRE_KVM=1 a skip
//! fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use serde_json::Value;
use support::needs::{built, kvm, passt};
use support::{TestDir, eventually, free_port, get, installed, served};
use tare_control::client::Client;

/// Bytes of a disk.
const BYTES: usize = 4 << 20;

/// Loads a disk as `cmdline` says: the line of figures.
fn loaded(cpus: &str, disk_options: &str, cmdline: &str) -> Option<Value> {
    loaded_in("tare", cpus, disk_options, cmdline)
}

/// The same in any engine.
fn loaded_in(engine: &str, cpus: &str, disk_options: &str, cmdline: &str) -> Option<Value> {
    let image = kvm().then(|| built("blk")).flatten()?;
    let place = TestDir::new();
    let disk = place.file("disk.img", &vec![0; BYTES]) + disk_options;
    let mut all = vec!["run", image.to_str().unwrap(), "--net", "none"];
    all.extend(["--engine", engine, "--cpus", cpus]);
    all.extend(["--disk", &disk, "--cmdline", cmdline]);
    let ended = place.run(&all);
    ended.expect(0, "\"done\":true");
    let mut lines = ended
        .out
        .lines()
        .map(serde_json::from_str::<Value>)
        .map(Result::unwrap);
    lines.find(|line| line["completed"].is_u64())
}

#[test]
fn blocks_read_back_as_they_were_written() {
    for (cpus, disk_options) in [("1", ""), ("2", ""), ("1", ",coalesce=1/8")] {
        let cmdline = "cif=16 read=50 verify=on committer=on count=150 warm_ms=0";
        let Some(line) = loaded(cpus, disk_options, cmdline) else {
            return;
        };
        let of = |name: &str| line[name].as_u64().unwrap();
        assert_eq!((of("errors"), of("mismatches")), (0, 0), "{line}");
        assert_eq!(of("completed"), 150, "{line}");
        assert!(line["flush_ns"]["count"].as_u64().unwrap() > 0, "{line}");
    }
}

/// Each queue takes one of 60 interrupt vectors: ten disks of eight queues would need more.
#[test]
fn requests_of_eight_cores_end_on_the_last_of_ten_disks() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let disks: Vec<String> = (0..10)
        .map(|number| place.file(&format!("{number}.img"), &vec![0; BYTES]))
        .collect();
    let mut all = vec![
        "run",
        image.to_str().unwrap(),
        "--net",
        "none",
        "--cpus",
        "8",
    ];
    all.extend(disks.iter().flat_map(|disk| ["--disk", disk]));
    for disk in ["disk7", "disk9"] {
        let cmdline = format!("disk={disk} cif=16 count=64 warm_ms=0");
        let ended = place.run(&[&all[..], &["--cmdline", &cmdline]].concat());
        ended.expect(0, "\"done\":true");
    }
}

/// In QEMU a null device lends the file its latency, and must not answer for it.
#[test]
fn a_disk_takes_its_time_in_both_monitors_and_keeps_what_is_written() {
    for engine in ["tare", "qemu-kvm"] {
        if engine != "tare" && !installed("qemu-system-x86_64") {
            return tare_vmtest::lacks("QEMU is not installed");
        }
        let cmdline = "cif=8 read=50 verify=on count=40 warm_ms=0";
        let Some(line) = loaded_in(engine, "1", ",latency_us=40000", cmdline) else {
            return;
        };
        let of = |name: &str| line[name].as_u64().unwrap();
        assert_eq!((of("errors"), of("mismatches")), (0, 0), "{line}");
        let p50_ns = line["latency_ns"]["p50"].as_u64().unwrap();
        // Within the buckets of the guest's histogram.
        assert!(p50_ns > 39_600_000, "{engine}: {line}");
    }
}

/// What the disk's file looks like after the guest emptied half of it.
fn emptied(how: &str) -> Option<(Vec<u8>, u64, Value)> {
    let image = kvm().then(|| built("blk")).flatten()?;
    let place = TestDir::new();
    let disk = place.file("disk.img", &vec![7; BYTES]);
    let cmdline = format!("clear={how} span=2M count=1 warm_ms=0");
    let run = ["run", image.to_str().unwrap(), "--net", "none", "--disk"];
    let ended = place.run(&[&run[..], &[&disk, "--cmdline", &cmdline]].concat());
    ended.expect(0, "\"done\":true");
    let mut lines = ended
        .out
        .lines()
        .map(serde_json::from_str::<Value>)
        .map(Result::unwrap);
    let line = lines.find(|line| line["completed"].is_u64()).unwrap();
    let held = fs::metadata(&disk).unwrap().blocks() * 512;
    Some((fs::read(&disk).unwrap(), held, line))
}

#[test]
fn what_the_guest_empties_is_zeros_in_the_file_and_a_hole_after_discard() {
    for (how, held) in [("zeroes", BYTES), ("discard", BYTES / 2)] {
        let Some((bytes, holds, line)) = emptied(how) else {
            return;
        };
        let (emptied, rest) = bytes.split_at(BYTES / 2);
        assert!(emptied.iter().all(|byte| *byte == 0), "{how}");
        assert!(rest.iter().all(|byte| *byte == 7), "{how}");
        // Give or take what the file system needs to know it.
        let near = holds.abs_diff(held as u64) <= 128 << 10;
        assert!(near, "{how}: the file holds {holds} bytes");
        assert_eq!(line["errors"], 0, "{how}: {line}");
    }
}

#[test]
fn the_guest_switches_the_write_cache() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let disk = place.file("disk.img", &vec![0; BYTES]);
    for (cache, durable) in [("writethrough", 40), ("writeback", 0)] {
        let cmdline = format!("cache={cache} read=0 count=40 warm_ms=0 hold");
        let run = ["run", image.to_str().unwrap(), "--net", "none", "-d"];
        let named = ["--name", cache, "--disk", &disk, "--cmdline", &cmdline];
        place.run(&[&run[..], &named].concat()).expect(0, cache);
        let socket = place.run_root().join(cache).join("control.sock");
        let counted = |name: &str| {
            let stats = Client::new(&socket).stats().unwrap();
            let blk = stats.devices.iter().find(|it| it.kind == "blk");
            blk.unwrap().counters[name]
        };
        eventually("it has written", || counted("writes") == 40);
        assert_eq!(counted("durable_writes"), durable, "{cache}");
        place.run(&["stop", cache]).expect(0, "");
    }
}

#[test]
fn a_disk_grows_while_the_guest_has_it() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let disk = place.file("disk.img", &vec![7; BYTES]);
    let run = ["run", image.to_str().unwrap(), "--net", "none", "--name"];
    let cmdline = "cif=1 count=1 read=100 warm_ms=0 grows";
    let more = ["grows", "--disk", &disk, "--cmdline", cmdline];
    let machine = place.tare(&[&run[..], &more].concat()).spawn().unwrap();
    eventually("it has read", || {
        let stats = place.run(&["stats", "grows", "--json"]).out;
        stats.contains("\"reads\": 1")
    });
    let shorter = ["set", "grows", "disk0.size=1M", "disk0.iops=5"];
    place.run(&shorter).expect(2, "cannot become shorter");
    place
        .run(&["set", "grows", "disk0.size=64M"])
        .expect(0, "67108864");
    let ended = support::end(machine);
    ended.expect(0, "{\"grown\":67108864,\"last\":0}");
    assert_eq!(fs::metadata(&disk).unwrap().len(), 64 << 20);
}

#[test]
fn more_commands_than_a_queue_holds_all_complete() {
    for cmdline in ["cif=128 count=300", "cif=128 count=300 blk_indirect=on"] {
        let Some(line) = loaded("1", ",ro", cmdline) else {
            return;
        };
        assert_eq!(line["errors"], 0, "{cmdline}: {line}");
        assert_eq!(line["completed"], 300, "{cmdline}: {line}");
    }
}

#[test]
fn a_job_that_a_disk_cannot_do_ends_with_a_sentence() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let disk = place.file("disk.img", &vec![0; BYTES]) + ",ro";
    for (cmdline, said) in [
        (
            "read=50",
            "error: the disk disk0 is read-only, and the job writes",
        ),
        ("disk=disk1", "error: there is no disk disk1"),
        ("cif=0", "error: cif=0 is invalid: use 1 to 256"),
    ] {
        let run = ["run", image.to_str().unwrap(), "--net", "none", "--disk"];
        let ended = place.run(&[&run[..], &[&disk, "--cmdline", cmdline]].concat());
        ended.expect(1, said);
        assert!(place.run_directories().is_empty(), "{ended:#?}");
    }
}

#[test]
fn a_site_is_served_from_a_disk() {
    let Some(image) = (kvm() && passt()).then(|| built("http-disk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let site = place.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "<p>from a disk").unwrap();
    fs::write(site.join("damaged"), [b'x'; 10_000]).unwrap();
    let disk = place.path().join("site.ext4");
    let made = Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .args([site.as_os_str(), disk.as_os_str(), "4M".as_ref()])
        .output()
        .expect("mke2fs, from Debian's e2fsprogs");
    assert!(made.status.success(), "{made:?}");
    // The head of its extents, whose first half is a magic number.
    let damage = Command::new("debugfs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-w", "-R", "set_inode_field damaged block[0] 0"])
        .arg(&disk)
        .output();
    assert!(damage.expect("e2fsprogs").status.success());
    let disk = format!("{},ro", disk.display());
    let port = free_port();
    let forward = format!("127.0.0.1:{port}:80");
    let args = ["run", image.to_str().unwrap(), "-d", "--name", "web"];
    let run = place.run(&[&args[..], &["--disk", &disk, "-p", &forward]].concat());
    run.expect(0, "web");
    eventually("the site is served", || {
        get(port, "/").is_ok_and(|answer| answer.ends_with("<p>from a disk"))
    });
    // What is wrong with a file is the operator's to know, also when clients ask again and again.
    for _ in 0..3 {
        let answer = served(port, "/damaged");
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    }
    let log = place.run(&["logs", "web"]).out;
    assert!(log.contains("http: /damaged cannot be read: "), "{log}");
    assert!(get(port, "/").is_ok_and(|answer| answer.ends_with("<p>from a disk")));
    place.run(&["stop", "web"]).expect(0, "");
    // Without its disk, a sentence.
    let ended = place.run(&["run", image.to_str().unwrap(), "--net", "none"]);
    ended.expect(1, "error: no disk disk0 to serve from");
}
