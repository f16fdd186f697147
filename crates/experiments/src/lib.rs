//! The experiments of `tare weigh`: phases, arms, goals and report of each.
//!
//! | module | what |
//! |---|---|
//! | a module for each | its data, its figures, the text of its report in `report.md` |
//! | `guest_bench` | machines that measure and print: arms, turns, exits by kind |
//! | `ping_pong` | two threads that answer each other: `events` and `tcp-rr` |
//! | `full_speed` | requests without a pause |
//!
//! Neighbours: `tare-lab` (records, figures, goals, the report page), `tare-machines` (machines
//! under test), `tare-load` (load generators, what is timed on the host).
//! The lab knows none of them. `tare-platforms-study` is one more, in a separate crate.

#![forbid(unsafe_code)]

use tare_lab::kit::Entry;

mod apps;
mod calls;
mod events;
mod full_speed;
mod guest_bench;
mod halt_budget;
mod http_bursts;
mod ipi_halt;
mod kv;
mod observer;
mod ping_pong;
mod tailor;
mod tcp;
mod tcp_rr;
#[cfg(test)]
mod testing;
mod vic;
mod vmexit;

pub use apps::Options as AppsOptions;
pub use tailor::Options as TailorOptions;

/// All experiments; one more is one line more.
pub const ALL: &[Entry] = &[
    http_bursts::ENTRY,
    ipi_halt::ENTRY,
    halt_budget::ENTRY,
    events::ENTRY,
    tcp_rr::ENTRY,
    tcp::ENTRY,
    vic::ENTRY,
    vmexit::ENTRY,
    calls::ENTRY,
    observer::ENTRY,
    kv::ENTRY,
    apps::ENTRY,
    http_bursts::COUNTS,
    tailor::ENTRY,
];

#[cfg(test)]
mod tests;
