//! Servers on the host's own kernel, without their own network, so that their clients
//! reach them on loopback without a bridge: memcached of the host in a container, and
//! applications with their own root, in a container or as a process in that directory.
//!
//! A container is a bundle that a runtime runs (OCI runtime specification 1.0), with
//! its own processes, mounts, IPC and host name: what it costs apart from its network.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, getegid, geteuid};
use serde_json::{Value, json};
use tare_host::child::ends_with_us;
use tare_host::program::find_program;

use super::ApplianceError;
use super::machine::{Kind, Machine};
use super::server_place::ServerPlace;
use super::spec::Runtime;
use crate::linux::catalog::App;

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

/// Starts the host's memcached with one worker thread on a port of the loopback.
pub(super) fn memcached(port: u16, memory_mib: u32) -> Result<Machine, ApplianceError> {
    let place = ServerPlace::new("kv", port)?;
    let rootfs = place.bundle().join("rootfs");
    let shared = host_programs(&rootfs).map_err(ApplianceError::Prepare)?;
    let args = "memcached -u root -l 127.0.0.1 -U 0 -t 1".split(' ');
    let numbers = [port.to_string(), memory_mib.to_string()];
    let numbers = ["-p", &numbers[0], "-m", &numbers[1]];
    let args: Vec<&str> = args.chain(numbers).collect();
    let user = if geteuid().is_root() { NOBODY_ID } else { 0 };
    let mut config = config(place.name(), Path::new("rootfs"), &args);
    config["process"]["user"] = json!({"uid": user, "gid": user});
    config["root"]["readonly"] = json!(true);
    if let Some(mounts) = config["mounts"].as_array_mut() {
        mounts.extend(shared.iter().map(|path| {
            json!({"destination": path, "type": "bind", "source": path,
                   "options": ["rbind", "ro", "nosuid", "nodev"]})
        }));
    }
    run(place, Runtime::Runc, port, &config)
}

/// Starts the host's lighttpd, which serves `root` on a port of the loopback.
pub(super) fn lighttpd(port: u16, root: &Path) -> Result<Machine, ApplianceError> {
    let place = ServerPlace::new("lighttpd", port)?;
    let config = place.file("lighttpd.conf");
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
    start(command, Some(place), port)
}

/// Starts an application with this root in a container.
pub(super) fn in_container(
    app: &App,
    root: &Path,
    runtime: Runtime,
) -> Result<Machine, ApplianceError> {
    let place = ServerPlace::new(&app.name, app.port)?;
    let args: Vec<&str> = app.command.iter().map(String::as_str).collect();
    let mut config = config(place.name(), root, &args);
    if let Some(env) = config["process"]["env"].as_array_mut() {
        env.extend(app.env.iter().map(|it| json!(it)));
    }
    config["process"]["capabilities"] = json!({
        "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
    });
    run(place, runtime, app.port, &config)
}

/// Starts an application as a process with this root directory.
pub(super) fn bare(app: &App, root: &Path) -> Result<Machine, ApplianceError> {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--root").arg(root).arg("--").args(&app.command);
    command.envs(app.env.iter().filter_map(|it| it.split_once('=')));
    ends_with_us(&mut command, Signal::KILL);
    start(command, None, app.port)
}

fn run(
    mut place: ServerPlace,
    runtime: Runtime,
    port: u16,
    config: &Value,
) -> Result<Machine, ApplianceError> {
    let command = place.contain(runtime, config)?;
    start(command, Some(place), port)
}

fn start(
    command: Command,
    place: Option<ServerPlace>,
    port: u16,
) -> Result<Machine, ApplianceError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut server = Machine::start(command, address, Kind::Server(place))?;
    // It has no image.
    server.image_bytes = Some(0);
    Ok(server)
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpStream;
    use std::process::Stdio;
    use std::time::Duration;

    use tare_platform::journal;

    use super::*;
    use crate::appliance::Appliance as _;
    use tare_load::interrupt::Interrupt;

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

    fn serving(port: u16) -> Machine {
        let mut server = memcached(port, 8).unwrap();
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
        let name = format!("tare-lab-kv-{}-{port}", std::process::id());
        let directory = journal::directory().unwrap().with_file_name(name);
        assert!(directory.exists());
        drop(server);
        assert!(!directory.exists());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
