//! passt is started by the first frame that it is for, and not before.
//!
//! They need /dev/kvm, passt, `tare-monitor` beside `tare` and the images of `http` and `linux`, and SKIP
//! without; with TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use support::compile::c;
use support::needs::{built, kvm, passt, skip};
use support::{CommandOutput, TestDir, end, eventually, free_port, get, served};

const REQUESTS: usize = 100;

/// A place for machines whose passt leaves a line in a file when it is started.
struct Place {
    dir: TestDir,
    bin: PathBuf,
}

impl Place {
    /// `script` is what passt does after that.
    fn with(script: &str) -> Self {
        let dir = TestDir::new();
        // The waiter is passt's user, who must reach it.
        let open = |path: &std::path::Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        open(dir.path(), 0o755);
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let notes = dir.path().join("notes");
        fs::write(&notes, "").unwrap();
        open(&notes, 0o666);
        let path = dir.file(
            "bin/passt",
            format!("#!/bin/sh\necho started >> {}\n{script}\n", notes.display()).as_bytes(),
        );
        open(path.as_ref(), 0o755);
        Self { dir, bin }
    }

    /// With the passt that is installed.
    fn new() -> Self {
        let passt = tare_host::program::find_program("passt").unwrap();
        Self::with(&format!("exec {} \"$@\"", passt.display()))
    }

    /// How often passt was started.
    fn starts(&self) -> usize {
        let notes = fs::read_to_string(self.dir.path().join("notes")).unwrap();
        notes.lines().count()
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.dir.tare(args);
        let rest = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{rest}", self.bin.display()));
        end(command.spawn().unwrap())
    }

    /// A machine in the background.
    fn start(&self, args: &[&str]) {
        let all = [&["run", "-d", "--name", "web"], args].concat();
        self.run(&all).expect(0, "web");
    }

    fn counter(&self, name: &str) -> u64 {
        let stats = self.run(&["stats", "web", "--json"]);
        let stats: serde_json::Value = serde_json::from_str(&stats.out).unwrap();
        let devices = stats["devices"].as_array().unwrap();
        let found = devices.iter().find_map(|it| it["counters"][name].as_u64());
        found.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// The processes that wait for this place's machines.
    fn waiters(&self) -> Vec<u32> {
        let own = self.bin.to_str().unwrap();
        let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_str()?.parse().ok()
        });
        numbers
            .filter(|pid: &u32| {
                let of = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                let line = String::from_utf8_lossy(&of("cmdline")).into_owned();
                of("comm") == b"passt-waiter\n" && line.contains(own)
            })
            .collect()
    }

    fn stop(&self) {
        self.run(&["stop", "web"]).expect(0, "");
        eventually("nothing waits any more", || self.waiters().is_empty());
    }
}

/// A program that serves, and fetches something from `to`.
fn outbound(place: &Place, to: &TcpListener) -> Option<[String; 3]> {
    let program = c(&place.dir, "outbound.c", &["-static"])?;
    let to = to.local_addr().unwrap();
    Some([program, to.ip().to_string(), to.port().to_string()])
}

/// Answers each connection with a line.
fn listener() -> Option<TcpListener> {
    let Some(own) = own_address() else {
        skip("the host has no address but its loopback's");
        return None;
    };
    let listener = TcpListener::bind((own, 0)).unwrap();
    let answers = listener.try_clone().unwrap();
    thread::spawn(move || {
        for stream in answers.incoming() {
            let _ = stream.unwrap().write_all(b"from outside\n");
        }
    });
    Some(listener)
}

/// The host's address towards others.
fn own_address() -> Option<Ipv4Addr> {
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    probe.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    match probe.local_addr().ok()?.ip() {
        IpAddr::V4(own) if !own.is_loopback() => Some(own),
        _ => None,
    }
}

#[test]
fn no_passt_runs_while_a_machine_serves() {
    let Some(image) = passt().then(|| built("http")).flatten() else {
        return;
    };
    let place = Place::new();
    fs::create_dir(place.dir.path().join("site")).unwrap();
    place.dir.file("site/index.html", b"the site\n");
    let (port, six) = (free_port(), free_port());
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, six)).is_ok();
    let publish = [format!("{port}:80"), format!("[::1]:{six}:80")];
    let root = place.dir.path().join("site");
    let mut args = vec![image.to_str().unwrap(), "--root", root.to_str().unwrap()];
    args.extend(["-p", &publish[0]]);
    if has_ipv6 {
        args.extend(["-p", &publish[1]]);
    }
    place.start(&args);
    for _ in 0..REQUESTS {
        assert!(served(port, "/").contains("the site"));
    }
    if has_ipv6 {
        let mut stream = std::net::TcpStream::connect((Ipv6Addr::LOCALHOST, six)).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let answer = std::io::read_to_string(stream).unwrap();
        assert!(answer.contains("the site"), "{answer}");
    }
    assert_eq!(place.starts(), 0);
    assert_eq!(place.counter("forward_passt_started"), 0);
    assert_eq!(place.waiters().len(), 1);
    place.stop();
}

/// Its connection begins before passt is there.
#[test]
fn the_first_connection_that_a_guest_opens_starts_passt() {
    if !passt() || built("linux").is_none() {
        return;
    }
    let place = Place::new();
    let Some(outside) = listener() else { return };
    let Some([program, address, out]) = outbound(&place, &outside) else {
        return;
    };
    let port = free_port();
    let (publish, net) = (format!("{port}:80"), format!("user,allow={address}"));
    let args = ["--net", &net, "-p", &publish];
    place.start(&[&[program.as_str()], &args[..], &["--", &address, &out]].concat());
    for _ in 0..REQUESTS {
        eventually("it serves", || get(port, "/").is_ok());
    }
    assert_eq!(place.starts(), 0);
    for _ in 0..3 {
        let answer = served(port, "/out");
        assert!(answer.contains("from outside"), "{answer}");
    }
    assert_eq!(place.counter("forward_passt_started"), 1);
    assert_eq!(place.counter("forward_passt_ended"), 0);
    assert!(place.waiters().is_empty());
    assert!(served(port, "/").contains("hello"));
    place.stop();
    // A first try without the host's default route is followed by a second.
    assert!((1..=2).contains(&place.starts()), "{}", place.starts());
}

/// What it says is kept, the guest's connections are refused, and published ports go on.
#[test]
fn a_passt_that_does_not_start_when_it_is_needed_is_reported() {
    if !kvm() || built("linux").is_none() {
        return;
    }
    let place = Place::with("echo 'no room for passt' >&2; exit 1");
    let Some(outside) = listener() else { return };
    let Some([program, address, out]) = outbound(&place, &outside) else {
        return;
    };
    let port = free_port();
    let (publish, net) = (format!("{port}:80"), format!("user,allow={address}"));
    let args = ["--net", &net, "-p", &publish];
    place.start(&[&[program.as_str()], &args[..], &["--", &address, &out]].concat());
    eventually("it serves", || get(port, "/").is_ok());
    for _ in 0..2 {
        let answer = served(port, "/out");
        assert!(answer.contains("no connection"), "{answer}");
    }
    assert!(served(port, "/").contains("hello"));
    assert_eq!(place.starts(), 1);
    assert_eq!(place.counter("forward_passt_ended"), 1);
    let logs = place.run(&["logs", "web"]).out;
    assert!(logs.contains("published ports go on"), "{logs}");
    let log = place.dir.run_root().join("web/passt.log");
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log, "passt did not start: no room for passt\n");
    place.stop();
}

#[test]
fn a_killed_machine_leaves_nothing_that_waits_for_passt() {
    let Some(image) = passt().then(|| built("http")).flatten() else {
        return;
    };
    let place = Place::new();
    place.start(&[image.to_str().unwrap()]);
    assert_eq!(place.waiters().len(), 1);
    let rows = place.run(&["ps", "--json"]).out;
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let pid = i32::try_from(rows[0]["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("nothing waits any more", || place.waiters().is_empty());
    assert_eq!(place.starts(), 0);
    eventually("it is listed as killed", || {
        place.run(&["ps", "-a"]).out.contains("killed")
    });
    place.run(&["rm", "web"]).expect(0, "");
}

/// It is passt's user already, with no right of root's, no terminal, and passt's descriptors alone.
#[test]
fn what_waits_for_passt_has_no_more_rights_than_passt() {
    let Some(image) = passt().then(|| built("http")).flatten() else {
        return;
    };
    let place = Place::new();
    place.start(&[image.to_str().unwrap()]);
    let waiters = place.waiters();
    let [pid] = waiters[..] else {
        panic!("{waiters:?}");
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    if rustix::process::geteuid().is_root() {
        assert!(!field("Uid:").contains(&"0".to_owned()), "{status}");
        assert!(!field("Gid:").contains(&"0".to_owned()), "{status}");
        assert_eq!(field("Groups:"), [""; 0]);
        assert_eq!(field("CapPrm:"), ["0000000000000000"]);
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let terminal = stat.rsplit(')').next().unwrap().split_whitespace().nth(4);
    assert_eq!(terminal, Some("0"), "{stat}");
    if let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) {
        // Standard streams, the socket, its copy, and what reserves the user.
        let open: Vec<PathBuf> = open
            .map(|fd| fs::read_link(fd.unwrap().path()).unwrap())
            .collect();
        assert!(open.len() <= 6, "{open:?}");
    }
    place.stop();
}

/// With the machine's own network, and by passt, which starts with the machine then.
#[test]
fn a_udp_port_answers_its_clients() {
    if !passt() || built("linux").is_none() {
        return;
    }
    for forward in ["direct", "passt"] {
        let place = Place::new();
        let Some(program) = c(&place.dir, "datagrams.c", &["-static"]) else {
            return;
        };
        let port = free_port();
        let publish = format!("0.0.0.0:{port}:53/udp");
        let net = format!("user,forward={forward}");
        place.start(&[&program, "-p", &publish, "--net", &net]);
        assert_eq!(place.starts() > 0, forward == "passt", "{forward}");
        // For the guest the one on the loopback is its gateway, and the other has its own address.
        let clients: Vec<(UdpSocket, Ipv4Addr)> = std::iter::once(Ipv4Addr::LOCALHOST)
            .chain(own_address())
            .map(|own| (UdpSocket::bind((own, 0)).unwrap(), own))
            .collect();
        for round in 0..3 {
            for (client, own) in &clients {
                let question = format!("{round} {own} {}", "x".repeat(1000));
                let answer = echoed(client, (*own, port), question.as_bytes());
                assert_eq!(answer, question.as_bytes());
            }
        }
        assert_eq!(place.starts() > 0, forward == "passt", "{forward}");
        place.stop();
    }
}

/// 1,472 bytes are one frame, and 65,507 the most that IPv4 has.
#[test]
fn datagrams_of_several_frames_pass_a_published_port_both_ways() {
    if !kvm() || built("linux").is_none() {
        return;
    }
    let place = Place::new();
    let Some(program) = c(&place.dir, "datagrams.c", &["-static"]) else {
        return;
    };
    let port = free_port();
    let publish = format!("{port}:53/udp");
    place.start(&[&program, "-p", &publish, "--net", "user,outbound=off"]);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for length in [1472, 1473, 9000, 65_507] {
        let question: Vec<u8> = (0..length).map(|at| (at / 5) as u8).collect();
        let answer = echoed(&client, (Ipv4Addr::LOCALHOST, port), &question);
        assert!(answer == question, "{length}");
    }
    assert_eq!(place.counter("forward_fragments_dropped"), 0);
    assert_eq!(place.starts(), 0);
    place.stop();
}

#[test]
fn two_udp_ports_for_one_of_the_guest_answer_by_the_one_that_was_asked() {
    if !kvm() || built("linux").is_none() {
        return;
    }
    let place = Place::new();
    let Some(program) = c(&place.dir, "datagrams.c", &["-static"]) else {
        return;
    };
    let ports = [free_port(), free_port()];
    let publish = [
        format!("{}:53/udp", ports[0]),
        format!("{}:53/udp", ports[1]),
    ];
    place.start(&[
        &program,
        "-p",
        &publish[0],
        "-p",
        &publish[1],
        "--net",
        "user,outbound=off",
    ]);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for port in [ports[0], ports[1], ports[0]] {
        expect_answer_from(&client, (Ipv4Addr::LOCALHOST, port));
    }
    assert!(place.counter("forward_datagrams_out") >= 3);
    assert_eq!(place.starts(), 0);
    place.stop();
}

#[test]
fn a_udp_port_at_all_addresses_answers_from_the_one_that_was_asked() {
    if !kvm() || built("linux").is_none() {
        return;
    }
    let place = Place::new();
    let Some(program) = c(&place.dir, "datagrams.c", &["-static"]) else {
        return;
    };
    let port = free_port();
    let publish = format!("0.0.0.0:{port}:53/udp");
    place.start(&[&program, "-p", &publish, "--net", "user,outbound=off"]);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for host in [1, 2, 77, 1] {
        expect_answer_from(&client, (Ipv4Addr::new(127, 0, 0, host), port));
    }
    assert_eq!(place.starts(), 0);
    place.stop();
}

/// A connected socket receives nothing that comes from elsewhere.
#[track_caller]
fn expect_answer_from(client: &UdpSocket, address: (Ipv4Addr, u16)) {
    client.connect(address).unwrap();
    let question = format!("{address:?}");
    let answer = echoed(client, address, question.as_bytes());
    assert_eq!(answer, question.as_bytes());
}

/// What comes back for a datagram, which is sent again while nothing does: the program may not listen yet.
fn echoed(client: &UdpSocket, to: (Ipv4Addr, u16), question: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    client
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut length = 0;
    eventually("a datagram comes back", || {
        client.send_to(question, to).unwrap();
        let Ok(got) = client.recv(&mut bytes) else {
            return false;
        };
        length = got;
        // Not one of an earlier question that was sent twice.
        bytes[..length] == *question
    });
    bytes.truncate(length);
    bytes
}

/// Not when it is needed: then no user looks.
#[test]
fn a_missing_passt_is_refused_at_the_start() {
    let Some(image) = kvm().then(|| built("http")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let mut command = place.tare(&["run", image.to_str().unwrap()]);
    command.env("PATH", place.path());
    let ended = end(command.spawn().unwrap());
    ended.expect(32, "passt is not installed");
    ended.expect(32, "outbound=off");
    assert!(place.run_directories().is_empty());
}

/// On a host whose resolver is a local service, as systemd-resolved is: in a network and with an
/// `/etc/resolv.conf` that the test made.
#[test]
fn a_guest_asks_the_hosts_resolver_for_names() {
    if !passt() || built("linux").is_none() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        skip("only root makes a network namespace");
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "names.c", &["-static"]) else {
        return;
    };
    let own = place.file("resolv.conf", b"nameserver 127.0.0.9\n");
    let script = r#"set -e
        ip link set lo up
        mount --bind "$OWN" "$(readlink -f /etc/resolv.conf)"
        "$PROGRAM" 127.0.0.9 > "$OWN.said" &
        resolver=$!
        trap 'kill $resolver' EXIT
        while ! grep -q listening "$OWN.said"; do sleep 0.1; done
        "$PROGRAM"
        "$TARE" run "$PROGRAM""#;
    let mut command = std::process::Command::new("unshare");
    command.args(["--net", "--mount", "timeout", "120", "sh", "-c", script]);
    command
        .env("TARE_RUN_ROOT", place.run_root())
        .env("TARE", env!("CARGO_BIN_EXE_tare"))
        .env("PROGRAM", program)
        .env("OWN", own)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let ended = end(command.spawn().unwrap());
    ended.expect(0, "");
    let asked = |address: &str| format!("{address} answered with 30 bytes, an answer");
    assert!(ended.out.contains(&asked("127.0.0.9")), "{ended:?}");
    assert!(ended.out.contains(&asked("10.0.2.2")), "{ended:?}");
}
