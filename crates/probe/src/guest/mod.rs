//! Observing within a guest: what the observer there is to observe ([`ObserveRequest`]) and how it
//! hands its output to the host ([`archive`], on a disk of the guest's).
//!
//! The observer is the program `tare-observe`, linked statically like the guest's
//! first process. The guest is hostile: what it hands over is bounded and parsed.

pub mod archive;
mod request;
pub mod tracer;

pub use request::ObserveRequest;

/// The observer's place in the guest.
pub const OBSERVER: &str = ".tare/observe";
/// The disk that the output is written to.
pub const OUTPUT_DISK: &str = "/dev/vda";
/// The serial port on which a line ends the observation.
pub const STOP_PORT: &str = "/dev/ttyS1";
/// Name of the profile in the output.
pub const PROFILE: &str = "profile.json";
/// Name of the call graphs' trace in the output.
pub const TRACE: &str = "trace";
/// Name of a failure, one sentence, in the output.
pub const FAILURE: &str = "failure";
/// Name of the command's status in the output, in decimal.
pub const STATUS: &str = "status";
