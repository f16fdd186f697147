//! Signals that end a verb, checked between its steps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

/// Makes Ctrl-C and SIGTERM set `flag` instead of ending the process.
pub(crate) fn raise(flag: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// As [`raise`], with a new flag.
pub(crate) fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::default();
    raise(&flag)?;
    Ok(flag)
}
