//! A program alone in a virtual machine on Tare's library OS: the step runs in a chroot as on bare
//! metal, and starts its program by `tare run` of the host.
//!
//! The program's own clock tells its time, so a machine's start counts for nothing, as that of the
//! other machines, which are booted once. Limits: one program, without `fork`; its output is what
//! leaves the machine.

use std::env;
use std::fs;
use std::path::Path;

use crate::bare::{self, Access};
use crate::cgroup::Groups;
use crate::machine::MEMORY;
use crate::output::{Report, Watch};
use crate::pin;
use crate::place::{Mode, Place};
use crate::step::{Step, StepError};

/// The machine's name, by which it is pinned.
const NAME: &str = "appliance";

/// What says where `tare` keeps its files; a step has another home directory.
const DIRECTORIES: [&str; 4] = ["HOME", "TARE_CACHE", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"];

/// Where an appliance is started, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a> {
    /// The tree in which the step runs.
    pub tree: &'a Path,
    /// Where it writes.
    pub scratch: &'a Path,
    /// Run directories of its machines.
    pub runs: &'a Path,
    /// The program `tare`.
    pub tare: &'a Path,
    /// The files that the machine has.
    pub root: &'a Path,
}

/// Runs a step whose program is alone in a machine of this place, pinned to `cpus` where the place
/// is; all of it within `groups`.
pub fn run(
    paths: Paths<'_>,
    place: &Place,
    cpus: &[u32],
    groups: &Groups,
    step: &Step,
    watch: &mut dyn Watch,
) -> Result<Report, StepError> {
    let failed = |source| StepError::Start {
        what: "an appliance".to_owned(),
        source,
    };
    fs::create_dir_all(paths.runs).map_err(failed)?;
    let mut step = step.clone();
    let mut add = |name: &str, value| step.variables.insert(name.to_owned(), value);
    add("MACHINE", words(&paths, place)?);
    add("TARE_RUN_ROOT", path(paths.runs)?);
    if place.mode == Mode::Pinned {
        add("PIN", pin::list(cpus));
    }
    for name in DIRECTORIES {
        if let Ok(value) = env::var(name) {
            add(name, value);
        }
    }
    let command = bare::command(paths.tree, paths.scratch, Access::Host, groups);
    bare::run_step(
        command,
        "the appliance",
        paths.scratch,
        groups,
        &step,
        watch,
    )
}

/// `tare` with its options, in words without spaces.
fn words(paths: &Paths<'_>, place: &Place) -> Result<String, StepError> {
    let size = place.size.to_string();
    let (tare, root) = (path(paths.tare)?, path(paths.root)?);
    let words = [
        &tare, "run", "--name", NAME, "--net", "none", "--memory", MEMORY, "--cpus", &size,
        "--root", &root,
    ];
    Ok(words.join(" "))
}

/// A path as a word of the step's request.
fn path(path: &Path) -> Result<String, StepError> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(char::is_whitespace));
    text.map(str::to_owned).ok_or_else(|| StepError::Start {
        what: format!("an appliance: its path {path:?} has spaces or is not UTF-8"),
        source: std::io::ErrorKind::InvalidInput.into(),
    })
}
