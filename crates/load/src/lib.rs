//! What experiments send to machines, and what they time on the host beside them.
//!
//! | module | what |
//! |---|---|
//! | [`requests`] | open- and closed-loop load, HTTP or with exact answers |
//! | [`tcp`] | transfers over an impaired wire, this project's TCP and Linux's |
//! | [`transactions`], [`round_trips`], [`wake_ups`] | the host's arms of `tcp-rr`, `events` and `ipi-halt` |
//! | [`calls`] | system calls, each timed |
//! | [`interrupt`] | Ctrl-C and SIGTERM as a question that long steps ask |
//! | [`pin`] | threads, each on its own CPU |
//!
//! Neighbours: `tare-experiments`, which these serve. Here is what must be fast: it shares the
//! CPUs with what is measured, so it is compiled with optimisation where experiments are not.

#![forbid(unsafe_code)]

pub mod calls;
pub mod interrupt;
pub mod pin;
pub mod requests;
pub mod round_trips;
pub mod tcp;
pub mod transactions;
pub mod wake_ups;
