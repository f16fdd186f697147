//! Signals that end a verb as questions between its steps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

/// From now on Ctrl-C and SIGTERM raise `flag` and end nothing by themselves.
pub(crate) fn raise(flag: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// The same with its own flag.
pub(crate) fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::default();
    raise(&flag)?;
    Ok(flag)
}
