//! What every host program of Tare needs of Linux, and no other crate owns:
//! processes that cannot be mistaken for another one, directories that may be removed, and text by others that
//! is printed on a terminal. Depends on no crate of the project.

#![forbid(unsafe_code)]

pub mod owned_directory;
pub mod printable;
pub mod process;
