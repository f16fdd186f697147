//! `tare doctor --clean`: removes what killed machines left, and puts back what killed weighings
//! changed. Removes only what Tare made and marked, and no process uses: run directories of the run
//! root, cgroups in `tare`, locks of users, and what the journals of weighings name. Others create
//! taps, so none is removed. Machines that ended by themselves keep log and exit code
//! until `tare rm`.

use tare_control::exit::ExitCode;
use tare_control::rundir::{RunRoot, RunState};
use tare_host::printable::printable;
use tare_launch::{limits, user};
use tare_platforms_study::journal::{self, JournalError};

use crate::failure::{CommandResult, Failure};
use crate::output::{print, warn};

/// Cleans up, and prints each removed run directory. Continues after a failure; the first one
/// decides the exit code.
pub(super) fn clean() -> CommandResult {
    let root = RunRoot::open_default()?;
    let mut text = String::new();
    let mut first = None;
    for run in root.list()?.runs {
        if run.state != RunState::Ended(None) {
            continue;
        }
        let name = run.dir.name();
        // Checks again: another machine may have taken the name by now.
        match (root.remove_killed(name), &first) {
            (Ok(true), _) => text += &format!("removed the run directory of {}\n", printable(name)),
            (Ok(false), _) if run.dir.path().exists() => warn(&format!(
                "kept {}: a machine uses it, or it has files that tare did not create",
                run.dir.path().display()
            )),
            (Ok(false), _) => {}
            (Err(error), None) => first = Some(Failure::from(error)),
            (Err(error), Some(_)) => warn(&Failure::from(error).sentence()),
        }
    }
    let swept = [
        ("cgroups", limits::sweep()),
        ("locks on user IDs", user::sweep()),
    ];
    for (what, count) in swept.into_iter().filter(|(_, count)| *count > 0) {
        text += &format!("removed {count} {what}\n");
    }
    match put_back() {
        Ok(None) => {}
        Ok(Some(what)) => text += &format!("put back what a killed weighing left: {what}\n"),
        Err(error) => first = first.or(Some(Failure::new(ExitCode::Output, error))),
    }
    if text.is_empty() && first.is_none() {
        text += "nothing to remove\n";
    }
    let printed = print(&text);
    first.map_or(printed, Err)
}

/// Puts back what killed weighings changed; what it was, if there was any.
fn put_back() -> Result<Option<String>, JournalError> {
    let journals = match journal::directory() {
        Err(JournalError::NoPlace(_)) => return Ok(None),
        journals => journals?,
    };
    let left = journal::left_behind(&journals)?;
    journal::undo_left(&journals)?;
    Ok((!left.is_empty()).then(|| left.to_string()))
}
