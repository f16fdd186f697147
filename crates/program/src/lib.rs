//! A Linux program as `tare run` and the personality in the guest (`guest/linux`)
//! both read it: [`elf`] is its file's layout, [`Start`] what it starts with, [`Call`] a
//! system call that it gets an answer to, [`offered`] what else the guest offers, [`names`] files'
//! names as text, [`script`] the first line of a script.
//!
//! Both are hostile input: parsed into valid types, with limits. `no_std`, no I/O.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod call;
pub mod elf;
pub mod names;
pub mod offered;
pub mod script;
mod start;

pub use call::{Answer, Call, missing};
pub use start::{FILE, Start, StartError};
