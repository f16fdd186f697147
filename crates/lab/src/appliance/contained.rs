//! memcached in a container: a bundle that `runc` runs, with processes, mounts, IPC
//! and host name of its own and nothing but the host's programs to read. It keeps the
//! host's network, so that its clients reach it on loopback without a bridge: what a
//! container costs apart from its network.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};
use tare_control::stats::Stats;
use tare_platform::engine::Engine;
use tempfile::TempDir;

use super::{Appliance, ApplianceError};
use crate::interrupt::{Interrupt, SLICE};
use crate::observe::CpuReading;

/// The runtime.
const RUNTIME: &str = Engine::Runc.name();
/// Where programs and their libraries are.
const PROGRAMS: [&str; 3] = ["usr", "lib", "lib64"];
/// Who memcached is in the container, where that may be chosen.
const NOBODY: u32 = 65_534;

/// A container that was started. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Contained {
    child: Child,
    bundle: TempDir,
    id: String,
    started: Instant,
    address: SocketAddr,
}

impl Contained {
    /// Starts memcached with one worker thread on a port of the loopback.
    pub(super) fn start(port: u16, memory_mib: u32) -> Result<Self, ApplianceError> {
        let bundle = tempfile::tempdir().map_err(ApplianceError::Prepare)?;
        let id = format!("tare-lab-kv-{}-{port}", std::process::id());
        let said =
            prepare(bundle.path(), &id, port, memory_mib).map_err(ApplianceError::Prepare)?;
        let started = Instant::now();
        let child = Command::new(RUNTIME)
            .arg("--root")
            .arg(state(bundle.path()))
            .args(["run", "--bundle"])
            .arg(bundle.path())
            .arg(&id)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(|source| ApplianceError::Execute {
                path: PathBuf::from(RUNTIME),
                source,
            })?;
        Ok(Self {
            child,
            bundle,
            id,
            started,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        })
    }

    fn check(&mut self) -> Result<(), ApplianceError> {
        let Some(status) = self.child.try_wait().map_err(ApplianceError::Prepare)? else {
            return Ok(());
        };
        let signal = || -status.signal().unwrap_or(1);
        let said = fs::read_to_string(said(self.bundle.path())).unwrap_or_default();
        Err(ApplianceError::Ended {
            code: status.code().unwrap_or_else(signal),
            said: said.lines().last().unwrap_or("nothing").to_owned(),
        })
    }
}

/// Writes the bundle; the file for what the runtime says.
fn prepare(bundle: &Path, id: &str, port: u16, memory_mib: u32) -> io::Result<fs::File> {
    let root = bundle.join("rootfs");
    for directory in ["proc", "dev"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let mut shared = Vec::new();
    for name in PROGRAMS {
        let host = Path::new("/").join(name);
        // `/lib` is a link to `usr/lib` on most hosts.
        if let Ok(target) = fs::read_link(&host) {
            symlink(target, root.join(name))?;
        } else if host.is_dir() {
            fs::create_dir(root.join(name))?;
            shared.push(host);
        }
    }
    let (port, memory) = (port.to_string(), memory_mib.to_string());
    let words = "memcached -u root -l 127.0.0.1 -U 0 -t 1".split(' ');
    let words: Vec<&str> = words.chain(["-p", &port, "-m", &memory]).collect();
    let config = config(id, &words, &shared);
    fs::write(bundle.join("config.json"), config.to_string())?;
    fs::File::create(said(bundle))
}

/// The configuration (OCI runtime specification 1.0). Whoever is not root is it in
/// a user namespace.
fn config(id: &str, words: &[&str], shared: &[PathBuf]) -> Value {
    let is_root = geteuid().is_root();
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "mode=755", "size=64k"]}),
    ];
    mounts.extend(shared.iter().map(|path| {
        json!({"destination": path, "type": "bind", "source": path,
               "options": ["rbind", "ro", "nosuid", "nodev"]})
    }));
    let user = if is_root { NOBODY } else { 0 };
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "user": {"uid": user, "gid": user}, "args": words,
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "memcached",
        "mounts": mounts,
        "linux": {"namespaces": []},
    });
    let mut kinds = vec!["pid", "ipc", "uts", "mount"];
    let linux = &mut config["linux"];
    if is_root {
        linux["cgroupsPath"] = json!(format!("/{id}"));
    } else {
        kinds.push("user");
        let map = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
        linux["uidMappings"] = map(geteuid().as_raw());
        linux["gidMappings"] = map(getegid().as_raw());
    }
    let namespaces = kinds.into_iter().map(|kind| json!({"type": kind}));
    linux["namespaces"] = namespaces.collect();
    config
}

/// What the runtime and memcached say.
fn said(bundle: &Path) -> PathBuf {
    bundle.join("said")
}

/// Where the runtime keeps what it knows of its containers.
fn state(bundle: &Path) -> PathBuf {
    bundle.join("state")
}

impl Appliance for Contained {
    fn started(&self) -> Instant {
        self.started
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait_serving(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Duration, ApplianceError> {
        loop {
            interrupt.check()?;
            self.check()?;
            if TcpStream::connect(self.address).is_ok() {
                return Ok(self.started.elapsed());
            }
            if self.started.elapsed() > timeout {
                return Err(ApplianceError::NotServing(timeout));
            }
            interrupt.sleep(SLICE)?;
        }
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        self.check()?;
        Ok(None)
    }

    /// memcached and the runtime that waits for it.
    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        CpuReading::read(self.child.id(), &[]).map_err(ApplianceError::Cpu)
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        Engine::Runc.delete(&state(self.bundle.path()), &self.id);
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn runs(program: &str) -> bool {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn memcached_answers_from_a_container_and_nothing_of_it_is_left() {
        if !runs(RUNTIME) || !runs("memcached") {
            println!("SKIP: runc or memcached is not installed");
            return;
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut server = Contained::start(port, 8).unwrap();
        let (interrupt, _watch) = Interrupt::watch().unwrap();
        server
            .wait_serving(Duration::from_secs(30), &interrupt)
            .unwrap();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"stats\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // The first process of a namespace of its own, with the memory that it was given.
        assert!(answer.contains("STAT pid 1\r\n"), "{answer}");
        assert!(
            answer.contains("STAT limit_maxbytes 8388608\r\n"),
            "{answer}"
        );
        let bundle = server.bundle.path().to_owned();
        drop(server);
        assert!(!bundle.exists());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
