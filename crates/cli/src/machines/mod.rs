//! The verbs about machines: `ps`, `stop`, `kill`, `rm`, `logs`, `stats`, `set`, `reload`.

mod kill;
mod logs;
mod ps;
mod reload;
mod rm;
mod set;
mod stats;
mod stats_error;
mod stop;
mod watch;

pub(crate) use kill::kill;
pub(crate) use logs::logs;
pub(crate) use ps::ps;
pub(crate) use reload::reload;
pub(crate) use rm::rm;
pub(crate) use set::set;
pub(crate) use stats::stats;
pub(crate) use stop::stop;
