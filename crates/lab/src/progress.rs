//! How far an experiment is: a bar on a terminal, else a line for each step.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tare_host::stderr;

/// Progress on standard error, measured in planned time.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    shown: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Bar,
    Lines,
    Nothing,
}

impl Progress {
    /// On standard error, for an experiment that is planned to take `planned`.
    pub fn new(planned: Duration) -> Self {
        use std::io::IsTerminal as _;
        if std::io::stderr().is_terminal() {
            return Self::bar(planned);
        }
        Self {
            bar: ProgressBar::hidden(),
            shown: Shown::Lines,
        }
    }

    /// Says nothing.
    pub fn silent() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            shown: Shown::Nothing,
        }
    }

    fn bar(planned: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_length(millis(planned));
        // The template is a constant; a wrong one would only lose the style.
        if let Ok(style) =
            ProgressStyle::with_template("{wide_bar} {percent:>3} %  {eta:>4}  {msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            shown: Shown::Bar,
        }
    }

    /// A step begins.
    pub fn step(&self, what: &str) {
        match self.shown {
            Shown::Bar => self.bar.set_message(what.to_owned()),
            Shown::Lines => stderr::line(format_args!("weigh: {what}")),
            Shown::Nothing => {}
        }
    }

    /// Something to be read later too.
    pub fn say(&self, what: &str) {
        match self.shown {
            Shown::Bar => self.bar.println(format!("weigh: {what}")),
            Shown::Lines => stderr::line(format_args!("weigh: {what}")),
            Shown::Nothing => {}
        }
    }

    /// A step that was planned to take `planned` is done.
    pub fn done(&self, planned: Duration) {
        self.bar.inc(millis(planned));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
