//! The generator against small servers that behave and misbehave.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::interrupt::Interrupt;

const RIGHT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
const SECOND: Duration = Duration::from_secs(1);

/// Runs `serve` for each connection in its own thread.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

/// Reads one request; false at the end of the connection.
fn take_request(stream: &mut TcpStream) -> bool {
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => received.push(byte[0]),
            _ => return false,
        }
    }
    true
}

fn generator(address: SocketAddr, mode: Connections) -> Generator {
    let target = Target {
        address,
        path: "/".into(),
        body: b"body".as_slice().into(),
    };
    Generator::new(&target, mode, SECOND)
}

fn answering(mut stream: TcpStream) {
    while take_request(&mut stream) {
        let _ = stream.write_all(RIGHT);
    }
}

#[test]
fn steady_load_is_sent_on_time_and_answered() {
    let mut generator = generator(server(answering), Connections::KeepAlive(4));
    let schedule = Schedule::steady(200.0, SECOND / 4);
    let begin = Instant::now();
    let requests = generator.run(schedule, &Interrupt::default()).unwrap();
    assert_eq!(requests.len(), 50);
    assert!(requests.iter().all(|r| r.failure.is_none()), "{requests:?}");
    assert!(begin.elapsed() >= Duration::from_millis(245));
    let kept = requests.iter().filter(|r| !r.connected).count();
    assert!(kept >= 40, "connections are kept: {kept}");
    let early = requests.iter().find(|r| r.sent_ns < Some(r.scheduled_ns));
    assert_eq!(early, None);
}

#[test]
fn a_stall_is_charged_to_every_request_that_waited() {
    // Stalls 300 ms once; at 100 requests/s over one connection, 30 requests
    // fall into the stall and wait 300, 290, 280, ... ms.
    let address = server(|mut stream| {
        let mut count = 0;
        while take_request(&mut stream) {
            count += 1;
            if count == 10 {
                thread::sleep(Duration::from_millis(300));
            }
            let _ = stream.write_all(RIGHT);
        }
    });
    let mut generator = generator(address, Connections::KeepAlive(1));
    let schedule = Schedule::steady(100.0, SECOND * 3 / 4);
    let requests = generator.run(schedule, &Interrupt::default()).unwrap();
    let slow = requests
        .iter()
        .filter(|r| r.latency_ns() > 50_000_000)
        .count();
    assert!(slow >= 20, "one stall must show in many latencies: {slow}");
    let from_sending = |r: &&Request| r.done_ns - r.sent_ns.unwrap() > 50_000_000;
    let omitted = requests.iter().filter(from_sending).count();
    assert!(
        omitted < 10,
        "counted from sending it would hide: {omitted}"
    );
}

#[test]
fn one_connection_per_request_opens_one_each() {
    let mut generator = generator(server(answering), Connections::PerRequest(2));
    let requests = generator
        .run(Schedule::one_by_one(5), &Interrupt::default())
        .unwrap();
    assert_eq!(requests.len(), 5);
    assert!(
        requests.iter().all(|r| r.connected && r.failure.is_none()),
        "{requests:?}"
    );
}

#[test]
fn a_kept_connection_that_the_server_closed_is_replaced() {
    let address = server(|mut stream| {
        take_request(&mut stream);
        let _ = stream.write_all(RIGHT);
    });
    let mut generator = generator(address, Connections::KeepAlive(1));
    let requests = generator
        .run(Schedule::one_by_one(5), &Interrupt::default())
        .unwrap();
    assert!(requests.iter().all(|r| r.failure.is_none()), "{requests:?}");
}

#[test]
fn silence_ends_as_a_timeout() {
    let address = server(|mut stream| {
        take_request(&mut stream);
        thread::sleep(SECOND * 30);
    });
    let target = Target {
        address,
        path: "/".into(),
        body: b"body".as_slice().into(),
    };
    let timeout = Duration::from_millis(200);
    let mut generator = Generator::new(&target, Connections::KeepAlive(1), timeout);
    let begin = Instant::now();
    let schedule = Schedule::Closed {
        concurrency: 3,
        until: SECOND,
        count: 3,
    };
    let requests = generator.run(schedule, &Interrupt::default()).unwrap();
    assert!(begin.elapsed() < SECOND * 30);
    assert!(
        requests.iter().all(|r| r.failure == Some(Failure::Timeout)),
        "{requests:?}"
    );
}

#[test]
fn refused_and_dropped_connections_are_counted() {
    let free = (Ipv4Addr::LOCALHOST, tare_vmtest::free_port()).into();
    let mut refused = generator(free, Connections::KeepAlive(1));
    let requests = refused
        .run(Schedule::one_by_one(2), &Interrupt::default())
        .unwrap();
    assert!(
        requests.iter().all(|r| r.failure == Some(Failure::Connect)),
        "{requests:?}"
    );

    let address = server(|mut stream| {
        take_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200");
    });
    let mut hangs_up = generator(address, Connections::KeepAlive(1));
    let requests = hangs_up
        .run(Schedule::one_by_one(2), &Interrupt::default())
        .unwrap();
    assert!(
        requests.iter().all(|r| r.failure == Some(Failure::Closed)),
        "{requests:?}"
    );
}

#[test]
fn a_signal_ends_a_long_load() {
    let interrupt = Interrupt::default();
    let mut generator = generator(server(answering), Connections::KeepAlive(1));
    let other = interrupt.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        other.trip();
    });
    let begin = Instant::now();
    let result = generator.run(Schedule::steady(10.0, SECOND * 60), &interrupt);
    assert!(
        matches!(result, Err(LoadError::Interrupted(_))),
        "{result:?}"
    );
    assert!(begin.elapsed() < SECOND * 50);
}

#[test]
fn commands_sent_at_once_are_one_exchange_whose_answers_may_come_in_parts() {
    const COUNT: usize = 16;
    let one = Exchange::exactly("*1\r\n$4\r\nPING\r\n".into(), "+PONG\r\n".into());
    let whole = one.wire.len() * COUNT;
    let address = server(move |mut stream| {
        let mut received = vec![0; whole];
        let _ = stream.set_nodelay(true);
        while stream.read_exact(&mut received).is_ok() {
            let commands = received.chunks(whole / COUNT);
            let right = commands.filter(|it| *it == b"*1\r\n$4\r\nPING\r\n").count();
            let answers = b"+PONG\r\n".repeat(right);
            // The last in two parts, apart from the others.
            let (first, last) = answers.split_at(answers.len().saturating_sub(3));
            let _ = stream.write_all(first);
            thread::sleep(Duration::from_millis(2));
            let _ = stream.write_all(last);
        }
    });
    let run = |exchange: Exchange| {
        let mode = Connections::KeepAlive(2);
        let mut generator = Generator::of(address, vec![exchange], mode, SECOND * 10);
        let schedule = Schedule::one_by_one(5);
        generator.run(schedule, &Interrupt::default()).unwrap()
    };
    let asked = run(one.pipelined(COUNT));
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|r| r.failure.is_none()), "{asked:?}");
    // One answer more or another is a failure.
    let other = Exchange::exactly("*1\r\n$4\r\nPING\r\n".into(), "+PANG\r\n".into());
    let asked = run(other.pipelined(COUNT));
    assert!(
        asked.iter().all(|r| r.failure == Some(Failure::WrongBody)),
        "{asked:?}"
    );
}
