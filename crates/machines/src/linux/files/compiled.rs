//! A static program that a compiler of this computer makes from an application's sources, kept in
//! the cache by the sources and the compiler's version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_rootfs::Cache;
use tare_tailor::lock;

use super::packages::failed;
use crate::linux::LinuxError;
use crate::linux::catalog::{App, Compiler};

/// The cache's directory of programs.
const ENTRIES: &str = "compiled-programs";
/// The program, in its directory.
const PROGRAM: &str = "program";
/// What Rust's programs are for: static, with the C library that the toolchain has by default.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The program of an application's sources.
pub(super) fn program(app: &App, by: Compiler, cache: &Cache) -> Result<PathBuf, LinuxError> {
    let mut all = version(app, by)?;
    for (name, text) in app.sources {
        all.extend(["\n", name, "\n", text]);
    }
    let hash = lock::sha256(all.as_bytes());
    let entry = format!("{ENTRIES}/{}-{}", app.name, &hash[..12]);
    let dir = cache.get_or_fill(&entry, |dir| compile(app, by, dir))?;
    Ok(dir.join(PROGRAM))
}

/// The compiler's version.
pub(super) fn version(app: &App, by: Compiler) -> Result<String, LinuxError> {
    match by {
        Compiler::Go => output(app, by, go().args(["env", "GOVERSION"])),
        // Cargo's own is that of its toolchain.
        Compiler::Cargo => output(app, by, cargo().arg("--version")),
    }
}

fn compile(app: &App, by: Compiler, dir: &Path) -> Result<(), LinuxError> {
    for (name, text) in app.sources {
        let source = dir.join(name);
        fs::write(&source, text).map_err(LinuxError::file(&source))?;
    }
    match by {
        Compiler::Go => {
            let mut command = go();
            command
                .current_dir(dir)
                .args(["build", "-trimpath", "-buildvcs=false", "-o", PROGRAM])
                .arg("server.go");
            output(app, by, &mut command).map(drop)
        }
        Compiler::Cargo => {
            let objects = dir.join("target");
            let mut command = cargo();
            command
                .current_dir(dir)
                .env("CARGO_TARGET_DIR", &objects)
                .args(["build", "--release", "--locked", "--target", TARGET]);
            output(app, by, &mut command)?;
            let made = objects.join(TARGET).join("release/server");
            fs::rename(&made, dir.join(PROGRAM)).map_err(LinuxError::file(&made))?;
            fs::remove_dir_all(&objects).map_err(LinuxError::file(&objects))
        }
    }
}

/// The Go that is here, for a guest: without C, the network and other versions of itself.
fn go() -> Command {
    let mut command = Command::new(Compiler::Go.name());
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

/// The Cargo that is here, for static programs. It downloads what crates are not here yet.
fn cargo() -> Command {
    let mut command = Command::new(Compiler::Cargo.name());
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    // It would take the place of RUSTFLAGS.
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

impl Compiler {
    /// The program that is executed.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Cargo => "cargo",
        }
    }

    /// Where it comes from.
    const fn origin(self) -> &'static str {
        match self {
            Self::Go => "Debian: golang-go",
            // Debian 12's is too old for the crates.
            Self::Cargo => "https://rustup.rs",
        }
    }
}

fn output(app: &App, by: Compiler, command: &mut Command) -> Result<String, LinuxError> {
    let missing = |source| LinuxError::NoCompiler {
        app: app.name.clone(),
        program: by.name(),
        origin: by.origin(),
        source,
    };
    let output = command.stdin(Stdio::null()).output().map_err(missing)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(failed(app, by.name(), &output.stderr))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use tare_vmtest::skip;
    use tempfile::TempDir;

    use super::*;
    use crate::linux::catalog;

    #[test]
    fn a_server_is_compiled_once_to_a_static_program() {
        let app = catalog::find("go").unwrap();
        if let Some((_dir, first)) = made_once(&app, Compiler::Go) {
            listens_where_its_argument_says(&first);
            assert!(version(&app, Compiler::Go).unwrap().starts_with("go1."));
        }
    }

    /// The same with a package of Rust's that needs no crates.
    #[test]
    fn a_package_is_compiled_once_to_a_static_program_without_its_objects() {
        let app = App {
            sources: &[
                (
                    "Cargo.toml",
                    "[package]\nname = \"server\"\nedition = \"2021\"\n[[bin]]\n\
                     name = \"server\"\npath = \"server.rs\"\n[workspace]\n",
                ),
                (
                    "Cargo.lock",
                    "version = 3\n[[package]]\nname = \"server\"\nversion = \"0.0.0\"\n",
                ),
                (
                    "server.rs",
                    "fn main() {\n let address = std::env::args().nth(1).unwrap();\n \
                     let listener = std::net::TcpListener::bind(address).unwrap();\n \
                     listener.accept().unwrap();\n}\n",
                ),
            ],
            ..catalog::find("axum").unwrap()
        };
        if let Some((_dir, first)) = made_once(&app, Compiler::Cargo) {
            listens_where_its_argument_says(&first);
            assert!(!first.with_file_name("target").exists());
            let version = version(&app, Compiler::Cargo).unwrap();
            assert!(version.starts_with("cargo 1."), "{version}");
        }
    }

    fn made_once(app: &App, by: Compiler) -> Option<(TempDir, PathBuf)> {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let first = match program(app, by, &cache) {
            Err(LinuxError::NoCompiler { .. }) => {
                skip(format!("{} is not installed", by.name()));
                return None;
            }
            made => made.unwrap(),
        };
        assert_eq!(program(app, by, &cache).unwrap(), first);
        assert!(tare_rootfs::host::libraries(&first).unwrap().is_empty());
        Some((dir, first))
    }

    fn listens_where_its_argument_says(program: &Path) {
        let port = tare_qemu::free_port().unwrap();
        let mut server = Command::new(program)
            .arg(format!("127.0.0.1:{port}"))
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let connects = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let mut connected = connects();
        while !connected && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
            connected = connects();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(connected, "port {port}");
    }

    #[test]
    fn sources_that_do_not_compile_are_an_error_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let app = App {
            sources: &[("server.go", "package main\nfunc main() { nothing() }\n")],
            ..catalog::find("go").unwrap()
        };
        match program(&app, Compiler::Go, &Cache::at(dir.path())) {
            Err(LinuxError::NoCompiler { .. }) => drop(skip("go is not installed")),
            made => {
                let error = made.unwrap_err().to_string();
                assert!(error.contains("undefined: nothing"), "{error}");
                let entries = fs::read_dir(dir.path().join(ENTRIES)).unwrap();
                assert_eq!(entries.count(), 0);
            }
        }
    }
}
