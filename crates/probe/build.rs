//! Compiles `bpf/*.bpf.c` with clang into objects that the crate embeds.
//!
//! Where clang is missing the objects are empty: the crate builds, and says
//! "built without clang" where BPF would have been used.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    println!("cargo::rustc-env=TARE_CLANG={}", version(&clang));
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("cargo sets OUT_DIR");
    };
    for source in sources() {
        build(&clang, &source, &out);
    }
}

fn sources() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("bpf") else {
        panic!("the folder bpf is missing");
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .filter(|path| path.extension() == Some(OsStr::new("c")))
        .collect()
}

fn build(clang: &str, source: &Path, out: &Path) {
    let object = out.join(source.with_extension("o").file_name().unwrap_or_default());
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .args(["-Wno-unused-variable", "-Wno-unused-function"])
        // Names of the kernel's own types, kept for CO-RE, need no prefix map; the
        // path of this machine must not be embedded.
        .arg("-ffile-prefix-map=./=")
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} failed on {}: {status}", source.display()),
        Err(error) => {
            println!(
                "cargo::warning={clang}: {error}; building without BPF (apt-get install clang)"
            );
            if let Err(error) = fs::write(&object, []) {
                panic!("{}: {error}", object.display());
            }
        }
    }
}

/// So that installing clang later builds again.
fn version(clang: &str) -> String {
    let output = Command::new(clang).arg("--version").output();
    let text = output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    text.lines().next().unwrap_or("none").to_owned()
}
