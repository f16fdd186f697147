//! What every host program of Tare needs of Linux, and no other crate owns:
//! processes that cannot be mistaken for another one, directories that may be removed, and text by others that
//! is printed on a terminal, and network namespaces for experiments. Depends on no crate of the
//! project. Unsafe code is in [`tap_namespace`] alone.

#![deny(unsafe_code)]

pub mod owned_directory;
pub mod printable;
pub mod process;
pub mod tap_namespace;
