//! Exceptions and interrupts: descriptor tables, entry code, dispatch.
//! (Intel SDM vol. 3A, chapter 6.)

mod descriptors;
mod entry;
mod exception;
pub mod irq;
pub(crate) mod registers;
pub(crate) mod vector;

pub(crate) use descriptors::init;
