//! The control socket of a real machine, as curl and scrapers use it.

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use support::{Rig, Running, code, kvm};
use tare_control::api::{State, Stop};
use tare_control::client::ClientError;
use tare_control::stats::{Stats, VcpuStats};

fn halted(cpus: u8) -> Running {
    let guest = code::all(&[&code::print("up"), code::HALT]);
    let running = Rig::new(&guest).set("cpus", cpus.into()).start();
    running.wait_for("up");
    running
}

#[test]
fn an_idle_machine_does_not_run_at_all() {
    if !kvm() {
        return;
    }
    let running = halted(2);
    thread::sleep(Duration::from_millis(50));
    let mut client = running.client();
    let before = client.stats().unwrap();
    thread::sleep(Duration::from_secs(1));
    let after = client.stats().unwrap();
    let activity = |stats: &[VcpuStats]| stats.iter().map(VcpuStats::activity).sum::<u64>();
    assert!(activity(&before.vcpus) > 0, "{before:?}");
    assert_eq!(activity(&before.vcpus), activity(&after.vcpus));
    for (old, new) in before.threads.iter().zip(&after.threads) {
        assert_eq!(old.name, new.name);
        if new.name != "main" {
            // The host may schedule a halted thread; 0.05 % of a CPU is the goal.
            let ran_ns = new.run_ns - old.run_ns;
            assert!(ran_ns < 500_000, "{} ran {ran_ns} ns", new.name);
        }
    }
    let names: Vec<_> = after.threads.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["main", "io", "vcpu0", "vcpu1"]);
}

#[test]
fn the_machine_describes_itself_and_its_memory() {
    if !kvm() {
        return;
    }
    let running = halted(1);
    let mut client = running.client();
    let machine = client.machine().unwrap();
    assert_eq!(machine.config.name, "test");
    assert_eq!(machine.state, State::Running);
    assert_eq!(machine.pid, running.pid().as_raw_nonzero().get() as u32);
    let stats = client.stats().unwrap();
    assert_eq!(stats.memory.guest_bytes, 16 << 20);
    assert!(stats.memory.guest_resident_bytes > 0);
    assert!(stats.memory.monitor_resident_bytes > 0);
    assert_eq!(stats.vcpus[0].exits["pio_out"], 2, "{:?}", stats.vcpus[0]);
    let kinds: Vec<_> = stats.devices.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["rng", "memory", "serial", "power", "pci", "bus"]);
    for counter in ["interrupts", "notifications", "malformed"] {
        assert!(stats.devices[0].counters.contains_key(counter), "{counter}");
    }
    let metrics = client.metrics().unwrap();
    assert!(metrics.contains("tare_vcpu_exits_total{vcpu=\"0\",kind=\"pio_out\"} 2\n"));
}

/// Of 16 MiB a tiny guest touches a few pages of 4 KiB. Whether the host finds a huge page for
/// the rest is its own affair; without permission it may not.
#[test]
fn guest_memory_is_in_pages_of_the_wanted_size() {
    if !kvm() {
        return;
    }
    let memory = |huge_pages: &str| {
        let guest = code::all(&[&code::print("up"), code::HALT]);
        let rig = Rig::new(&guest).set("huge_pages", huge_pages.into());
        let running = rig.start();
        running.wait_for("up");
        running.client().stats().unwrap().memory
    };
    let small = memory("off");
    assert_eq!(small.guest_huge_bytes, 0, "{small:?}");
    assert!(small.guest_resident_bytes < 2 << 20, "{small:?}");
    let huge = memory("auto");
    assert_eq!(huge.guest_bytes, 16 << 20);
    assert_eq!(huge.guest_huge_bytes % (2 << 20), 0, "{huge:?}");
    if huge.guest_huge_bytes > 0 {
        assert!(
            huge.guest_resident_bytes >= huge.guest_huge_bytes,
            "{huge:?}"
        );
    } else {
        assert!(huge.guest_resident_bytes > 0, "{huge:?}");
        tare_vmtest::lacks("this host had no huge page to give");
    }
}

#[test]
fn stopping_by_request_ends_as_asked() {
    if !kvm() {
        return;
    }
    for (how, code) in [(Stop::PowerOff, 0), (Stop::Kill, 143)] {
        let running = halted(1);
        running.client().stop(how).unwrap();
        running.wait().expect(code, "stopped on request");
    }
}

#[test]
fn wrong_requests_get_their_status_and_change_nothing() {
    if !kvm() {
        return;
    }
    let running = halted(1);
    let mut client = running.client();
    let mut status = |method, path, body: &[u8]| client.request(method, path, body).unwrap().status;
    assert_eq!(status("GET", "/nothing", b""), 404);
    assert_eq!(status("DELETE", "/v1/stats", b""), 405);
    assert_eq!(status("GET", "/v1/stop", b""), 405);
    assert_eq!(status("PUT", "/v1/stop", b"{\"how\":\"gently\"}"), 400);
    assert_eq!(status("PUT", "/v1/stop", &[b' '; 5000]), 413);
    assert_eq!(status("GET", "/v1/signal", b""), 405);
    for signal in [
        &b""[..],
        b"{\"signal\":0}",
        b"{\"signal\":65}",
        b"{\"signal\":15}",
    ] {
        assert_eq!(status("PUT", "/v1/signal", signal), 400);
    }
    assert_eq!(status("GET", "/v1/machine?x=1", b""), 200);
    // One client that sends half a request and stays.
    let mut slow = UnixStream::connect(running.run_dir.control_socket()).unwrap();
    slow.write_all(b"GET /v1/st").unwrap();
    assert!(running.client().stats().is_ok());
    slow.write_all(b"ats HTTP/1.1\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("application/json"));
}

/// As a program without any part of Tare uses it.
#[test]
fn curl_reads_the_control_socket() {
    if !kvm() {
        return;
    }
    let running = halted(1);
    let socket = running.run_dir.control_socket();
    let curl = |path: &str| {
        Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--unix-socket"])
            .arg(&socket)
            .arg(format!("http://tare{path}"))
            .output()
    };
    let Ok(stats) = curl("/v1/stats") else {
        return tare_vmtest::lacks("curl is not installed");
    };
    assert!(stats.status.success(), "{stats:?}");
    let stats: Stats = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!((stats.name.as_str(), stats.vcpus.len()), ("test", 1));
    let metrics = curl("/metrics").unwrap();
    assert!(String::from_utf8_lossy(&metrics.stdout).contains("\ntare_vcpu_exits_total{"));
    assert!(!curl("/nothing").unwrap().status.success());
}

#[test]
fn a_stopped_process_times_out_and_goes_on() {
    if !kvm() {
        return;
    }
    let running = halted(1);
    running.signal(rustix::process::Signal::STOP);
    let client = running.client();
    let answer = client.with_timeout(Duration::from_millis(100)).stats();
    assert!(matches!(answer, Err(ClientError::TimedOut(_))));
    running.signal(rustix::process::Signal::CONT);
    assert!(running.client().stats().is_ok());
}

#[test]
fn every_thread_is_confined() {
    if !kvm() {
        return;
    }
    let running = halted(2);
    let threads = running.client().stats().unwrap().threads;
    assert_eq!(threads.len(), 4);
    for thread in &threads {
        let path = format!("/proc/{}/task/{}/status", threads[0].tid, thread.tid);
        let confined = || {
            let status = std::fs::read_to_string(&path).unwrap_or_default();
            status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2")
        };
        // A vCPU that waits for the first one may come to it later.
        support::eventually(&format!("{} is confined", thread.name), confined);
    }
}
