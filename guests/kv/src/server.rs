//! One server: its store and what its commands answer.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use tare_libos::heap;
use tare_libos::sync::Mutex;

use crate::limits::MAX_KEY;
use crate::number;
use crate::request::{Command, Get, Key, Reply, Verb};
use crate::statistics;
use crate::store::{Clock, Computed, OutputFull, Refusal, Seed, Store, Stored};

/// The protocol's level, as clients compare it, and whose it is.
pub const VERSION: &str = concat!("1.6.18-tare-", env!("CARGO_PKG_VERSION"));

/// What all connections of a server share.
pub struct Server<C> {
    store: Mutex<Store<C>>,
    /// How it was set up.
    pub settings: Settings,
    /// What passes through its connections.
    pub traffic: Traffic,
    started_s: u32,
}

/// Appends figures in Prometheus' text format.
pub type AppendFigures = fn(&mut Vec<u8>);

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the items may take.
    pub memory_bytes: usize,
    /// Most connections at a time.
    pub connections: u64,
    /// Where it listens.
    pub port: u16,
    /// How long a connection may be quiet, if that is limited.
    pub idle: Option<Duration>,
    /// Serves figures for Prometheus at `/metrics`, to all clients that can reach the port, with
    /// those of the machine, which this appends.
    pub metrics: Option<AppendFigures>,
    /// The secret of the store's hashes.
    pub seed: Seed,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            connections: 1024,
            port: 11211,
            idle: None,
            metrics: None,
            seed: Seed([0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]),
        }
    }
}

/// Connections and bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    accepted: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

impl Traffic {
    pub(crate) fn begins(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    pub(crate) fn ends(&self) {
        self.ended.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Connections that are open now.
    pub fn open(&self) -> u64 {
        let ended = self.ended.load(Relaxed);
        self.accepted.load(Relaxed).saturating_sub(ended)
    }

    /// Every figure by memcached's name.
    pub(crate) fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("curr_connections", self.open()),
            ("total_connections", self.accepted.load(Relaxed)),
            ("rejected_connections", self.refused.load(Relaxed)),
            ("bytes_read", self.received_bytes.load(Relaxed)),
            ("bytes_written", self.sent_bytes.load(Relaxed)),
        ]
    }
}

/// What a connection does after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Goes on.
    Continue,
    /// Lets that many bytes pass first.
    Skip(usize),
    /// Ends.
    Close,
}

const END: &[u8] = b"END\r\n";
const NO_MEMORY_TO_GET: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
const NO_MEMORY_TO_STORE: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
const NOT_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
const METRICS_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
    Cache-Control: no-store\r\nConnection: close\r\nContent-Length: ";
const METRICS_BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    Connection: close\r\nContent-Length: 0\r\n\r\n";
/// More than the figures and their answer take.
const METRICS_ROOM: usize = 64 * 1024;

impl<C: Clock> Server<C> {
    /// A server with an empty store.
    pub fn new(settings: Settings, clock: C) -> Self {
        let started_s = clock.unix_s();
        Self {
            store: Mutex::new(Store::new(clock, settings.memory_bytes, settings.seed)),
            settings,
            traffic: Traffic::default(),
            started_s,
        }
    }

    /// What the items take.
    pub fn used_bytes(&self) -> usize {
        self.store.lock().used_bytes()
    }

    /// Carries out a command other than the `get`s, whose answers may need to
    /// be sent in between, and appends the answer.
    pub fn execute(&self, command: &Command<'_>, out: &mut Vec<u8>) -> Then {
        match *command {
            Command::Store(ref entry, reply) => {
                let stored = self.store.lock().store(entry);
                say(stored_text(stored), reply_to(stored, reply), out);
            }
            Command::Get(ref get) => self.get(get, out),
            Command::Answer(text) => out.extend_from_slice(text),
            Command::Meta(ref meta) => {
                if self.store.lock().meta(meta, out).is_err() {
                    out.extend_from_slice(NO_MEMORY_TO_GET);
                }
            }
            Command::Delete(key, reply) => {
                let deleted = self.store.lock().delete(key);
                say(if deleted { b"DELETED\r\n" } else { NOT_FOUND }, reply, out);
            }
            Command::Arithmetic {
                key,
                direction,
                delta,
                reply,
            } => {
                let computed = self.store.lock().compute(key, direction, delta);
                say_computed(computed, reply, out);
            }
            Command::Touch(key, exptime, reply) => {
                let touched = self.store.lock().touch(key, exptime);
                say(if touched { b"TOUCHED\r\n" } else { NOT_FOUND }, reply, out);
            }
            Command::TooLarge {
                verb,
                key,
                data,
                reply,
            } => {
                self.refuse(verb, key, Refusal::TooLarge);
                say(TOO_LARGE, reply, out);
                return Then::Skip(data);
            }
            Command::Refused { text, data } => {
                out.extend_from_slice(text);
                return Then::Skip(data);
            }
            Command::FlushAll(delay, reply) => {
                self.store.lock().flush_all(delay);
                say(b"OK\r\n", reply, out);
            }
            Command::Stats(group) => self.stats(group, out),
            Command::Version => {
                for part in ["VERSION ", VERSION, "\r\n"] {
                    out.extend_from_slice(part.as_bytes());
                }
            }
            Command::Metrics => {
                self.metrics(out);
                return Then::Close;
            }
            Command::Close => return Then::Close,
        }
        Then::Continue
    }

    /// Answers all keys at once.
    fn get(&self, get: &Get<'_>, out: &mut Vec<u8>) {
        let begin = out.len();
        for key in get.keys {
            if self.get_one(get, key, out).is_err() {
                out.truncate(begin);
                return out.extend_from_slice(NO_MEMORY_TO_GET);
            }
        }
        Self::end_get(Ok(()), out);
    }

    /// Appends the item of one key, if there is one.
    pub(crate) fn get_one(
        &self,
        get: &Get<'_>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, OutputFull> {
        self.store.lock().get(key, get.form, get.touch, out)
    }

    /// Ends the answer to a `get`.
    pub(crate) fn end_get(result: Result<(), OutputFull>, out: &mut Vec<u8>) {
        out.extend_from_slice(match result {
            Ok(()) => END,
            Err(OutputFull) => NO_MEMORY_TO_GET,
        });
    }

    /// Answers a storage command for whose data there is no memory.
    pub(crate) fn refuse_data(&self, verb: Verb, key: Key<'_>, out: &mut Vec<u8>) {
        self.refuse(verb, key, Refusal::NoMemory);
        out.extend_from_slice(NO_MEMORY_TO_STORE);
    }

    fn refuse(&self, verb: Verb, key: Key<'_>, why: Refusal) {
        let mut room = [0; MAX_KEY];
        let key = key.bytes(&mut room);
        self.store.lock().refuse(verb, key, why);
    }

    /// Answers a request over HTTP, if the server's figures are served.
    #[cold]
    fn metrics(&self, out: &mut Vec<u8>) {
        let Some(of_machine) = self.settings.metrics else {
            return;
        };
        if !heap::has_room(METRICS_ROOM) {
            return out.extend_from_slice(METRICS_BUSY);
        }
        let mut text = Vec::with_capacity(METRICS_ROOM / 2);
        statistics::metrics(&self.store.lock(), &self.traffic, &mut text);
        of_machine(&mut text);
        out.extend_from_slice(METRICS_HEAD);
        number::push(out, text.len() as u64);
        out.extend_from_slice(b"\r\n\r\n");
        out.append(&mut text);
    }

    fn stats(&self, group: &[u8], out: &mut Vec<u8>) {
        let mut store = self.store.lock();
        match group {
            b"" => statistics::general(&store, &self.traffic, self.started_s, out),
            b"items" => statistics::items(&store, out),
            b"slabs" => statistics::slabs(&store, out),
            b"settings" => statistics::settings(&self.settings, out),
            // As memcached without -o track_sizes.
            b"sizes" => out.extend_from_slice(b"STAT sizes_status disabled\r\n"),
            b"reset" => {
                store.reset_counts();
                return out.extend_from_slice(b"RESET\r\n");
            }
            _ => return out.extend_from_slice(b"ERROR\r\n"),
        }
        out.extend_from_slice(END);
    }
}

fn stored_text(stored: Stored) -> &'static [u8] {
    match stored {
        Stored::Stored => b"STORED\r\n",
        Stored::NotStored => b"NOT_STORED\r\n",
        Stored::Exists => b"EXISTS\r\n",
        Stored::NotFound => NOT_FOUND,
        Stored::NoMemory => NO_MEMORY_TO_STORE,
    }
}

/// Lack of memory is reported even to clients that asked for no answer.
fn reply_to(stored: Stored, reply: Reply) -> Reply {
    match stored {
        Stored::NoMemory => Reply::Wanted,
        _ => reply,
    }
}

fn say_computed(computed: Computed, reply: Reply, out: &mut Vec<u8>) {
    match computed {
        Computed::NotFound => say(NOT_FOUND, reply, out),
        Computed::NotNumeric => say(NOT_NUMERIC, reply, out),
        Computed::NoMemory => say(NO_MEMORY, Reply::Wanted, out),
        Computed::Value(value) => {
            if reply == Reply::Wanted {
                number::push(out, value);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

fn say(text: &[u8], reply: Reply, out: &mut Vec<u8>) {
    if reply == Reply::Wanted {
        out.extend_from_slice(text);
    }
}
