//! `tare new`, `tare build`, and `tare run` of a crate: as a newcomer uses them, and what
//! they refuse. Crates come from what the workspace has fetched, not from a registry.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use support::cargo::{COMPILING, compiles, offline, target_dir};
use support::needs::passt;
use support::{CommandOutput, TestDir, end, end_within, eventually, free_port, get, served};

/// The command in `directory`, without a registry.
fn in_crate(mut command: Command, directory: &Path) -> CommandOutput {
    offline(&mut command)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    end_within(COMPILING, command.spawn().unwrap())
}

fn cargo(args: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(args);
    cargo
}

#[test]
fn a_new_crate_is_tested_built_and_served() {
    if !compiles() {
        return;
    }
    let place = TestDir::new();
    let made = in_crate(place.tare(&["new", "hello"]), place.path());
    made.expect(0, "cd hello\n");
    let hello = place.path().join("hello");
    in_crate(cargo(&["t"]), &hello).expect(0, "2 passed");
    let elsewhere = in_crate(cargo(&["test", "--release"]), &hello);
    elsewhere.expect(101, "run the tests on the host: cargo t");

    in_crate(cargo(&["build", "--release"]), &hello).expect(0, "");
    let image = target_dir().join("x86_64-unknown-none/release/hello");
    let bytes = fs::metadata(&image).unwrap().len();
    let built = in_crate(place.tare(&["build"]), &hello);
    assert_eq!(built.out, format!("{}: {bytes} bytes\n", image.display()));

    if !passt() {
        return;
    }
    let port = free_port();
    let forward = format!("{port}:80");
    let start = ["run", "--name", "hello", "-d", "-p", &forward];
    let serves = |text: &str| {
        in_crate(place.tare(&start), &hello).expect(0, "hello\n");
        eventually("the appliance answers", || {
            get(port, "/").is_ok_and(|answer| answer.ends_with(text))
        });
        assert!(served(port, "/other").starts_with("HTTP/1.1 404 "));
        place.run(&["stop", "hello"]).expect(0, "");
    };
    serves("\r\n\r\nHello from hello\n");
    let main = hello.join("src/main.rs");
    let changed = fs::read_to_string(&main).unwrap().replace("Hello", "Hi");
    fs::write(&main, changed).unwrap();
    serves("\r\n\r\nHi from hello\n");
}

#[test]
fn a_crate_that_cannot_be_made_leaves_nothing() {
    let place = TestDir::new();
    place.file("taken", b"mine");
    for (args, says) in [
        (&["taken"] as &[&str], "taken already exists"),
        (&["a b"], "invalid crate name \"a b\""),
        (&["fn"], "a keyword of Rust"),
        (&["gone/web"], "gone is not a directory: make it first"),
        (&["taken/web"], "taken is not a directory"),
        (&[".."], "does not end in a crate's name"),
        (
            &["web", "--tare", "."],
            "not Tare's sources: give them as --tare",
        ),
        (&["web", "--tare", "gone"], "cannot open gone"),
    ] {
        let all = [&["new"], args].concat();
        let refused = end(place.tare(&all).current_dir(place.path()).spawn().unwrap());
        refused.expect(48, says);
        assert_eq!(refused.err.lines().count(), 1, "{refused:#?}");
        let left = fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, 1, "{args:?}");
    }
}

#[test]
fn a_directory_without_an_appliance_is_refused() {
    let place = TestDir::new();
    let in_place = |args: &[&str]| {
        let mut command = place.tare(args);
        end(command.current_dir(place.path()).spawn().unwrap())
    };
    in_place(&["build"]).expect(48, "has no Cargo.toml: make one with `tare new NAME`");
    in_place(&["run"]).expect(2, "no IMAGE given");
    in_place(&["run", "."]).expect(10, "is not a file");
    for (manifest, code, says) in [
        ("[package]\nname = \"a\"\n", 2, "no IMAGE given"),
        ("[package", 48, "Cargo.toml is invalid"),
        (
            "[package.metadata.tare]\nports = []\n",
            48,
            "unknown field `ports`",
        ),
        (
            "[package.metadata.tare]\npublish = [\"80\"]\n",
            48,
            "publish of [package.metadata.tare]: invalid port forward",
        ),
    ] {
        place.file("Cargo.toml", manifest.as_bytes());
        let refused = in_place(&["run"]);
        refused.expect(code, says);
        assert_eq!(refused.err.lines().count(), 1, "{refused:#?}");
    }
}

/// An appliance's crate, and programs that stand for a toolchain.
struct Toolchain {
    place: TestDir,
}

impl Toolchain {
    /// A compiler whose toolchain has these files.
    fn with(files: &[&str]) -> Self {
        let tools = Self {
            place: TestDir::new(),
        };
        tools.place.file("Cargo.toml", b"[package.metadata.tare]\n");
        let sysroot = tools.place.path().join("sysroot");
        for file in files {
            let path = sysroot.join("lib/rustlib").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        tools.program("rustc", &format!("echo {}", sysroot.display()));
        tools
    }

    fn program(&self, name: &str, script: &str) {
        let bin = self.place.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn build(&self) -> CommandOutput {
        let mut command = self.place.tare(&["build"]);
        command
            .current_dir(self.place.path())
            .env("PATH", self.place.path().join("bin"))
            .env("RUSTFLAGS", "-Clink-arg=--wrong");
        end(command.spawn().unwrap())
    }
}

const CORE: &str = "x86_64-unknown-none/lib/libcore.rlib";
const LINKER: &str = "x86_64-unknown-linux-gnu/bin/rust-lld";

#[test]
fn a_toolchain_that_lacks_a_part_is_refused_with_what_to_do() {
    let nothing = Toolchain::with(&[]);
    nothing
        .build()
        .expect(49, "run `rustup target add x86_64-unknown-none`");
    fs::remove_file(nothing.place.path().join("bin/rustc")).unwrap();
    nothing.build().expect(49, "cannot run rustc");

    let tools = Toolchain::with(&[CORE]);
    tools.build().expect(49, "cannot run cargo");
    tools.program("cargo", "exit 101");
    tools
        .build()
        .expect(49, "the linker rust-lld is not installed");
    tools.program("rustc", "echo broken >&2; exit 1");
    tools
        .build()
        .expect(49, "rustc --print sysroot failed: broken");
}

#[test]
fn what_cargo_builds_is_one_program() {
    let tools = Toolchain::with(&[CORE, LINKER]);
    tools.program("cargo", "echo 'error: it is wrong' >&2; exit 101");
    let failed = tools.build();
    failed.expect(49, "tare: cargo could not build .\n");
    assert!(failed.err.starts_with("error: it is wrong\n"));

    let line = |path: &str| {
        format!("echo '{{\"reason\":\"compiler-artifact\",\"executable\":\"{path}\"}}'")
    };
    tools.program("cargo", "true");
    tools.build().expect(49, "builds 0 programs");
    tools.program("cargo", &[line("/a"), line("/b")].join("\n"));
    tools
        .build()
        .expect(49, "builds 2 programs: an appliance must have exactly one");
    tools.program("cargo", &line("/no/such"));
    tools.build().expect(49, "cannot read the image /no/such");
    let own = "[ -z \"$RUSTFLAGS\" ] || exit 1";
    tools.program("cargo", &[own, &line("/bin/sh")].join("\n"));
    tools.build().expect(0, "/bin/sh: ");
}
