//! The load generator's image; on the host it loads a disk in memory.

#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::string::{String, ToString};
use core::time::Duration;

use tare_guest_blk::run::{self, Edge};
use tare_guest_blk::{Job, prepare, report};
use tare_libos::block::{Disk, SECTOR_BYTES};
use tare_libos::{env, println, thread};

/// Time for the host to set the disk's rule.
const PAUSE: Duration = Duration::from_millis(50);

fn blk() -> Result<(), String> {
    let job = Job::parse(env::args()).map_err(|error| error.to_string())?;
    let disk = find(&job)?;
    let sectors = disk.sectors();
    println!(
        "{{\"disk\":\"{}\",\"bytes\":{},\"depth\":{},\"queues\":{},\"block\":{},\"read\":{}}}",
        disk.name(),
        disk.bytes(),
        disk.depth(),
        disk.queues(),
        job.block,
        job.read
    );
    prepare::prepare(&job, &disk).map_err(|error| error.to_string())?;
    thread::sleep(PAUSE);
    for &cif in &job.cif {
        let tell = |edge| match edge {
            Edge::Begin => println!("{{\"begin\":true,\"cif\":{cif}}}"),
            Edge::End => println!("{{\"end\":true,\"cif\":{cif}}}"),
        };
        let outcome = run::run(&job, &disk, cif, tell).map_err(|error| error.to_string())?;
        println!("{}", report::line(&outcome));
    }
    println!("{{\"done\":true}}");
    if env::has_word("grows") {
        grows(&disk, sectors)?;
    }
    if env::has_word("hold") {
        thread::park();
    }
    Ok(())
}

/// Waits until the disk has more than `before` sectors, and reads its new last one.
fn grows(disk: &Disk, before: u64) -> Result<(), String> {
    while disk.sectors() == before {
        thread::sleep(PAUSE);
    }
    let mut sector = [0; SECTOR_BYTES];
    let read = disk.read(disk.sectors() - 1, &mut sector);
    read.map_err(|error| error.to_string())?;
    println!("{{\"grown\":{},\"last\":{}}}", disk.bytes(), sector[0]);
    Ok(())
}

tare_libos::entry!(blk);

#[cfg(target_os = "none")]
fn find(job: &Job) -> Result<Disk, String> {
    let disk = tare_libos::block::disk(&job.disk);
    disk.cloned()
        .ok_or_else(|| alloc::format!("there is no disk {}", job.disk))
}

/// On the host, a disk in memory.
#[cfg(not(target_os = "none"))]
fn find(job: &Job) -> Result<Disk, String> {
    use tare_libos::block::Access;
    let bytes = vec![0; 16 << 20];
    Ok(Disk::in_memory(&job.disk, bytes, Access::ReadWrite))
}

/// On the host, over the shim of `tare_libos::thread`.
#[cfg(not(target_os = "none"))]
fn main() -> Result<(), String> {
    blk()
}
