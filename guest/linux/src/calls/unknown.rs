//! Calls that are not served: each is logged once, with its name, and counted until the end.

use tare_program::missing;

use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::process::Process;

/// Most numbers that are counted.
const MOST: usize = 64;

/// Counts a call, and logs its first one.
pub(super) fn unknown(context: &Context<'_>, number: u32) -> Result {
    let mut counts = context.process.unknown.lock();
    let known = counts.iter_mut().find(|known| known.0 == number);
    if let Some((_, count)) = known {
        *count = count.saturating_add(1);
    } else if counts.len() < MOST {
        counts.push((number, 1));
        drop(counts);
        let name = name(number);
        log::warn!("the program calls {name} ({number}), which is missing here (ENOSYS)");
    }
    Err(Errno::ENOSYS)
}

/// Logs how often calls were made, where that is more than is logged already.
pub(crate) fn log_counts(process: &Process) {
    for (number, count) in core::mem::take(&mut *process.unknown.lock()) {
        if count > 1 {
            let name = name(number);
            log::warn!("the program called {name} ({number}) {count} times; it is missing here");
        }
    }
}

fn name(number: u32) -> &'static str {
    missing(number).unwrap_or("a call without a name")
}
