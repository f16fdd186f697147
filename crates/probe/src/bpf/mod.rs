//! Loading BPF objects, attaching their programs one by one, reading their maps.
//!
//! An [`Object`] is one compiled file of `bpf/`. Each program is loaded and
//! attached by itself ([`Object::attach`]), so that a kernel which lacks one
//! trace point still gives all the others; what is missing comes back as
//! [`Unavailable`](crate::Unavailable). Dropping the object detaches and unloads everything.
//!
//! Maps are read as arrays of 64-bit words, which is what the programs declare
//! them to be; nothing here transmutes.

mod object;
mod reason;
mod run_time;

pub use object::{Image, Object, Point};
pub(crate) use run_time::RunTimes;
pub use run_time::{RunTime, RunTimeMeter, RunTimeSampler};

/// Embeds an object that the build script compiled.
#[macro_export]
macro_rules! bpf_image {
    ($name:literal) => {
        $crate::bpf::Image::new(
            $name,
            aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/", $name)),
        )
    };
}
