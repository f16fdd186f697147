//! The HTTP appliance that serves an ext2, ext3 or ext4 file system from a disk:
//!
//! ```sh
//! tare run http-disk --disk site.ext4,ro -p 8080:80
//! ```
//!
//! `--cmdline root=disk1` names another disk than the first.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
tare_libos::entry!(main, takes = SITE);

#[cfg(target_os = "none")]
fn main() -> Result<(), alloc::string::String> {
    tare_guest_http::appliance::run_from_disk()
}

/// On the host there are no disks of a machine; `http DIRECTORY` serves there.
#[cfg(not(target_os = "none"))]
fn main() -> Result<(), &'static str> {
    Err("this image is for machines; on the host, serve a directory with http")
}
