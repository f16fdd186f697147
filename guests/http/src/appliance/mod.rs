//! The server on the library OS: files of the initramfs or of a disk, TCP streams,
//! threads.
//!
//! Options on the command line: `port=N` (80), `connections=N` (as many as the heap
//! carries, up to [`MOST_CONNECTIONS`]), `metrics=on` to serve figures for Prometheus
//! at `/metrics` (off), `precompressed=on` to send `FILE.br`, `FILE.zst` or `FILE.gz`
//! instead of `FILE` to clients that take it (off), and for paths without a file
//! `not_found=FILE` to send it with 404, or `fallback=FILE` to send it with 200.
//! `site=NAME` names the table of a site's file in the initramfs (crate `tare-site`), which
//! `tare run --site` puts there: headers by path, redirects, listings, hosts, an access log, and
//! the two above. `reload=on` (off) takes other roots from the disk that `tare run --reload` adds,
//! and gives the initramfs's memory back after the first; `http` only.

mod machine;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use tare_libos::fs::{Origin, Region};
use tare_libos::io::{self, Error, ErrorKind};
use tare_libos::net::{self, Ipv4Addr, Ipv6Addr, TcpListener};
use tare_libos::serve::{self, Service, Stream};
use tare_libos::{block, env, fs, heap, print, println, thread};
use tare_site::reload::{self, Answer};
use tare_site::{Log, Table, TableError};

use crate::access_log::{AccessLog, Format};
use crate::connection;
use crate::first_root::FirstRoot;
use crate::reload::Reload;
use crate::root::Loaded;
use crate::rules::{Given, RulesError};
use crate::server::{Metrics, Missing, Precompressed, Server};
use crate::site::Files;
use machine::AppliancePlatform;

/// Most connections, whatever the memory.
pub const MOST_CONNECTIONS: u64 = 16_384;
/// Fewest connections, however little memory there is.
const FEWEST_CONNECTIONS: u64 = 16;
/// What an open connection takes of the heap, a tenth above what was measured
/// (40.4 kB): its socket's buffers (20 KiB), its stack, its own buffer.
const CONNECTION_BYTES: u64 = 44 * 1024;
/// Kept for connections that are one too many, so that they get an answer.
const REFUSED_BYTES: u64 = 1024 * 1024;
/// How long the line that says where the server is waits for an address.
const ADDRESS_WAIT: Duration = Duration::from_secs(60);

/// Serves the initramfs forever; returns only if it cannot start.
pub fn run() -> io::Result<()> {
    if env::var("root").is_some() {
        let reason = "root= names a disk, but this image serves its initramfs: use http-disk";
        return Err(Error::new(ErrorKind::Unsupported, reason));
    }
    let reloads = switch(reload::PARAMETER, "invalid reload=: want on or off")?;
    let first = if reloads {
        First::owned()?
    } else {
        First::of_platform()?
    };
    serve_files(first, |http, log| {
        if reloads {
            start_reload(http, log)?;
        }
        Ok(())
    })
}

/// Serves the file system on the disk `root=` (`disk0`) forever; returns only if
/// it cannot start. Apart from [`run`], because reading file systems is a quarter of
/// an image.
pub fn run_from_disk() -> Result<(), String> {
    fs::mount_root().map_err(|error| error.to_string())?;
    let served = First::of_platform().and_then(|first| serve_files(first, |_, _| Ok(())));
    served.map_err(|error| error.to_string())
}

/// What is served first.
struct First {
    platform: AppliancePlatform,
    site: Option<Table<'static>>,
    /// Instead of the platform's files.
    files: Option<Loaded>,
}

impl First {
    /// The platform's files, which stay in memory.
    fn of_platform() -> io::Result<Self> {
        let mut platform = AppliancePlatform::new();
        let site = match env::var(tare_site::PARAMETER) {
            None => None,
            Some(name) => {
                platform = platform.hiding(name);
                Some(site(fs::in_initramfs(name))?)
            }
        };
        Ok(Self {
            platform,
            site,
            files: None,
        })
    }

    /// The initramfs's files, whose memory goes with the last one in use.
    #[cold]
    fn owned() -> io::Result<Self> {
        let name = env::var(tare_site::PARAMETER);
        let first = Region::of_initramfs().map(|archive| FirstRoot::of(&archive, name));
        let no_memory = |_| {
            let reason = "reload=on: no memory for the records of the files: give the machine more";
            Error::new(ErrorKind::ResourceBusy, reason)
        };
        let FirstRoot { files, table } = first.transpose().map_err(no_memory)?.unwrap_or_default();
        let site = match name {
            None => None,
            // Rules refer to it.
            Some(_) => Some(site(table.map(|table| &*table.leak()))?),
        };
        Ok(Self {
            platform: AppliancePlatform::new(),
            site,
            files: Some(files),
        })
    }

    fn origin(&self) -> Origin {
        match &self.files {
            None => self.platform.origin(),
            Some(files) => Origin::Archive {
                files: files.files() as usize,
            },
        }
    }

    fn missing(&self) -> io::Result<Missing> {
        let files: &dyn Files = match &self.files {
            None => &self.platform,
            Some(files) => files,
        };
        let missing = given().missing(self.site.as_ref(), files);
        missing.map_err(|RulesError(why)| Error::new(ErrorKind::InvalidInput, why))
    }
}

/// Serves the files of `first`; `also` starts what goes with that.
fn serve_files(
    first: First,
    also: impl FnOnce(&'static Http, Log) -> io::Result<()>,
) -> io::Result<()> {
    let port = match env::var("port") {
        None => 80,
        Some(word) => word
            .parse::<u16>()
            .ok()
            .filter(|port| *port != 0)
            .ok_or(Error::new(
                ErrorKind::InvalidInput,
                "invalid port=: want 1 to 65535",
            ))?,
    };
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    let (origin, missing) = (first.origin(), first.missing()?);
    let First {
        platform,
        site,
        files,
    } = first;
    let mut server = Server::new(platform)
        .with_metrics(metrics()?)
        .with_precompressed(precompressed()?)
        .with_missing(missing);
    if let Some(files) = files {
        server = server.with_files(files);
    }
    let log = site.as_ref().map_or(Log::Off, |site| site.log);
    if let Some(format) = format(log) {
        server = server.with_log(start_log(format)?);
    }
    if let Some(site) = site {
        server = server.with_site(site);
    }
    // Served forever.
    let http: &'static Http = Box::leak(Box::new(Http {
        server,
        most: AtomicU64::new(most_connections(0)?),
    }));
    serve::start(listener, http)
        .map_err(|_| Error::new(ErrorKind::Other, "no memory for a thread"))?;
    also(http, log)?;
    let address = net::wait_configured(Some(ADDRESS_WAIT)).unwrap_or(Ipv4Addr::UNSPECIFIED);
    println!("http: serving {origin} on {address}:{port}");
    serve::stay();
}

fn format(log: Log) -> Option<Format> {
    match log {
        Log::Off => None,
        Log::Combined => Some(Format::Combined),
        Log::Json => Some(Format::Json),
    }
}

/// Starts the thread that takes other roots from a disk. It sleeps until the disk changes.
fn start_reload(http: &'static Http, log: Log) -> io::Result<()> {
    let unsupported = |reason| Error::new(ErrorKind::Unsupported, reason);
    let disk = block::disk(reload::SERIAL)
        .ok_or_else(|| unsupported("reload=on: want the disk of tare run --reload"))?;
    let changed = disk.watch();
    let changed =
        changed.map_err(|_| unsupported("reload=on: the disk has no interrupt for its changes"))?;
    let mut reload = Reload::new(disk.clone(), given(), log);
    let work = move || {
        loop {
            // The first time for what came before.
            if let Some(Answer::Taken { files }) = reload.look(&http.server, room_for_root()) {
                http.count_room();
                println!("http: serving {files} files anew");
            }
            changed.wait();
        }
    };
    let thread = thread::Builder::new().name("reload").spawn(work);
    thread.map_err(|_| Error::new(ErrorKind::Other, "no memory for a thread"))?;
    Ok(())
}

/// Memory for another root, in bytes. A quarter of the heap stays for connections, as when files
/// are read from a disk.
fn room_for_root() -> u64 {
    heap::available().saturating_sub(heap::stats().total / 4)
}

/// Starts the thread that writes the access log to the console, where each byte is an exit:
/// after each line it lets connections run.
fn start_log(format: Format) -> io::Result<Arc<AccessLog>> {
    let log = Arc::new(AccessLog::new(format));
    let theirs = Arc::clone(&log);
    let write = move || {
        let mut lines = Vec::new();
        loop {
            theirs.wait(&mut lines);
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                print!("{}", str::from_utf8(line).unwrap_or_default());
                thread::yield_now();
            }
        }
    };
    let thread = thread::Builder::new().name("log").spawn(write);
    thread.map_err(|_| Error::new(ErrorKind::Other, "no memory for a thread"))?;
    Ok(log)
}

/// The server, and the most connections that it takes.
struct Http {
    server: Server<AppliancePlatform>,
    most: AtomicU64,
}

impl Http {
    /// Works out anew how many connections there is memory for.
    fn count_room(&self) {
        if let Ok(most) = most_connections(self.server.counters.open()) {
            self.most.store(most, Ordering::Relaxed);
        }
    }
}

impl Service for &'static Http {
    const NAME: &'static str = "http";

    fn has_room(&self) -> bool {
        self.server.counters.open() < self.most.load(Ordering::Relaxed)
    }

    fn serve(&self, stream: Stream) {
        connection::serve(stream, &self.server);
    }

    fn refuse(&self, stream: Stream) {
        connection::refuse(stream, &self.server);
    }
}

fn metrics() -> io::Result<Metrics> {
    let is_on = switch("metrics", "invalid metrics=: want on or off")?;
    Ok(if is_on { Metrics::On } else { Metrics::Off })
}

fn precompressed() -> io::Result<Precompressed> {
    let is_on = switch("precompressed", "invalid precompressed=: want on or off")?;
    Ok(if is_on {
        Precompressed::On
    } else {
        Precompressed::Off
    })
}

/// What the command line names for paths without a file.
fn given() -> Given {
    Given {
        not_found: env::var("not_found"),
        fallback: env::var("fallback"),
    }
}

/// The table of the site's file, if it is there. What `tare check` refuses is refused here too:
/// an initramfs can come from anywhere.
fn site(bytes: Option<&'static [u8]>) -> io::Result<Table<'static>> {
    let invalid = |reason| Error::new(ErrorKind::InvalidInput, reason);
    let bytes = bytes.ok_or_else(|| invalid("site=: the initramfs has no such file"))?;
    Table::parse(bytes).map_err(|error| {
        invalid(match error {
            TableError::Header => "site=: not a site's table of the version that this image reads",
            TableError::Bounds => "site=: the table is damaged: a count or an offset is wrong",
            TableError::Rule => "site=: the table has a rule that tare check refuses",
        })
    })
}

/// Whether an option that is off without a word is on.
fn switch(name: &'static str, invalid: &'static str) -> io::Result<bool> {
    match env::var(name) {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(_) => Err(Error::new(ErrorKind::InvalidInput, invalid)),
    }
}

/// Connections that there is memory for, with those that are `open` and have theirs.
fn most_connections(open: u64) -> io::Result<u64> {
    if let Some(word) = env::var("connections") {
        let given = word.parse::<u64>().ok().filter(|most| *most > 0);
        return given.ok_or(Error::new(
            ErrorKind::InvalidInput,
            "invalid connections=: want a number above 0",
        ));
    }
    let room = heap::available().saturating_sub(REFUSED_BYTES) / CONNECTION_BYTES + open;
    Ok(room.clamp(FEWEST_CONNECTIONS, MOST_CONNECTIONS))
}
