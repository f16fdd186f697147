//! What a machine's tap device carries: in a network namespace of the test's own.

use std::net::UdpSocket;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::support::{TestDir, end, eventually, installed};
use super::{RunningMachine, ready, until_it_watches};

/// Set for the process that is in the namespace: the process outside of it.
const OUTSIDE: &str = "TARE_TEST_OUTSIDE";
const TAP: &str = "tare0";
const GUEST: &str = "10.91.0.2";
/// Datagrams to the guest, their payload, and what goes before it on an Ethernet.
const DATAGRAMS: u64 = 300;
const PAYLOAD: usize = 1000;
const HEADERS: u64 = 14 + 20 + 8;
/// Windows of which one has to agree.
const ATTEMPTS: usize = 3;

/// Bytes that the host has sent to the guest, by this namespace's devices.
fn sent() -> u64 {
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    let mut lines = devices.lines().filter_map(|line| line.split_once(':'));
    let (_, figures) = lines.find(|(name, _)| name.trim() == TAP).unwrap();
    figures.split_whitespace().nth(8).unwrap().parse().unwrap()
}

/// A machine's account while `act` is done, by `tare` in the namespace of that process.
fn told(place: &TestDir, of: &str, namespace: u32, act: impl FnOnce()) -> Value {
    let mut command = Command::new("nsenter");
    command
        .args([
            &format!("--net=/proc/{namespace}/ns/net"),
            env!("CARGO_BIN_EXE_tare"),
        ])
        .args(["why", of, "--seconds", "60", "--json"])
        .env("TARE_RUN_ROOT", place.run_root())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let why = command.spawn().unwrap();
    until_it_watches(&why);
    act();
    kill_process(Pid::from_raw(why.id().cast_signed()).unwrap(), Signal::INT).unwrap();
    let ended = end(why);
    ended.expect(0, "\"schema\": 1");
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    document["machines"][0]["account"].clone()
}

#[test]
fn bytes_of_a_tap_are_those_of_its_namespace() {
    if !["unshare", "nsenter", "ip"].into_iter().all(installed) {
        tare_vmtest::lacks("unshare, nsenter and ip are needed");
        return;
    }
    let Some((_alone, _)) = ready() else { return };
    let test = std::env::current_exe().unwrap();
    let inside = Command::new("unshare")
        .arg("--net")
        .arg(test)
        .args(["--exact", "taps::in_a_namespace", "--nocapture"])
        .env(OUTSIDE, std::process::id().to_string())
        .output()
        .unwrap();
    print!("{}", String::from_utf8_lossy(&inside.stdout));
    assert!(inside.status.success(), "{inside:?}");
}

/// Not a test by itself: the process in the namespace.
#[test]
fn in_a_namespace() {
    let Some(outside) = std::env::var_os(OUTSIDE) else {
        return;
    };
    let Some((_alone, image)) = ready() else {
        return;
    };
    for line in [
        format!("tuntap add dev {TAP} mode tap vnet_hdr"),
        format!("address add 10.91.0.1/24 dev {TAP}"),
        format!("link set {TAP} up"),
    ] {
        let done = Command::new("ip").args(line.split(' ')).status().unwrap();
        assert!(done.success(), "ip {line}");
    }
    let place = TestDir::new();
    let net = format!("tap={TAP}");
    let cmdline = format!("mode=net ip={GUEST}/24");
    let machine = RunningMachine::start(&place, &image, &cmdline, &["--net", &net]);
    let socket = UdpSocket::bind("10.91.0.1:0").unwrap();
    let send = || {
        for _ in 0..DATAGRAMS {
            socket.send_to(&[0; PAYLOAD], (GUEST, 9)).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    // It knows the guest's address when it has sent to it.
    send();
    let own = DATAGRAMS * (HEADERS + PAYLOAD as u64);
    // Frames of before that the machine takes late, on a busy host, may count as this window's.
    let agrees = (0..ATTEMPTS).any(|_| {
        let before = sent();
        let here = told(&place, &machine.name, std::process::id(), || {
            send();
            eventually("the machine takes them", || sent() - before >= own);
        });
        let carried = sent() - before;
        let bytes = here["network"]["to_guest_bytes"].as_u64().unwrap();
        println!("{bytes} bytes told, {own} sent, {carried} carried");
        (own..=carried).contains(&bytes)
    });
    assert!(agrees, "bytes told are never those sent");
    // Elsewhere a device of that name is another's.
    let outside = outside.to_str().unwrap().parse().unwrap();
    let there = told(&place, &machine.name, outside, send);
    assert!(there["network"].is_null(), "{there}");
}
