//! Two stacks on one cable, without threads and with their own clock.

mod bindings;
mod cable;
mod crowds;
mod faults;
mod hostile;
mod idle;
mod interfaces;
mod ipv6;
mod limits;
mod loopback;
mod neighbours;
mod reachability;
mod setup;
mod tcp;
mod udp;
mod world;
