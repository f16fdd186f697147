//! Raw mode of the terminal on standard input, and the way back, also from a
//! panic and from a signal handler.
//!
//! Every key goes to the guest except Ctrl-C, which ends the run.

use std::sync::OnceLock;

use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, isatty, tcgetattr,
    tcgetpgrp, tcsetattr,
};

static BEFORE: OnceLock<Termios> = OnceLock::new();

/// Whether standard input may be read: not by a background job of a
/// terminal, which the kernel would stop.
pub(crate) fn may_read() -> bool {
    !isatty(stdin()) || in_foreground()
}

/// Switches to raw mode if standard input is a terminal of ours. Errors leave
/// it as it is: a console without raw mode still works.
pub(crate) fn enter_raw() {
    if !isatty(stdin()) || !in_foreground() {
        return;
    }
    let Ok(before) = tcgetattr(stdin()) else {
        return;
    };
    let raw = raw(&before);
    if BEFORE.set(before).is_ok() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &raw);
    }
}

/// Restores what `enter_raw` found. Async-signal-safe; may be repeated.
pub fn restore() {
    if let Some(before) = BEFORE.get() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
}

fn in_foreground() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.make_raw();
    // Ctrl-C still ends the run; a stopped monitor or a core dump is useless.
    raw.local_modes |= LocalModes::ISIG;
    for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
        raw.special_codes[key] = 0;
    }
    // The guest's lines end as the terminal wants them.
    raw.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
    raw
}
