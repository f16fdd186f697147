//! What the control socket answers: the monitor's statistics and settings, as
//! far as a disk without a machine has them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::to_vec;
use tare_control::api::{Stop, StopRequest};
use tare_control::settings::{Coalesce, DiskSettings, Settings, SettingsChange, SettingsError};
use tare_control::stats::{DeviceStats, Kvm, Stats};
use tare_daemon::http::{Method, Request, Response, Routes};
use tare_daemon::observe::{MemoryObserver, ThreadObserver, prometheus};
use tare_devices::CounterSource;

use crate::failure::chain;
use crate::io::lock;
use crate::session::Session;

const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The one disk's name in settings.
const DISK: &str = "disk0";

/// The control interface.
pub(crate) struct Control {
    pub(crate) name: String,
    pub(crate) disk_path: String,
    pub(crate) started: Instant,
    pub(crate) session: Arc<Mutex<Session>>,
    pub(crate) counters: Vec<Arc<dyn CounterSource>>,
    pub(crate) threads: Vec<ThreadObserver>,
    pub(crate) memory: MemoryObserver,
    /// A request to stop, for the main loop.
    pub(crate) stop: Option<Stop>,
    /// Wakes the I/O thread after a change.
    pub(crate) wake: OwnedFd,
}

impl Routes for Control {
    fn answer(&mut self, request: &Request<'_>) -> Response {
        let reads = matches!(request.method, Method::Get | Method::Head);
        let writes = matches!(request.method, Method::Put | Method::Post);
        match request.path {
            "/v1/stats" if reads => json(to_vec(&self.stats())),
            "/metrics" if reads => {
                let text = prometheus::text(&self.stats());
                Response::ok(PROMETHEUS, text.into_bytes())
            }
            "/v1/settings" if reads => json(to_vec(&self.settings())),
            "/v1/settings" if request.method == Method::Put => self.set(request.body),
            "/v1/stop" if writes => self.stop(request.body),
            "/v1/stats" | "/metrics" => Response::method_not_allowed("GET, HEAD"),
            "/v1/settings" => Response::method_not_allowed("GET, HEAD, PUT"),
            "/v1/stop" => Response::method_not_allowed("PUT, POST"),
            _ => Response::error(
                404,
                "there are /v1/stats, /v1/settings, /v1/stop and /metrics",
            ),
        }
    }
}

impl Control {
    fn stats(&self) -> Stats {
        let uptime_ns = self.started.elapsed().as_nanos();
        let counters = self.counters.iter().flat_map(|it| it.snapshot());
        Stats {
            name: self.name.clone(),
            pid: std::process::id(),
            kvm: Kvm::None,
            uptime_ns: u64::try_from(uptime_ns).unwrap_or(u64::MAX),
            halt: None,
            vcpus: Vec::new(),
            devices: vec![DeviceStats {
                kind: "blk".to_owned(),
                address: String::new(),
                counters: counters.collect(),
            }],
            threads: self.threads.iter().map(ThreadObserver::stats).collect(),
            memory: self.memory.stats(),
        }
    }

    fn settings(&self) -> Settings {
        let coalescing = lock(&self.session).device().coalescing();
        let disk = DiskSettings {
            path: self.disk_path.clone(),
            coalesce: Coalesce::from(&coalescing),
        };
        Settings {
            disks: [(DISK.to_owned(), disk)].into(),
            ..Settings::default()
        }
    }

    fn set(&mut self, body: &[u8]) -> Response {
        let change = match serde_json::from_slice::<SettingsChange>(body) {
            Ok(change) => change,
            Err(error) => {
                let sentence = format!("the body is no change of settings: {error}");
                return Response::error(400, &sentence);
            }
        };
        match self.change(&change) {
            Ok(settings) => json(to_vec(&settings)),
            Err(error) => Response::error(400, &chain(&error)),
        }
    }

    fn change(&self, change: &SettingsChange) -> Result<Settings, SettingsError> {
        let wanted = self.settings().changed(change)?;
        if change.disks.contains_key(DISK)
            && let Some(disk) = wanted.disks.get(DISK)
            // `changed` has checked it.
            && let Ok(rule) = disk.coalesce.settings()
        {
            lock(&self.session).set_coalescing(rule);
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        Ok(self.settings())
    }

    fn stop(&mut self, body: &[u8]) -> Response {
        let request = match body {
            [] => Ok(StopRequest::default()),
            body => serde_json::from_slice(body),
        };
        match request {
            Ok(StopRequest { how }) => {
                self.stop = Some(how);
                Response::accepted(b"{}".to_vec())
            }
            Err(error) => {
                let sentence = format!("the body is no stop request: {error}");
                Response::error(400, &sentence)
            }
        }
    }
}

fn json(body: Result<Vec<u8>, serde_json::Error>) -> Response {
    match body {
        Ok(body) => Response::ok(JSON, body),
        Err(error) => Response::error(500, &error.to_string()),
    }
}
