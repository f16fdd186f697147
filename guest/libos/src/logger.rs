//! Log records on the console, as `log=error|warn|info|debug` on the command
//! line says; warnings and errors without it.

use log::{LevelFilter, Log, Metadata, Record};

use crate::env;

struct Console;

impl Log for Console {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = record.level().as_str().to_ascii_lowercase();
        crate::println!("{level}: {}: {}", record.target(), record.args());
    }

    fn flush(&self) {}
}

/// Starts logging.
pub(crate) fn init() {
    let level = env::var(tare_abi::cmdline::LOG)
        .and_then(|name| name.parse().ok())
        .unwrap_or(LevelFilter::Warn);
    if log::set_logger(&Console).is_ok() {
        log::set_max_level(level);
    }
}
