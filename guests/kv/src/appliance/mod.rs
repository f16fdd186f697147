//! The server on the library OS: TCP streams, threads, memory.
//!
//! Options on the command line: `port=N` (11211), `mem=MIB` for the items (three
//! quarters of what is free), `connections=N` (as many as the rest carries, up to
//! [`MOST_CONNECTIONS`]), `idle_s=N` after which a quiet connection is closed
//! (never), `metrics=on` to serve figures for Prometheus over HTTP at `/metrics` of the same
//! port (off).

use core::time::Duration;

use tare_libos::io::{self, Error, ErrorKind};
use tare_libos::net::{self, Ipv4Addr, Ipv6Addr, KeepAlive, TcpListener};
use tare_libos::serve::metrics::Started;
use tare_libos::serve::{self, Service, Stream};
use tare_libos::sync::OnceLock;
use tare_libos::time::{SystemTime, UNIX_EPOCH};
use tare_libos::{env, heap, println, random};

use crate::connection;
use crate::server::{AppendFigures, Server, Settings};
use crate::store::{Clock, Seed};

/// Most connections, whatever the memory.
pub const MOST_CONNECTIONS: u64 = 16_384;
/// Fewest connections, however little memory there is.
const FEWEST_CONNECTIONS: u64 = 16;
/// What an open connection takes of the heap: its socket's buffers (20 KiB), its
/// stack (16 KiB), buffers for a command and its answer.
const CONNECTION_BYTES: u64 = 48 * 1024;
/// A client that has vanished without a word gives its place up after four minutes.
const PROBES: KeepAlive = KeepAlive {
    idle: Duration::from_secs(120),
    interval: Duration::from_secs(30),
    probes: 4,
};
/// How long the line that says where the server is waits for an address.
const ADDRESS_WAIT: Duration = Duration::from_secs(60);

/// Serves forever; returns only if it cannot start.
pub fn run() -> io::Result<()> {
    let settings = settings()?;
    let port = settings.port;
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    let server = Server::new(settings, WallClock);
    serve::start(listener, server)
        .map_err(|_| Error::new(ErrorKind::Other, "no memory for a thread"))?;
    let address = net::wait_configured(Some(ADDRESS_WAIT)).unwrap_or(Ipv4Addr::UNSPECIFIED);
    println!("kv: serving on {address}:{port}");
    serve::stay();
}

impl Service for Server<WallClock> {
    const NAME: &'static str = "kv";

    fn has_room(&self) -> bool {
        self.traffic.open() < self.settings.connections
    }

    fn serve(&self, stream: Stream) {
        stream.keep_alive(PROBES);
        connection::serve(stream, self);
    }

    fn refuse(&self, stream: Stream) {
        connection::refuse(stream, self);
    }
}

/// Seconds of libos' wall clock, which follows no later correction.
struct WallClock;

impl Clock for WallClock {
    fn unix_s(&self) -> u32 {
        SystemTime::now().duration_since(UNIX_EPOCH).as_secs() as u32
    }
}

fn settings() -> io::Result<Settings> {
    let free = heap::available();
    let port = number("port", "invalid port=: want 1 to 65535", u16::MAX.into())?;
    let most_mem = free >> 20;
    let mem = number(
        "mem",
        "invalid mem=: want MiB, less than the guest has",
        most_mem,
    )?;
    let memory_bytes = mem.map_or(free / 4 * 3, |mem| mem << 20);
    let room = (free - memory_bytes) / CONNECTION_BYTES;
    let connections = number(
        "connections",
        "invalid connections=: want a number above 0",
        u64::MAX,
    )?;
    let idle = number("idle_s", "invalid idle_s=: want seconds", u32::MAX.into())?;
    Ok(Settings {
        memory_bytes: memory_bytes as usize,
        connections: connections
            .unwrap_or_else(|| room.clamp(FEWEST_CONNECTIONS, MOST_CONNECTIONS)),
        port: port.map_or(11211, |port| port as u16),
        idle: idle.map(Duration::from_secs),
        metrics: metrics()?,
        seed: seed(),
    })
}

/// The number of a `key=value` word, from 1 to `most`.
fn number(key: &'static str, wanted: &'static str, most: u64) -> io::Result<Option<u64>> {
    let Some(word) = env::var(key) else {
        return Ok(None);
    };
    let number = word
        .parse()
        .ok()
        .filter(|number| (1..=most).contains(number));
    number
        .map(Some)
        .ok_or(Error::new(ErrorKind::InvalidInput, wanted))
}

fn metrics() -> io::Result<Option<AppendFigures>> {
    static STARTED: OnceLock<Started> = OnceLock::new();
    match env::var("metrics") {
        None | Some("off") => Ok(None),
        Some("on") => {
            STARTED.get_or_init(Started::now);
            Ok(Some(|out| STARTED.get_or_init(Started::now).expose(out)))
        }
        Some(_) => Err(Error::new(
            ErrorKind::InvalidInput,
            "invalid metrics=: want on or off",
        )),
    }
}

fn seed() -> Seed {
    let mut words = [[0; 8]; 2];
    words.iter_mut().for_each(|word| random::fill(word));
    Seed(words.map(u64::from_le_bytes))
}
