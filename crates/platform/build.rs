//! Lists the workload files that come with Tare: adding one needs no code.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let Some(here) = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else {
        return;
    };
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        return;
    };
    let dir = here.join("../../lab/workloads");
    println!("cargo::rerun-if-changed={}", dir.display());
    let list = list(&dir);
    if let Err(error) = fs::write(out.join("workloads.rs"), list) {
        println!("cargo::error=cannot write the list of workloads: {error}");
    }
}

fn list(dir: &Path) -> String {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(list, "({name:?}, include_str!({:?})),", file.display());
        println!("cargo::rerun-if-changed={}", file.display());
    }
    list.push(']');
    list
}
