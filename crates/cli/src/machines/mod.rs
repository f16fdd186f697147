//! The verbs about machines that run: `ps`, `stop`, `logs`, `stats`.

mod logs;
mod ps;
mod stats;
mod stop;

pub(crate) use logs::logs;
pub(crate) use ps::ps;
pub(crate) use stats::stats;
pub(crate) use stop::stop;
