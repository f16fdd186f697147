//! The thread that makes changes durable some seconds after the first of them, as the journal
//! of Linux's ext4 does each five seconds. Without changes it sleeps, and no timer runs.

use alloc::sync::Arc;
use core::time::Duration;

use tare_libos::thread;
use tare_linux::volume::Volume as _;

use crate::volume::Ext4Volume;

/// Time from the first change to when it is durable.
const DELAY: Duration = Duration::from_secs(5);
/// Stack of the thread, bytes.
const STACK_BYTES: usize = 256 * 1024;

/// Starts the thread.
pub(crate) fn start(volume: &Arc<Ext4Volume>) {
    let theirs = volume.clone();
    let started = thread::Builder::new()
        .name("disk writer")
        .stack_size(STACK_BYTES)
        .spawn(move || {
            theirs.set_writer(thread::current());
            loop {
                while !theirs.is_dirty() {
                    thread::park();
                }
                thread::sleep(DELAY);
                if let Err(errno) = theirs.sync() {
                    log::warn!("cannot write back: error {errno:?}");
                }
            }
        });
    if started.is_err() {
        log::warn!("no memory for the thread that writes back: only fsync does");
    }
}
