//! The mode of the terminal on standard input, and its restoration, also after a panic and in a
//! signal handler.
//!
//! Raw mode is for a serial console: every key goes to the guest except Ctrl-C, which ends the run or is a
//! signal to the guest's command.
//! A program's ports are not a terminal: the program gets lines, edited and echoed by the terminal,
//! Ctrl-D ends its input, and Ctrl-C is a signal to it.

use std::sync::OnceLock;

use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, isatty, tcgetattr,
    tcgetpgrp, tcsetattr,
};

static BEFORE: OnceLock<Termios> = OnceLock::new();
static IS_IN_FOREGROUND: OnceLock<bool> = OnceLock::new();

/// Looks whether this process is the job in the foreground. To be called before the process has its own
/// PID namespace, in which the terminal's jobs have no numbers.
pub(crate) fn look() {
    let _ = in_foreground();
}

/// Whether standard input may be read: not by a background job of a
/// terminal, which the kernel would stop.
pub(crate) fn may_read() -> bool {
    !isatty(stdin()) || in_foreground()
}

/// How keys reach the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Each key at once.
    Raw,
    /// Each key at once; Ctrl-\ ends the run, and Ctrl-C is a signal to the guest.
    RawAndQuit,
    /// In lines.
    Lines,
    /// In lines; Ctrl-\ is a signal to the guest's program.
    LinesAndQuit,
}

/// Switches the mode if standard input is a terminal in this process's foreground. Errors leave the
/// mode unchanged: a console without raw mode still works.
pub(crate) fn enter(keys: Keys) {
    if !isatty(stdin()) || !in_foreground() {
        return;
    }
    let Ok(before) = tcgetattr(stdin()) else {
        return;
    };
    let mode = match keys {
        Keys::Raw => lines(&raw(&before)),
        Keys::RawAndQuit => without(&raw(&before), &[SpecialCodeIndex::VSUSP]),
        Keys::Lines => lines(&before),
        Keys::LinesAndQuit => without(&before, &[SpecialCodeIndex::VSUSP]),
    };
    if BEFORE.set(before).is_ok() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &mode);
    }
}

/// Restores what `enter_raw` found. Async-signal-safe; may be repeated.
pub fn restore() {
    if let Some(before) = BEFORE.get() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
}

fn in_foreground() -> bool {
    *IS_IN_FOREGROUND
        .get_or_init(|| tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == getpgrp()))
}

fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.make_raw();
    // Ctrl-C still ends the run.
    raw.local_modes |= LocalModes::ISIG;
    // Output keeps the terminal's line ends.
    raw.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
    raw
}

/// Without Ctrl-Z and Ctrl-\: a stopped monitor or a core dump is useless.
fn lines(before: &Termios) -> Termios {
    without(before, &[SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT])
}

fn without(before: &Termios, keys: &[SpecialCodeIndex]) -> Termios {
    let mut without = before.clone();
    for key in keys {
        without.special_codes[*key] = 0;
    }
    without
}
