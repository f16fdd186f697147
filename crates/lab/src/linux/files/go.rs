//! A static program that the Go of this computer compiles, kept in the cache by its source and
//! the compiler's version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_rootfs::Cache;
use tare_tailor::lock;

use super::packages::failed;
use crate::linux::LinuxError;
use crate::linux::catalog::App;

/// The compiler.
const GO: &str = "go";
/// The cache's directory of programs.
const ENTRIES: &str = "go-programs";
/// The program, in its directory.
const PROGRAM: &str = "program";

/// The program of an application's `server.go`.
pub(super) fn program(app: &App, cache: &Cache) -> Result<PathBuf, LinuxError> {
    let version = version(app)?;
    let hash = lock::sha256(format!("{version}\n{}", app.go_source).as_bytes());
    let entry = format!("{ENTRIES}/{}-{}", app.name, &hash[..12]);
    let dir = cache.get_or_fill(&entry, |dir| compile(app, dir))?;
    Ok(dir.join(PROGRAM))
}

/// The compiler's version.
pub(super) fn version(app: &App) -> Result<String, LinuxError> {
    output(app, go().args(["env", "GOVERSION"]))
}

fn compile(app: &App, dir: &Path) -> Result<(), LinuxError> {
    let source = dir.join("server.go");
    fs::write(&source, app.go_source).map_err(LinuxError::file(&source))?;
    let mut command = go();
    command
        .current_dir(dir)
        .args(["build", "-trimpath", "-buildvcs=false", "-o", PROGRAM])
        .arg("server.go");
    output(app, &mut command).map(drop)
}

/// The compiler that is here, for a guest: without C, the network and other versions of itself.
fn go() -> Command {
    let mut command = Command::new(GO);
    for (name, value) in [
        ("CGO_ENABLED", "0"),
        ("GOOS", "linux"),
        ("GOARCH", "amd64"),
        ("GOFLAGS", ""),
        ("GOPROXY", "off"),
        ("GOTOOLCHAIN", "local"),
        ("GOWORK", "off"),
    ] {
        command.env(name, value);
    }
    command
}

fn output(app: &App, command: &mut Command) -> Result<String, LinuxError> {
    let no_go = |source| LinuxError::NoGo {
        app: app.name.to_owned(),
        source,
    };
    let output = command.stdin(Stdio::null()).output().map_err(no_go)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(failed(app, GO, &output.stderr))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use tare_vmtest::skip;

    use super::*;
    use crate::linux::catalog;

    #[test]
    fn a_server_is_compiled_once_to_a_static_program() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let app = catalog::find("go").unwrap();
        let first = match program(&app, &cache) {
            Err(LinuxError::NoGo { .. }) => {
                skip("go is not installed");
                return;
            }
            made => made.unwrap(),
        };
        assert_eq!(program(&app, &cache).unwrap(), first);
        assert!(tare_rootfs::host::libraries(&first).unwrap().is_empty());
        assert!(version(&app).unwrap().starts_with("go1."));
        listens_where_it_is_told(&first);
    }

    fn listens_where_it_is_told(program: &Path) {
        let port = tare_qemu::free_port().unwrap();
        let mut server = Command::new(program)
            .arg(format!("127.0.0.1:{port}"))
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let connects = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        while !connects() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let connected = connects();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(connected, "port {port}");
    }

    #[test]
    fn a_source_that_is_none_is_an_error_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let app = App {
            go_source: "package main\nfunc main() { nothing() }\n",
            ..catalog::find("go").unwrap()
        };
        match program(&app, &Cache::at(dir.path())) {
            Err(LinuxError::NoGo { .. }) => drop(skip("go is not installed")),
            made => {
                let error = made.unwrap_err().to_string();
                assert!(error.contains("undefined: nothing"), "{error}");
                let entries = fs::read_dir(dir.path().join(ENTRIES)).unwrap();
                assert_eq!(entries.count(), 0);
            }
        }
    }
}
