//! Servers on the host's own kernel, without their own network, so that their clients
//! reach them on loopback without a bridge: memcached of the host in a container, and
//! applications with their own root, in a container or as a process in that directory.
//!
//! A container is a bundle that a runtime runs (OCI runtime specification 1.0), with
//! its own processes, mounts, IPC and host name: what it costs apart from its network.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getegid, geteuid};
use serde_json::{Value, json};
use tare_control::stats::Stats;
use tare_host::child::ends_with_us;
use tare_host::owned_directory;
use tare_host::program::find_program;
use tare_platform::Journal;
use tare_platform::container_engine::ContainerEngine;
use tare_platform::journal::{self, Change};

use super::{Appliance, ApplianceError, Runtime};
use crate::linux::catalog::App;
use crate::observe::{CpuReading, resident_bytes};
use tare_load::interrupt::{Interrupt, SLICE};

/// Where programs and their libraries are.
const PROGRAMS: [&str; 3] = ["usr", "lib", "lib64"];
/// Who memcached is in the container, where that may be chosen.
const NOBODY_ID: u32 = 65_534;
/// What root may do in a container that serves, of Docker's own list.
const CAPABILITIES: [&str; 5] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_SETGID",
    "CAP_SETUID",
];

impl Runtime {
    /// Its program.
    const fn program(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        }
    }

    /// Its command line with the directory of its state.
    fn command(self, state: &Path) -> Command {
        let mut command = Command::new(self.program());
        if self == Self::Runsc {
            command.arg("--network=host");
        }
        command.arg("--root").arg(state);
        command
    }
}

/// A server that was started. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Contained {
    child: Child,
    /// Its container, unless it is a bare process.
    container: Option<Runtime>,
    place: ServerPlace,
    started: Instant,
    address: SocketAddr,
}

/// A server's own directory, for what it says and its bundle. Gone with it, also if this process is
/// killed: the journal says so.
#[derive(Debug)]
struct ServerPlace {
    /// The server's name, which the directory and its container have.
    name: String,
    path: PathBuf,
    journal: Journal,
}

impl ServerPlace {
    fn new(what: &str, port: u16) -> Result<Self, ApplianceError> {
        let name = format!("tare-lab-{what}-{}-{port}", std::process::id());
        let path = journal::directory()?.with_file_name(&name);
        let mut journal = Journal::of_a_weighing()?;
        journal.note(Change::Directory { path: path.clone() })?;
        owned_directory::create(&path).map_err(ApplianceError::Prepare)?;
        Ok(Self {
            name,
            path,
            journal,
        })
    }

    /// What the server says, and its runtime.
    fn said(&self) -> PathBuf {
        self.path.join("said")
    }

    /// Where the runtime keeps what it knows of its containers.
    fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// The container's bundle.
    fn bundle(&self) -> PathBuf {
        self.path.join("bundle")
    }
}

impl Contained {
    /// Starts the host's memcached with one worker thread on a port of the loopback.
    pub(super) fn memcached(port: u16, memory_mib: u32) -> Result<Self, ApplianceError> {
        let place = ServerPlace::new("kv", port)?;
        let rootfs = place.bundle().join("rootfs");
        let shared = host_programs(&rootfs).map_err(ApplianceError::Prepare)?;
        let args = "memcached -u root -l 127.0.0.1 -U 0 -t 1".split(' ');
        let numbers = [port.to_string(), memory_mib.to_string()];
        let numbers = ["-p", &numbers[0], "-m", &numbers[1]];
        let args: Vec<&str> = args.chain(numbers).collect();
        let user = if geteuid().is_root() { NOBODY_ID } else { 0 };
        let mut config = config(&place.name, Path::new("rootfs"), &args);
        config["process"]["user"] = json!({"uid": user, "gid": user});
        config["root"]["readonly"] = json!(true);
        if let Some(mounts) = config["mounts"].as_array_mut() {
            mounts.extend(shared.iter().map(|path| {
                json!({"destination": path, "type": "bind", "source": path,
                       "options": ["rbind", "ro", "nosuid", "nodev"]})
            }));
        }
        Self::run(place, Runtime::Runc, port, &config)
    }

    /// Starts the host's lighttpd, which serves `root` on a port of the loopback.
    pub(super) fn lighttpd(port: u16, root: &Path) -> Result<Self, ApplianceError> {
        let place = ServerPlace::new("lighttpd", port)?;
        let config = place.path.join("lighttpd.conf");
        // A connection is never closed for having carried many requests.
        let text = format!(
            "server.document-root = \"{}\"\nserver.port = {port}\n\
             server.bind = \"127.0.0.1\"\nserver.max-keep-alive-requests = 65535\n\
             mimetype.assign = ( \".txt\" => \"text/plain\" )\n",
            root.display()
        );
        fs::write(&config, text).map_err(ApplianceError::Prepare)?;
        // Debian's is not on every user's search path.
        let program = ["lighttpd", "/usr/sbin/lighttpd"].into_iter();
        let program = program.filter_map(|name| find_program(name).ok()).next();
        let mut command = Command::new(program.unwrap_or_else(|| "lighttpd".into()));
        command.arg("-D").arg("-f").arg(config);
        ends_with_us(&mut command, Signal::KILL);
        Self::spawn(command, place, None, port)
    }

    /// Starts an application with this root in a container.
    pub(super) fn in_container(
        app: &App,
        root: &Path,
        runtime: Runtime,
    ) -> Result<Self, ApplianceError> {
        let place = ServerPlace::new(app.name, app.port)?;
        let args: Vec<&str> = app.command.iter().map(String::as_str).collect();
        let mut config = config(&place.name, root, &args);
        config["process"]["capabilities"] = json!({
            "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
        });
        Self::run(place, runtime, app.port, &config)
    }

    /// Starts an application as a process with this root directory.
    pub(super) fn bare(app: &App, root: &Path) -> Result<Self, ApplianceError> {
        let mut command = Command::new("unshare");
        if !geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.arg("--root").arg(root).arg("--").args(&app.command);
        ends_with_us(&mut command, Signal::KILL);
        Self::spawn(
            command,
            ServerPlace::new(app.name, app.port)?,
            None,
            app.port,
        )
    }

    fn run(
        mut place: ServerPlace,
        runtime: Runtime,
        port: u16,
        config: &Value,
    ) -> Result<Self, ApplianceError> {
        let bundle = place.bundle();
        fs::create_dir_all(&bundle)
            .and_then(|()| fs::write(bundle.join("config.json"), config.to_string()))
            .map_err(ApplianceError::Prepare)?;
        let state = place.state();
        let mut command = runtime.command(&state);
        command
            .args(["run", "--bundle"])
            .arg(bundle)
            .arg(&place.name);
        match runtime {
            Runtime::Runc => {
                let (engine, id) = (ContainerEngine::Runc, place.name.clone());
                place
                    .journal
                    .note(Change::Container { engine, state, id })?;
            }
            // Its sandbox ends with it.
            Runtime::Runsc => {
                ends_with_us(&mut command, Signal::KILL);
            }
        }
        Self::spawn(command, place, Some(runtime), port)
    }

    fn spawn(
        mut command: Command,
        place: ServerPlace,
        container: Option<Runtime>,
        port: u16,
    ) -> Result<Self, ApplianceError> {
        let said = fs::File::create(place.said()).map_err(ApplianceError::Prepare)?;
        let errors = said.try_clone().map_err(ApplianceError::Prepare)?;
        let started = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(errors)
            .spawn()
            .map_err(|source| ApplianceError::Execute {
                path: command.get_program().into(),
                source,
            })?;
        Ok(Self {
            child,
            container,
            place,
            started,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        })
    }

    fn check(&mut self) -> Result<(), ApplianceError> {
        let Some(status) = self.child.try_wait().map_err(ApplianceError::Prepare)? else {
            return Ok(());
        };
        let signal = || -status.signal().unwrap_or(1);
        let said = fs::read(self.place.said()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        Err(ApplianceError::Ended {
            code: status.code().unwrap_or_else(signal),
            said: said.lines().last().unwrap_or("nothing").to_owned(),
        })
    }
}

/// Makes a root for the host's own programs; the directories of the host that belong there.
fn host_programs(root: &Path) -> io::Result<Vec<PathBuf>> {
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
    Ok(shared)
}

/// The container's configuration. Another user than root becomes root in a user namespace.
fn config(id: &str, root: &Path, args: &[&str]) -> Value {
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "user": {"uid": 0, "gid": 0}, "args": args,
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": root, "readonly": false},
        "hostname": "server",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "mode=755", "size=64k"]},
        ],
        "linux": {"namespaces": []},
    });
    let mut kinds = vec!["pid", "ipc", "uts", "mount"];
    let linux = &mut config["linux"];
    if geteuid().is_root() {
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

    /// The server and the runtime that waits for it.
    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        self.check()?;
        CpuReading::read(self.child.id(), &[]).map_err(ApplianceError::Cpu)
    }

    fn resident_bytes(&mut self) -> Option<u64> {
        resident_bytes(self.child.id(), &[])
    }

    /// There is none.
    fn image_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        if let Some(runtime) = self.container {
            let delete = ["delete", "--force", &self.place.name];
            let _ = runtime.command(&self.place.state()).args(delete).output();
        }
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    use super::*;

    fn can_contain() -> bool {
        let runs = |program: &str| {
            let version = Command::new(program).arg("--version").output();
            version.is_ok_and(|output| output.status.success())
        };
        let can = runs("runc") && runs("memcached");
        if !can {
            tare_vmtest::lacks("runc or memcached is not installed");
        }
        can
    }

    /// The weighing that is killed is this test in another process.
    #[test]
    fn a_killed_weighing_leaves_a_container_that_is_removed() {
        const AGAIN: &str = "TARE_TEST_WEIGHING";
        if !can_contain() {
            return;
        }
        if std::env::var_os(AGAIN).is_some() {
            let port = tare_vmtest::free_port();
            let _server = serving(port);
            println!("port {port}");
            return std::thread::sleep(Duration::from_secs(60));
        }
        let cache = tempfile::tempdir().unwrap();
        let name =
            "appliance::contained::tests::a_killed_weighing_leaves_a_container_that_is_removed";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name, "--nocapture"]);
        again.env(AGAIN, "1").env("TARE_CACHE", cache.path());
        let mut killed = again.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| line.unwrap().strip_prefix("port ").map(str::to_owned));
        let address = format!("127.0.0.1:{}", port.unwrap());
        killed.kill().unwrap();
        killed.wait().unwrap();
        let journals = cache.path().join("platforms/journal");
        let left = journal::left_behind(&journals).unwrap().to_string();
        assert!(left.contains("container tare-lab-kv-"), "{left}");
        assert!(TcpStream::connect(&address).is_ok());
        assert_eq!(journal::undo_left(&journals).unwrap(), 1);
        assert!(journal::left_behind(&journals).unwrap().is_empty());
        assert!(TcpStream::connect(&address).is_err());
        let rest: Vec<_> = fs::read_dir(cache.path().join("platforms"))
            .unwrap()
            .collect();
        assert_eq!(rest.len(), 1, "{rest:?}");
    }

    fn serving(port: u16) -> Contained {
        let mut server = Contained::memcached(port, 8).unwrap();
        let (interrupt, _watch) = Interrupt::watch().unwrap();
        server
            .wait_serving(Duration::from_secs(30), &interrupt)
            .unwrap();
        server
    }

    #[test]
    fn memcached_answers_from_a_container_and_nothing_of_it_is_left() {
        if !can_contain() {
            return;
        }
        let port = tare_vmtest::free_port();
        let server = serving(port);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"stats\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // The first process of its namespace, with the memory that it was given.
        assert!(answer.contains("STAT pid 1\r\n"), "{answer}");
        assert!(
            answer.contains("STAT limit_maxbytes 8388608\r\n"),
            "{answer}"
        );
        let directory = server.place.path.clone();
        drop(server);
        assert!(!directory.exists());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
