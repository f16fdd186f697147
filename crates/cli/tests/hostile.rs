//! What a hostile guest must not achieve, tried from inside by the guest `hostile`.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use serde_json::Value;
use support::needs::{built, kvm, passt, skip};
use support::{TestDir, eventually, installed};

/// Listens for connections and datagrams on one port.
struct Victim {
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Victim {
    fn on(address: Ipv4Addr) -> Self {
        let tcp = TcpListener::bind((address, 0)).unwrap();
        let udp = UdpSocket::bind(tcp.local_addr().unwrap()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        Self { tcp, udp }
    }

    fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    #[track_caller]
    fn assert_untouched(&self) {
        let connection = self.tcp.accept().map(|(_, peer)| peer);
        assert_eq!(connection.unwrap_err().kind(), ErrorKind::WouldBlock);
        let datagram = self.udp.recv_from(&mut [0; 64]);
        assert_eq!(datagram.unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    /// A datagram may be lost.
    #[track_caller]
    fn assert_reached(&self) {
        self.tcp.accept().unwrap();
    }
}

/// An address of this host besides its loopback's.
fn own_address() -> Option<Ipv4Addr> {
    let table = fs::read_to_string("/proc/net/fib_trie").ok()?;
    let mut leaf = None;
    for line in table.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            leaf = address.trim().parse::<Ipv4Addr>().ok();
        }
        let own = leaf.filter(|address| !address.is_loopback());
        if line.ends_with("/32 host LOCAL") && own.is_some() {
            return own;
        }
    }
    None
}

/// The guest tries to reach `victim` at `to`; the machine's network is `net`.
fn try_to_reach(engine: &str, net: &str, to: Ipv4Addr, victim: &Victim) {
    let Some(image) = built("hostile") else {
        return;
    };
    let connect = format!("connect={to}:{}", victim.port());
    let image = image.to_str().unwrap();
    let place = TestDir::new();
    let ended = place.run(&[
        "run",
        image,
        "--engine",
        engine,
        "--net",
        net,
        "--cmdline",
        &connect,
    ]);
    ended.expect(0, "hostile done");
}

/// The library OS keeps 127.0.0.0/8 to itself, so the guest tries another address of
/// the host; what goes to loopback is tried without a guest, beside passt (`tare_launch::passt`).
fn no_address_of_the_host_is_reached(engine: &str) {
    let Some(address) = own_address() else {
        skip("the host has no address but its loopback's");
        return;
    };
    if built("hostile").is_none() {
        return;
    }
    let victim = Victim::on(address);
    try_to_reach(engine, "user", address, &victim);
    victim.assert_untouched();
    // Control: the same guest reaches an open address.
    try_to_reach(engine, &format!("user,allow={address}"), address, &victim);
    victim.assert_reached();
}

#[test]
fn a_guest_reaches_no_address_of_the_host_unless_it_is_opened() {
    if passt() {
        no_address_of_the_host_is_reached("tare");
    }
}

#[test]
fn a_guest_in_qemu_reaches_no_address_of_the_host_unless_it_is_opened() {
    if passt() && installed("qemu-system-x86_64") {
        no_address_of_the_host_is_reached("qemu");
    }
}

/// A disk with 64 reads of this many MiB in flight at all times, into memory that O_DIRECT does not
/// take: each goes through the device's own memory.
fn is_set_read_and_stopped_under_reads_of(mib: usize) {
    let Some(image) = built("hostile").filter(|_| kvm()) else {
        return;
    };
    let place = TestDir::new();
    let disk = place.file("disk.img", b"");
    let file = File::options().write(true).open(&disk).unwrap();
    file.set_len((mib as u64 + 1) << 20).unwrap();
    let mut args = vec!["run", image.to_str().unwrap(), "-d", "--name", "flood"];
    args.extend(["--engine", "tare", "--net", "none", "--disk", &disk]);
    let job = format!("flood={mib}");
    args.extend(["--memory", "192M", "--cmdline", &job]);
    place.run(&args).expect(0, "");
    eventually("the guest reads", || {
        place
            .run(&["logs", "flood"])
            .out
            .contains("hostile: reading")
    });
    for iops in ["1000000", "0"] {
        let iops = format!("disk0.iops={iops}");
        place.run(&["set", "flood", &iops]).expect(0, "");
        let stats = place.run(&["stats", "flood", "--json"]);
        let stats: Value = serde_json::from_str(&stats.out).unwrap();
        let devices = stats["devices"].as_array().unwrap().iter();
        let copied = devices.filter_map(|device| device["counters"]["bounced"].as_u64());
        if copied.sum::<u64>() == 0 {
            skip("O_DIRECT takes any memory here");
        }
    }
    let stopped = place.run(&["stop", "flood"]);
    assert_eq!(
        (stopped.code, stopped.err.as_str()),
        (Some(0), ""),
        "asked, not killed"
    );
}

#[test]
fn a_machine_whose_guest_floods_its_disk_is_set_read_and_stopped() {
    is_set_read_and_stopped_under_reads_of(15);
}

#[test]
fn a_machine_whose_guest_reads_62_mib_at_a_time_is_set_read_and_stopped() {
    is_set_read_and_stopped_under_reads_of(62);
}

/// Random operations on every device; `make soak` runs them for longer.
const OPERATIONS: &str = "operations=2000 seed=9 hold";
/// Memory of a monitor with debug assertions, without its guest.
const MONITOR_BYTES: u64 = 16 << 20;
const LOG_BYTES: usize = 64 << 10;

/// Registers, configuration space, MSI-X, rings, chains, resets with requests in flight; with two
/// vCPUs also rings that change while devices read them.
#[test]
fn a_monitor_survives_a_guest_that_keeps_no_rule() {
    let Some(image) = built("hostile").filter(|_| kvm()) else {
        return;
    };
    let net = if installed("passt") { "user" } else { "none" };
    let place = TestDir::new();
    let disks = ["fast.img", "slow.img"].map(|name| place.file(name, &[0; 2 << 20]));
    let slow = format!("{},latency_us=300,iops=5000", disks[1]);
    for cpus in ["1", "2"] {
        let mut args = vec!["run", image.to_str().unwrap(), "-d", "--name", "hostile"];
        args.extend(["--engine", "tare", "--cpus", cpus, "--net", net]);
        args.extend(["--disk", &disks[0], "--disk", &slow]);
        args.extend(["--cmdline", OPERATIONS]);
        place.run(&args).expect(0, "");
        let logs = || place.run(&["logs", "hostile"]).out;
        // With two vCPUs devices may overwrite the image; the run then ends with a guest's exit
        // code (`docs/exit-codes.md`), never with one of the monitor.
        let crashed = || {
            let list = place.run(&["ps", "--all"]).out;
            cpus == "2" && (70..=73).any(|code| list.contains(&format!("exit {code} ")))
        };
        eventually("all operations are done", || {
            logs().contains("hostile done") || crashed()
        });
        assert!(logs().len() < LOG_BYTES, "{}", logs());
        if crashed() {
            place.run(&["rm", "hostile"]).expect(0, "");
            continue;
        }
        let stats = place.run(&["stats", "hostile", "--json"]);
        let stats: Value = serde_json::from_str(&stats.out).unwrap();
        let monitor = &stats["memory"]["monitor_resident_bytes"];
        assert!(monitor.as_u64().unwrap() < MONITOR_BYTES, "{monitor}");
        // The operations reached the devices.
        let count = |name: &str| -> u64 {
            let devices = stats["devices"].as_array().unwrap().iter();
            let counters = devices.map(|device| &device["counters"][name]);
            counters.filter_map(Value::as_u64).sum()
        };
        for name in ["resets", "malformed", "invalid_accesses", "notifications"] {
            assert!(count(name) > 100, "{name}: {stats}");
        }
        // The scheduler decides how many of them come before a reset.
        assert!(count("coalesce_completions") > 0, "no requests: {stats}");
        place.run(&["stop", "hostile"]).expect(0, "");
    }
}

/// Whatever an image in ring 3 does to end itself, its monitor reports a fault, with the
/// registers, and ends by the documented code.
#[test]
fn an_image_that_breaks_out_of_ring_3_ends_itself_and_not_its_monitor() {
    let Some(image) = built("selftest").filter(|_| kvm()) else {
        return;
    };
    let named = [
        "page-table",
        "jump",
        "text",
        "no-stack",
        "return",
        "no-area",
    ];
    let named = named.map(|what| format!("trespass={what}"));
    // Consecutive seeds have all kinds in turn (`tare_hal::ring::WildEnd`).
    let wild = (13..26).map(|seed| format!("trespass=wild seed={seed}"));
    for cmdline in named.into_iter().chain(wild) {
        let place = TestDir::new();
        let mut all = vec!["run", image.to_str().unwrap(), "--engine", "tare"];
        all.extend(["--net", "none", "--ring", "3", "--cmdline", &cmdline]);
        let ended = place.run(&all);
        ended.expect(71, "r13 ");
        assert!(ended.out.contains("fault: "), "{cmdline}: {ended:#?}");
        assert!(place.run_directories().is_empty(), "{cmdline}: {ended:#?}");
    }
}
