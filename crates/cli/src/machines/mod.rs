//! The verbs about machines that run: `ps`, `stop`, `logs`, `stats`, `set`.

mod logs;
mod ps;
mod set;
mod stats;
mod stats_error;
mod stop;
mod watch;

pub(crate) use logs::logs;
pub(crate) use ps::ps;
pub(crate) use set::set;
pub(crate) use stats::stats;
pub(crate) use stop::stop;
