//! What a site wants beside its files: headers by path, redirects, listings, what a path
//! without a file gets, the same for hosts by name, and an access log (`docs/adr/0046-one-file-for-a-site.md`).
//!
//! [`mod@file`] parses `site.toml` on the host and says where its mistakes are. What it
//! accepts becomes a [`Table`], whose bytes go into the initramfs beside the root. The
//! guest reads them back with the same rules, since they are hostile input like any
//! other. `no_std` without the feature `file`, no I/O.
//!
//! [`reload`] is how a machine that runs gets another root and table.
//!
//! Neighbours: `launch` reads the file and packs the table, `guests/http` applies it.

#![cfg_attr(not(any(test, feature = "file")), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod field;
#[cfg(feature = "file")]
pub mod file;
mod glob;
mod redirect;
pub mod reload;
mod table;

pub use field::{Field, FieldError};
pub use glob::{Captures, Glob, GlobError, Wildcard};
pub use redirect::{Redirect, RedirectError, RedirectStatus, push_encoded};
pub use table::{Host, Log, Missing, PathRule, Table, TableError, VERSION};

/// The table's name in the initramfs.
pub const FILE: &str = ".tare-site";
/// The guest's command line names the table with `site=NAME`, so that a file of a root is
/// never taken for one by its name.
pub const PARAMETER: &str = "site";

/// Most bytes of the file, and of the table.
pub const MOST_BYTES: usize = 256 * 1024;
/// Most `[[path]]`.
pub const MOST_PATHS: usize = 256;
/// Most fields of one `[[path]]`.
pub const MOST_FIELDS: usize = 32;
/// Most globs of `listing`.
pub const MOST_LISTINGS: usize = 64;
/// Most `[host.NAME]`.
pub const MOST_HOSTS: usize = 64;
/// Most `[[redirect]]`.
pub const MOST_REDIRECTS: usize = 1024;
