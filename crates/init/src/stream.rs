//! Names of the virtio console ports that carry a command's standard streams and its signals.
//! The machine has streams when the command is part of a pipeline.

pub use tare_abi::streams::{ERROR, INPUT, KEY, OUTPUT, SIGNALS};
