//! Names of the virtio console ports that carry a command's standard streams.
//! The machine has them when the command is part of a pipeline.

pub use tare_abi::streams::{ERROR, INPUT, OUTPUT};
