//! Observing within a guest: what the observer there is to observe ([`ObserveRequest`]) and how it
//! hands its finds to the host ([`archive`], on a disk of the guest's).
//!
//! The observer is the program `tare-observe`, linked statically like the guest's
//! first process. The guest is hostile: what it hands over is bounded and parsed.

pub mod archive;
mod request;
pub mod tracer;

pub use request::ObserveRequest;

/// The observer's place in the guest.
pub const OBSERVER: &str = ".tare/observe";
/// The disk that finds are written to.
pub const FINDS: &str = "/dev/vda";
/// The serial port on which a line means: come to an end.
pub const ORDERS: &str = "/dev/ttyS1";
/// Name of the profile among the finds.
pub const PROFILE: &str = "profile.json";
/// Name of the call graphs' trace among the finds.
pub const TRACE: &str = "trace";
/// Name of a failure, one sentence, among the finds.
pub const FAILURE: &str = "failure";
/// Name of the command's status among the finds, in decimal.
pub const STATUS: &str = "status";
