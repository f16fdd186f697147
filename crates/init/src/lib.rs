//! The task of a Linux guest's first process.
//!
//! `rootfs` writes it into the guest's files, the program of this crate reads
//! it. The program is linked statically (`cargo xtask init`), so that it runs
//! on any root file system. This library is plain data and pure functions, but for
//! [`credentials`]; what the program does with them is in `main.rs` and below it.

#![deny(unsafe_code)]

pub mod account;
pub mod address;
pub mod counts;
pub mod credentials;
mod figures;
pub mod refusal;
pub mod stream;
mod task;

pub use figures::Figures;
pub use refusal::Refusal;
pub use task::{
    END_FILE, FileCapabilities, Logging, PATH, Root, Share, TASK_FILE, Task, TaskError, WORK_DIR,
};
