//! What Tare's long-running programs (`tare-monitor`, `tare blk`) share: an
//! epoll, the control socket's server, confinement, signals, statistics about
//! themselves. What is served is each program's own.

pub mod confine;
pub mod disk;
pub mod http;
pub mod interface;
pub mod jail;
pub mod observe;
pub mod poll;
pub mod rules;
pub mod signals;
