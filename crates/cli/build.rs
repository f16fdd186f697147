//! Compiles in the source's revision, so that a run record names the code that ran, not the work
//! tree of the program.

use std::path::Path;
use std::process::Command;

fn main() {
    let described = git(&["describe", "--always", "--dirty", "--abbrev=12"]);
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    println!(
        "cargo::rustc-env=TARE_REVISION={}",
        described.unwrap_or(version)
    );
    // A commit, or a change in any crate, may change the answer.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    for sources in ["../../crates", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={sources}");
    }
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
