//! `tare doctor --clean`: removes what machines left that were killed. Only what Tare made and
//! marked, and no machine uses: run directories of the run root, control groups in `tare`, locks
//! of users. Taps are made by others, so none is removed. Machines that ended by
//! themselves keep log and exit code until `tare rm`.

use tare_control::rundir::{RunRoot, RunState};
use tare_host::printable::printable;
use tare_launch::{limits, user};

use crate::failure::Outcome;
use crate::warn;

/// Removes it, and names each run directory.
pub(super) fn clean() -> Outcome {
    let root = RunRoot::open_default()?;
    let mut text = String::new();
    for run in root.list()?.runs {
        if run.state != RunState::Ended(None) {
            continue;
        }
        let name = run.dir.name();
        match root.remove(name) {
            Ok(()) => text += &format!("removed the run directory of {}\n", printable(name)),
            Err(error) => warn(&error.to_string()),
        }
    }
    let groups = limits::sweep();
    if groups > 0 {
        text += &format!("removed {groups} control groups\n");
    }
    user::sweep();
    if text.is_empty() {
        text += "nothing to remove\n";
    }
    crate::print(&text)
}
