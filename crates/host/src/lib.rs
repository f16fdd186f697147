//! What every host program of Tare needs of Linux, and no other crate owns:
//! processes that cannot be mistaken for another one, children that end with their parent,
//! signals that ask for an end, and what becomes of them,
//! programs on the search path, lists of CPUs, directories that may be removed, journals of
//! changes that must be undone, words for a shell, text by others that is printed on a
//! terminal, messages on standard error, the state of standard input, and network namespaces for experiments. Depends on no crate
//! of the project. Unsafe code is in [`child`], [`signals`] and [`tap_namespace`]
//! alone.

#![deny(unsafe_code)]

pub mod child;
pub mod cpu_list;
pub mod end_requests;
pub mod journal;
pub mod owned_directory;
pub mod printable;
pub mod process;
pub mod program;
pub mod shell;
pub mod signal_number;
pub mod signals;
pub mod stderr;
pub mod tap_namespace;
pub mod terminal;
