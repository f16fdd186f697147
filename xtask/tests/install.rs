//! `scripts/install.sh` with programs that only stand for those of a build.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A build directory and a place to install into.
struct InstallDir {
    dir: TempDir,
}

impl InstallDir {
    /// With these files below `release`, each a program that does nothing.
    fn with(files: &[&str]) -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for file in files {
            let path = place.dir.path().join("build/release").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        place
    }

    fn script(&self, args: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install.sh");
        let mut command = Command::new(script);
        command
            .args(args)
            .env("CARGO_TARGET_DIR", self.dir.path().join("build"))
            .env("DESTDIR", self.dir.path().join("dest"))
            .env("PREFIX", "/opt/tare");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.script(args).output().unwrap()
    }

    fn installed(&self, file: &str) -> bool {
        self.dir.path().join("dest/opt/tare").join(file).exists()
    }
}

#[test]
fn programs_are_installed_together_and_removed() {
    let place = InstallDir::with(&["tare", "tare-monitor", "images/http", "linux/tare-init"]);
    assert!(place.run(&[]).status.success());
    for file in ["tare", "tare-monitor", "images/http", "linux/tare-init"] {
        assert!(place.installed(&format!("lib/tare/{file}")), "{file}");
    }
    // The link leads to the program beside which the others are.
    let link = place.dir.path().join("dest/opt/tare/bin/tare");
    assert!(link.canonicalize().unwrap().ends_with("lib/tare/tare"));
    let units = ["service", "socket"].map(|kind| format!("lib/systemd/system/tare-blk@.{kind}"));
    assert!(units.iter().all(|unit| place.installed(unit)));
    let service = place.dir.path().join("dest/opt/tare").join(&units[0]);
    let service = fs::read_to_string(service).unwrap();
    assert!(service.contains("ExecStart=/opt/tare/bin/tare blk "));
    assert!(place.run(&["uninstall"]).status.success());
    assert!(!place.installed("lib/tare") && !place.installed("bin/tare"));
    assert!(!units.iter().any(|unit| place.installed(unit)));
}

/// cargo finds every crate that an appliance outside the workspace depends on.
#[test]
fn the_sources_of_an_appliance_are_installed_whole() {
    let place = InstallDir::with(&["tare", "tare-monitor", "images/http"]);
    assert!(place.run(&[]).status.success());
    let sources = place.dir.path().join("dest/opt/tare/lib/tare/src");
    let hello = place.dir.path().join("hello");
    fs::create_dir_all(hello.join("src")).unwrap();
    fs::write(hello.join("src/main.rs"), "").unwrap();
    fs::copy(sources.join("Cargo.lock"), hello.join("Cargo.lock")).unwrap();
    let web = sources.join("guest/web");
    let manifest = format!(
        "[package]\nname = \"hello\"\n[dependencies]\ntare-web.path = \"{}\"\n",
        web.display()
    );
    fs::write(hello.join("Cargo.toml"), manifest).unwrap();
    let output = Command::new("cargo")
        .args(["metadata", "--offline", "--format-version", "1"])
        .current_dir(&hello)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found = String::from_utf8_lossy(&output.stdout);
    let place_of = |name: &str| format!("{}/{name}/Cargo.toml", sources.display());
    for name in [
        "guest/hal",
        "guest/io",
        "guest/libos",
        "guest/net",
        "guest/fragments",
        "guest/tcp",
        "crates/abi",
        "crates/policy",
    ] {
        assert!(found.contains(&place_of(name)), "{name}");
    }
}

#[test]
fn a_build_without_linux_guests_is_installed_and_says_so() {
    let place = InstallDir::with(&["tare", "tare-monitor", "images/http"]);
    let output = place.run(&[]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("make build"));
}

#[test]
fn nothing_is_installed_before_a_build() {
    let place = InstallDir::with(&["tare"]);
    let output = place.run(&[]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("run `make build` first"));
    assert!(!place.installed("bin"));
}

/// Files below a directory, without links.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let (path, kind) = entry
            .map(|it| (it.path(), it.file_type().unwrap()))
            .unwrap();
        if kind.is_dir() {
            found.extend(files(&path));
        }
        if !kind.is_symlink() {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_user_may_read_what_is_installed_whatever_the_umask() {
    let place = InstallDir::with(&["tare", "tare-monitor", "images/http", "linux/tare-init"]);
    let script = place.script(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077 && exec \"$0\""]);
    shell.arg(script.get_program());
    for (name, value) in script.get_envs() {
        shell.env(name, value.unwrap());
    }
    assert!(shell.status().unwrap().success());
    for file in files(&place.dir.path().join("dest")) {
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        let right = match mode & 0o100 {
            0 => 0o644,
            _ => 0o755,
        };
        assert_eq!(mode, right, "{}", file.display());
    }
}

/// As where the disk is full.
#[test]
fn an_installation_that_fails_leaves_the_one_before() {
    let place = InstallDir::with(&["tare", "tare-monitor", "images/http"]);
    assert!(place.run(&[]).status.success());
    let dest = place.dir.path().join("dest/opt/tare");
    let before = fs::read(dest.join("lib/tare/tare")).unwrap();
    // Its manual cannot be written.
    let fails = "#!/bin/sh\n[ \"$1\" != completions ]\n";
    fs::write(place.dir.path().join("build/release/tare"), fails).unwrap();
    assert!(!place.run(&[]).status.success());
    assert_eq!(fs::read(dest.join("lib/tare/tare")).unwrap(), before);
    assert!(place.installed("bin/tare"));
    let left = fs::read_dir(dest.join("lib")).unwrap();
    let mut left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["systemd", "tare"]);
    // The next one that works replaces all of it.
    let works = "#!/bin/sh\n: of another build\n";
    fs::write(place.dir.path().join("build/release/tare"), works).unwrap();
    fs::write(dest.join("lib/tare/of-before"), "").unwrap();
    assert!(place.run(&[]).status.success());
    assert_eq!(
        fs::read(dest.join("lib/tare/tare")).unwrap(),
        works.as_bytes()
    );
    assert!(!place.installed("lib/tare/of-before"));
    let link = dest.join("bin/tare").canonicalize().unwrap();
    assert!(link.ends_with("lib/tare/tare"));
}

#[test]
fn a_prefix_that_a_unit_cannot_name_is_refused() {
    let place = InstallDir::with(&["tare", "tare-monitor", "images/http"]);
    for prefix in [
        "opt/tare",
        "/opt/a b",
        "/opt/a|b",
        "/opt/a&b",
        "/opt/%h",
        "/opt/a\nb",
    ] {
        for args in [&[][..], &["uninstall"]] {
            let output = place.script(args).env("PREFIX", prefix).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{told}");
            assert!(told.starts_with("install: invalid PREFIX '"), "{told}");
        }
    }
    assert!(!place.dir.path().join("dest").exists());
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let place = tempfile::tempdir().unwrap();
    let prefix = place.path().to_str().unwrap();
    // The program that the unit names has to exist.
    fs::create_dir(place.path().join("bin")).unwrap();
    fs::copy("/bin/true", place.path().join("bin/tare")).unwrap();
    let units = ["service", "socket"].map(|kind| {
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist");
        let text = fs::read_to_string(dist.join(format!("tare-blk@.{kind}")))
            .unwrap()
            .replace("@PREFIX@", prefix);
        // The instance beside its template, which the other unit names.
        let unit = place.path().join(format!("tare-blk@data.{kind}"));
        fs::write(place.path().join(format!("tare-blk@.{kind}")), &text).unwrap();
        fs::write(&unit, text).unwrap();
        unit
    });
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .args(&units)
        .output();
    let Ok(verified) = verified else {
        return tare_vmtest::lacks("systemd-analyze cannot be run");
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    let ours: Vec<_> = said.lines().filter(|it| it.contains("tare-blk")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
}
