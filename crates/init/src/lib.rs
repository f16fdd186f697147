//! What the first process of a Linux guest is told: the task.
//!
//! `rootfs` writes it into the guest's files, the program of this room reads
//! it. The program is linked statically (`cargo xtask init`), so that it runs
//! on any root file system. This library is plain data and pure functions;
//! what the program does with them is in `main.rs` and below it.

#![forbid(unsafe_code)]

pub mod account;
pub mod address;
mod figures;
pub mod refusal;
mod task;

pub use figures::Figures;
pub use refusal::Refusal;
pub use task::{Root, TASK_FILE, Task, TaskError, Telling, WORK_DIR};
