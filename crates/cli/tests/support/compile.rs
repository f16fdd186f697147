//! Programs of C that machines run.

use std::path::PathBuf;
use std::process::Command;

use super::needs::skip;
use super::{TestDir, installed};

/// The source of a test program.
pub(crate) fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// A program of C, linked as `args` say; libraries come behind the source.
pub(crate) fn c_with(
    place: &TestDir,
    name: &str,
    args: &[&str],
    libraries: &[&str],
) -> Option<String> {
    if !installed("gcc") {
        skip("gcc is not installed");
        return None;
    }
    let program = place.path().join(name.trim_end_matches(".c"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-w", "-pthread"])
        .args(args)
        .arg("-o")
        .arg(&program)
        .arg(source(name))
        .args(libraries);
    assert!(gcc.status().unwrap().success(), "{name} does not compile");
    Some(program.to_str().unwrap().to_owned())
}

/// A program of C, linked as `args` say.
pub(crate) fn c(place: &TestDir, name: &str, args: &[&str]) -> Option<String> {
    c_with(place, name, args, &[])
}
