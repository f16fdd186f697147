//! A machine for tests: an HTTP server in a thread of this process, with made-up
//! statistics and CPU time. Its faults can be chosen.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

mod cache;

use serde_json::Value;
use tare_control::stats::{Kvm, MemoryStats, Stats, VcpuStats};

use super::{
    Appliance, ApplianceError, Executor, Guest, GuestSpec, Monitor, Packaging, Runtime,
    ServedGuest, ServerKind, Spec,
};
use crate::linux::LinuxError;
use crate::linux::catalog::{App, Protocol};
use crate::observe::CpuReading;
use crate::versions::Versions;
use tare_load::interrupt::Interrupt;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Every 20th answer is a 500.
    BadAnswers,
    /// The machine of this number ends as it starts.
    Ends(usize),
    /// Delay of every answer, ms.
    Slow(u64),
}

/// Starts fakes, and knows how many live.
#[derive(Debug)]
pub struct Fakes {
    /// What they say that executes them.
    pub kvm: Kvm,
    /// What goes wrong.
    pub fault: Fault,
    /// How many were started.
    pub started: usize,
    /// How many live.
    pub alive: Arc<AtomicUsize>,
    /// Servers that lived at the same time, at most.
    pub most: usize,
    /// What an image prints that measures.
    pub prints: fn(&GuestSpec) -> Vec<Value>,
}

impl Fakes {
    /// Machines that serve; they print nothing.
    pub fn new(kvm: Kvm, fault: Fault) -> Self {
        Self {
            kvm,
            fault,
            started: 0,
            alive: Arc::default(),
            most: 0,
            prints: |_| Vec::new(),
        }
    }

    /// Machines that print, on a KVM that emulates.
    pub fn printing(prints: fn(&GuestSpec) -> Vec<Value>, fault: Fault) -> Self {
        Self {
            prints,
            ..Self::new(Kvm::Emulated, fault)
        }
    }

    /// Counts a machine that starts, or ends as it does.
    fn starts(&mut self) -> Result<(), ApplianceError> {
        self.started += 1;
        if self.fault != Fault::Ends(self.started) {
            return Ok(());
        }
        Err(ApplianceError::Ended {
            code: 74,
            said: "<b>the guest</b> did something".into(),
        })
    }

    fn image(&mut self, spec: &Spec) -> Result<Box<dyn Appliance>, ApplianceError> {
        self.starts()?;
        // As the monitor chooses where KVM emulates ring 0.
        let ring = if spec.ring == "0" { 0 } else { 3 };
        let Some(root) = &spec.root else {
            return self.cache(spec.cpus, self.kvm, ring);
        };
        let kvm = if spec.engine == "qemu" {
            Kvm::None
        } else {
            self.kvm
        };
        self.file_server(root, kvm, ring, spec.cpus)
    }

    fn contained(&mut self) -> Result<Box<dyn Appliance>, ApplianceError> {
        self.starts()?;
        self.cache(1, Kvm::None, 0)
    }

    fn package(
        &mut self,
        app: &App,
        packaging: Packaging,
    ) -> Result<Box<dyn Appliance>, ApplianceError> {
        // Processes and containers have no statistics, nor has QEMU.
        let (kvm, ring) = match packaging {
            Packaging::Container(Runtime::Runsc) => return Err(missing("runsc")),
            Packaging::Tare("auto") => (self.kvm, 3),
            _ => (Kvm::None, 0),
        };
        self.starts()?;
        match &app.root {
            Some(root) => self.file_server(root, kvm, ring, 1),
            None => self.cache(1, kvm, ring),
        }
    }

    /// A web server that answers every request with the file.
    fn file_server(
        &mut self,
        root: &Path,
        kvm: Kvm,
        ring: u8,
        cpus: u8,
    ) -> Result<Box<dyn Appliance>, ApplianceError> {
        let file = std::fs::read(root.join("kib.txt")).map_err(ApplianceError::Prepare)?;
        let fault = self.fault;
        self.serving((kvm, ring, cpus), move |listener, requests, over| {
            let server = Server {
                file,
                fault,
                requests,
                over,
            };
            server.accept(&listener);
        })
    }

    /// A cache that answers `get` and `set` as the experiment `kv` asks them.
    fn cache(
        &mut self,
        cpus: u8,
        kvm: Kvm,
        ring: u8,
    ) -> Result<Box<dyn Appliance>, ApplianceError> {
        self.serving((kvm, ring, cpus), |listener, requests, over| {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let requests = Arc::clone(&requests);
                thread::spawn(move || cache::answer(stream, &requests));
            }
        })
    }

    /// A machine whose `serve` runs in a thread: it gets a listener of this host, the count of
    /// requests, and whether the machine has ended.
    fn serving(
        &mut self,
        (kvm, ring, cpus): (Kvm, u8, u8),
        serve: impl FnOnce(TcpListener, Arc<AtomicU64>, Arc<AtomicBool>) + Send + 'static,
    ) -> Result<Box<dyn Appliance>, ApplianceError> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(ApplianceError::Prepare)?;
        let address = listener.local_addr().map_err(ApplianceError::Prepare)?;
        let requests = Arc::new(AtomicU64::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let (counted, ended) = (Arc::clone(&requests), Arc::clone(&over));
        thread::spawn(move || serve(listener, counted, ended));
        let others = self.alive.fetch_add(1, Ordering::SeqCst);
        self.most = self.most.max(others + 1);
        Ok(Box::new(Fake {
            started: Instant::now(),
            address,
            kvm,
            ring,
            cpus,
            requests,
            over,
            alive: Arc::clone(&self.alive),
        }))
    }
}

impl Executor for Fakes {
    fn start(&mut self, target: ServerKind<'_>) -> Result<Box<dyn Appliance>, ApplianceError> {
        match target {
            ServerKind::Image(spec) => self.image(spec),
            ServerKind::WebServer(root) => self.file_server(root, Kvm::None, 0, 1),
            // One of the two is installed here.
            ServerKind::Elsewhere(
                Monitor::Firecracker,
                Spec {
                    root: Some(root),
                    cpus,
                    ..
                },
            ) => self.file_server(root, Kvm::None, 0, *cpus),
            ServerKind::Elsewhere(..) => Err(missing("cloud-hypervisor")),
            ServerKind::Memcached(_) => self.contained(),
            ServerKind::App(app, packaging) => self.package(app, packaging),
        }
    }

    /// Only a cache has files here, and what is the user's.
    fn bring(&mut self, app: &App) -> Result<u64, ApplianceError> {
        if app.protocol == Protocol::Memcached || app.root.is_some() {
            return Ok(1_000);
        }
        Err(ApplianceError::Files(Box::new(LinuxError::NoImage)))
    }

    fn versions_of(&self, _: &App) -> Versions {
        [("an-app".to_owned(), "1:2.3-4".to_owned())].into()
    }

    fn measure(&mut self, spec: &GuestSpec) -> Result<Box<dyn Guest>, ApplianceError> {
        self.starts()?;
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Printer {
            lines: (self.prints)(spec).into(),
            kvm: if spec.engine == "tare" {
                self.kvm
            } else {
                Kvm::None
            },
            cpus: spec.cpus,
            taken: 0,
            alive: Arc::clone(&self.alive),
        }))
    }

    fn serve(&mut self, _: &ServedGuest) -> Result<Box<dyn Guest>, ApplianceError> {
        Err(missing("qemu-system-x86_64"))
    }
}

/// A program that is not installed.
fn missing(program: &str) -> ApplianceError {
    ApplianceError::Execute {
        path: program.into(),
        source: std::io::ErrorKind::NotFound.into(),
    }
}

/// A machine that prints what it was given, then holds.
struct Printer {
    lines: VecDeque<Value>,
    kvm: Kvm,
    cpus: u8,
    taken: u64,
    alive: Arc<AtomicUsize>,
}

impl Guest for Printer {
    fn record(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Value, ApplianceError> {
        interrupt.check()?;
        self.taken += 1;
        self.lines
            .pop_front()
            .ok_or(ApplianceError::Silent(timeout))
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        CpuReading::read(std::process::id(), &[]).map_err(ApplianceError::Cpu)
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        Ok((self.kvm != Kvm::None).then(|| stats(self.kvm, self.cpus, self.taken)))
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Fake {
    started: Instant,
    address: SocketAddr,
    kvm: Kvm,
    ring: u8,
    cpus: u8,
    requests: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    alive: Arc<AtomicUsize>,
}

impl Appliance for Fake {
    fn started(&self) -> Instant {
        self.started
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait_serving(&mut self, _: Duration, _: &Interrupt) -> Result<Duration, ApplianceError> {
        Ok(self.started.elapsed())
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        let requests = self.requests.load(Ordering::SeqCst);
        let mut stats = stats(self.kvm, self.cpus, requests);
        stats.ring = Some(self.ring);
        stats.uptime_ns = self.started.elapsed().as_nanos() as u64;
        Ok((self.kvm != Kvm::None).then_some(stats))
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        CpuReading::read(std::process::id(), &[]).map_err(ApplianceError::Cpu)
    }

    fn resident_bytes(&mut self) -> Option<u64> {
        Some(8 << 20)
    }

    fn image_bytes(&self) -> Option<u64> {
        Some(123_456)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.alive.fetch_sub(1, Ordering::SeqCst);
        // Wakes the server's accept.
        let _ = TcpStream::connect(self.address);
    }
}

/// Statistics after a number of requests: each is 1000 instructions and one halt
/// on every vCPU.
pub fn stats(kvm: Kvm, cpus: u8, requests: u64) -> Stats {
    let vcpu = |index| VcpuStats {
        index,
        kvm: [
            ("insn_emulation", requests * 1000),
            ("halt_exits", requests),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        ..VcpuStats::default()
    };
    Stats {
        name: "fake".into(),
        pid: std::process::id(),
        kvm,
        ring: None,
        uptime_ns: 0,
        vcpus: (0..cpus).map(vcpu).collect(),
        devices: Vec::new(),
        threads: Vec::new(),
        memory: MemoryStats {
            monitor_resident_bytes: 3 << 20,
            ..MemoryStats::default()
        },
        halt: None,
        expiries: Vec::new(),
    }
}

#[derive(Clone)]
struct Server {
    file: Vec<u8>,
    fault: Fault,
    requests: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Server {
    fn accept(self, listener: &TcpListener) {
        for stream in listener.incoming().map_while(Result::ok) {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let server = self.clone();
            thread::spawn(move || server.serve(stream));
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut received = Vec::new();
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            received.extend_from_slice(&chunk[..count]);
            if !received.ends_with(b"\r\n\r\n") {
                continue;
            }
            let close = String::from_utf8_lossy(&received).contains("Connection: close");
            received.clear();
            let number = self.requests.fetch_add(1, Ordering::SeqCst);
            if stream.write_all(&self.answer(number)).is_err() || close {
                return;
            }
        }
    }

    fn answer(&self, number: u64) -> Vec<u8> {
        if let Fault::Slow(ms) = self.fault {
            thread::sleep(Duration::from_millis(ms));
        }
        if self.fault == Fault::BadAnswers && number % 20 == 19 {
            return b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        let length = self.file.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &self.file].concat()
    }
}
