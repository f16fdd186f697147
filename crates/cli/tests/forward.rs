//! Ports that the monitor serves itself, as users see them.
//!
//! They need /dev/kvm, `tare-monitor` beside `tare` and the image of `http`, one of them passt, and
//! SKIP without; with TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use support::needs::{built, kvm, passt, skip};
use support::{IO_TIMEOUT, TestDir, eventually, free_port, installed};

const ALONE: &str = "user,outbound=off";
/// The default.
const WITH_PASST: &str = "user";

fn http() -> Option<PathBuf> {
    kvm().then(|| built("http")).flatten()
}

/// A site with a page and a large file.
fn with_site() -> (TestDir, Vec<u8>) {
    let place = TestDir::new();
    std::fs::create_dir(place.path().join("site")).unwrap();
    place.file("site/index.html", b"the site\n");
    let large: Vec<u8> = (0..4_000_000_u32).map(|n| ((n * 7) >> 5) as u8).collect();
    place.file("site/large.bin", &large);
    (place, large)
}

fn run(place: &TestDir, image: &str, net: &str, args: &[&str]) {
    let root = place.path().join("site");
    let root = root.to_str().unwrap();
    let own = [
        "run", image, "-d", "--name", "web", "--root", root, "--net", net,
    ];
    place.run(&[&own, args].concat()).expect(0, "web");
}

/// With port 80 of the guest, and without passt.
fn alone(place: &TestDir, image: &Path, port: u16) {
    let args = ["-p", &format!("{port}:80")];
    run(place, image.to_str().unwrap(), ALONE, &args);
}

fn connect(to: impl Into<SocketAddr>) -> TcpStream {
    let stream = TcpStream::connect(to.into()).unwrap();
    stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(IO_TIMEOUT)).unwrap();
    stream
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn request(path: &str, ending: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n{ending}\r\n")
}

/// The body of an answer that ends with the connection.
fn whole(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    answer.split_off(end.expect("a header") + 4)
}

fn get(to: SocketAddr, path: &str) -> Vec<u8> {
    let mut stream = connect(to);
    let request = request(path, "Connection: close\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    whole(stream)
}

fn counter(place: &TestDir, name: &str) -> u64 {
    let stats = place.run(&["stats", "web", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats.out).unwrap();
    let devices = stats["devices"].as_array().unwrap();
    let found = devices.iter().find_map(|it| it["counters"][name].as_u64());
    found.unwrap_or_else(|| panic!("no counter {name}"))
}

/// The first connection is made before the guest runs: it waits, and is not refused.
#[test]
fn a_published_port_is_served_without_passt() {
    let Some(image) = http() else { return };
    let (place, large) = with_site();
    let port = free_port();
    alone(&place, &image, port);
    assert_eq!(get(local(port), "/"), b"the site\n");
    assert!(get(local(port), "/large.bin") == large);
    eventually("both connections have ended", || {
        counter(&place, "forward_closed") == 2
    });
    assert_eq!(counter(&place, "forward_opened"), 2);
    assert_eq!(counter(&place, "forward_lost"), 0);
    assert!(counter(&place, "forward_out_bytes") > large.len() as u64);
    let listed = place.run(&["ps"]);
    listed.expect(0, &format!("{port}:80"));
    place.run(&["stop", "web"]).expect(0, "");
    assert!(TcpListener::bind(local(port)).is_ok(), "the port is free");
}

/// QEMU has no such link: a process beside it serves the ports, and ends with it.
#[test]
fn a_published_port_of_a_machine_in_qemu_is_served_without_passt() {
    let Some(image) = built("http") else { return };
    if !installed("qemu-system-x86_64") {
        skip("qemu-system-x86_64 is not installed");
        return;
    }
    let (place, large) = with_site();
    let port = free_port();
    let args = ["-p", &format!("{port}:80"), "--engine", "qemu"];
    run(&place, image.to_str().unwrap(), ALONE, &args);
    for _ in 0..2 {
        assert_eq!(get(local(port), "/"), b"the site\n");
        assert!(get(local(port), "/large.bin") == large);
    }
    assert!(TcpListener::bind(local(port)).is_err());
    let confined = statuses_of("tare-ports");
    assert!(!confined.is_empty());
    for status in confined {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().next().map(str::to_owned)
        };
        assert_eq!(field("CapPrm:").unwrap(), "0000000000000000");
        assert_eq!(field("Seccomp:").unwrap(), "2");
        assert_ne!(field("Uid:").unwrap(), "0");
    }
    place.run(&["stop", "web"]).expect(0, "");
    eventually("the port is free", || {
        TcpListener::bind(local(port)).is_ok()
    });
}

/// `/proc/PID/status` of the processes with that name, also of other tests.
fn statuses_of(name: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let found = processes.filter_map(|entry| {
        let process = entry.unwrap().path();
        let comm = read(process.join("comm"))?;
        (comm.trim_end() == name).then(|| read(process.join("status")))?
    });
    found.collect()
}

#[test]
fn passt_beside_it_serves_the_rest() {
    let Some(image) = http().filter(|_| passt()) else {
        return;
    };
    let (place, large) = with_site();
    let port = free_port();
    let publish = format!("{port}:80");
    run(
        &place,
        image.to_str().unwrap(),
        WITH_PASST,
        &["-p", &publish],
    );
    assert_eq!(get(local(port), "/"), b"the site\n");
    assert!(get(local(port), "/large.bin") == large);
    assert_eq!(counter(&place, "forward_opened"), 2);
    assert_eq!(counter(&place, "forward_strays"), 0);
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn a_port_at_an_ipv6_address_needs_no_passt() {
    let Some(image) = http() else { return };
    let (six, four) = (free_port(), free_port());
    if TcpListener::bind((Ipv6Addr::LOCALHOST, six)).is_err() {
        skip("this host has no IPv6");
        return;
    }
    let (place, _) = with_site();
    let publish = [format!("[::1]:{six}:80"), format!("{four}:80")];
    let args = ["-p", &publish[0], "-p", &publish[1]];
    run(&place, image.to_str().unwrap(), ALONE, &args);
    for address in [IpAddr::V6(Ipv6Addr::LOCALHOST), Ipv4Addr::LOCALHOST.into()] {
        let port = if address.is_ipv6() { six } else { four };
        assert_eq!(get((address, port).into(), "/"), b"the site\n");
    }
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn a_thousand_clients_are_served_at_once() {
    let Some(image) = http() else { return };
    let (place, _) = with_site();
    let port = free_port();
    alone(&place, &image, port);
    assert_eq!(get(local(port), "/"), b"the site\n");
    // As many as this process may have, which the host decides.
    let clients: Vec<TcpStream> = (0..1000)
        .map_while(|_| TcpStream::connect(local(port)).ok())
        .collect();
    assert!(clients.len() > 500, "{}", clients.len());
    let request = request("/", "Connection: close\r\n");
    for mut client in &clients {
        client.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        client.write_all(request.as_bytes()).unwrap();
    }
    let served = clients
        .into_iter()
        .filter(|client| {
            let mut client = client;
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).is_ok() && answer.ends_with(b"the site\n")
        })
        .count();
    let refused = counter(&place, "forward_lost");
    // The appliance has its own limits for one peer; whoever is not served gets a reset.
    assert!(served > 100, "{served} served, {refused} refused");
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn a_slow_reader_gets_everything_and_holds_nobody_back() {
    let Some(image) = http() else { return };
    let (place, large) = with_site();
    let port = free_port();
    alone(&place, &image, port);
    let mut slow = connect(local(port));
    let asked = request("/large.bin", "Connection: close\r\n");
    slow.write_all(asked.as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(500));
    for _ in 0..10 {
        assert_eq!(get(local(port), "/"), b"the site\n");
    }
    assert!(whole(slow) == large);
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn a_client_may_end_its_half_before_the_answer() {
    let Some(image) = http() else { return };
    let (place, large) = with_site();
    let port = free_port();
    alone(&place, &image, port);
    let mut stream = connect(local(port));
    let asked = request("/large.bin", "Connection: close\r\n");
    stream.write_all(asked.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(whole(stream) == large);
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn a_port_without_a_listener_in_the_guest_resets_its_clients() {
    let Some(image) = http() else { return };
    let (place, _) = with_site();
    let (port, closed) = (free_port(), free_port());
    let publish = [format!("{port}:80"), format!("{closed}:81")];
    let args = ["-p", &publish[0], "-p", &publish[1]];
    run(&place, image.to_str().unwrap(), ALONE, &args);
    let read = connect(local(closed)).read(&mut [0]);
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(get(local(port), "/"), b"the site\n");
    place.run(&["stop", "web"]).expect(0, "");
}

/// Its client waits, since a program may be starting: who looks for the reason finds it.
#[test]
fn a_port_at_which_nothing_listens_is_in_the_log() {
    let Some(image) = http() else { return };
    let (place, _) = with_site();
    let port = free_port();
    let args = ["-p", &format!("{port}:81")];
    run(&place, image.to_str().unwrap(), ALONE, &args);
    let _client = connect(local(port));
    eventually("the log names the port", || {
        let log = place.run(&["logs", "web"]);
        log.out.contains("nothing listens at port 81 of the guest")
    });
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn networks_that_contradict_themselves_are_refused() {
    let Some(image) = http() else { return };
    let (place, _) = with_site();
    let image = image.to_str().unwrap();
    let port = free_port();
    let refused = |net: &str, publish: &str, says: &str| {
        let args = ["run", image, "--net", net, "-p", publish];
        place.run(&args).expect(2, says);
    };
    let tcp = format!("{port}:80");
    refused("user,forward=passt,outbound=off", &tcp, "forward=direct");
    let both = "user,outbound=off,allow=127.0.0.1";
    refused(both, &tcp, "exclude each other");
    refused("user,forward=slirp", &tcp, "forward=auto|direct|passt");
    let taken = TcpListener::bind(local(0)).unwrap();
    let taken = taken.local_addr().unwrap().port();
    let args = ["run", image, "--net", ALONE, "-p", &format!("{taken}:80")];
    let holder = TcpListener::bind(local(taken));
    place.run(&args).expect(30, "in use");
    drop(holder);
}
