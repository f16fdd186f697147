//! Entry point for fuzzing: bytes as a front-end sends them, to a daemon that
//! has memory and a started queue already. None may panic or hang.

use std::fs::File;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use tare_daemon::poll::Poll;
use tare_devices::blk::{
    Access, Blk, BlkSettings, Cache, Disk, MonotonicClock, SERIAL_BYTES, SyncIoEngine,
};
use vhost::vhost_user::message::{VhostUserSingleMemoryRegion, VhostUserVringAddrFlags};
use vhost::vhost_user::{BackendReqHandler, VhostUserBackendReqHandlerMut as _};

use crate::counters::VhostCounters;
use crate::io::{QUEUES, lock};
use crate::session::Session;

const MEMORY_BYTES: u64 = 64 << 10;
/// Most bytes that are sent: their answers fit into the socket unread.
const MOST: usize = 16 << 10;

/// One connection. The first byte says how much of the rest is guest memory,
/// in 256 bytes; messages follow.
pub fn messages(input: &[u8]) {
    let Some((memory, messages)) = split(input) else {
        return;
    };
    let Some(session) = session(memory) else {
        return;
    };
    let session = Arc::new(Mutex::new(session));
    let Ok((mut theirs, ours)) = UnixStream::pair() else {
        return;
    };
    if theirs.write_all(messages).is_err() || theirs.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let mut link = BackendReqHandler::from_stream(ours, Arc::clone(&session));
    while link.handle_request().is_ok() {
        let mut session = lock(&session);
        session.notified(0);
        session.go_on();
    }
    lock(&session).forget_frontend();
}

fn split(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (blocks, rest) = input.split_first()?;
    let memory = (usize::from(*blocks) * 256).min(rest.len());
    let (memory, messages) = rest.split_at(memory);
    Some((memory, &messages[..messages.len().min(MOST)]))
}

fn session(memory: &[u8]) -> Option<Session> {
    let disk = memory_file(MEMORY_BYTES)?;
    let engine = SyncIoEngine::new(disk.try_clone().ok()?);
    let disk = Disk::from_file(disk, "fuzz", Access::ReadWrite).ok()?;
    let settings = BlkSettings {
        serial: [b'f'; SERIAL_BYTES],
        queues: 2,
        cache: Cache::Writeback,
        coalesce: tare_policy::coalesce::Settings::default(),
        limits: Default::default(),
    };
    let device = Blk::new(settings, disk, Box::new(engine), Box::new(MonotonicClock));
    let poll = Arc::new(Poll::new().ok()?);
    let counters: Arc<VhostCounters> = Arc::default();
    let mut session = Session::new(device, poll, counters, QUEUES);
    let features = session.get_features().ok()?;
    session.set_features(features).ok()?;
    let mut file = memory_file(MEMORY_BYTES)?;
    file.write_all(memory).ok()?;
    let region = VhostUserSingleMemoryRegion::new(0, MEMORY_BYTES, 0, 0);
    session.add_mem_region(&region, file, None).ok()?;
    session.set_vring_num(0, 16).ok()?;
    let flags = VhostUserVringAddrFlags::empty();
    session.set_vring_addr(0, flags, 0, 0x200, 0x100, 0).ok()?;
    let kick = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
    session.set_vring_kick(0, Some(File::from(kick))).ok()?;
    session.set_vring_enable(0, true).ok()?;
    Some(session)
}

fn memory_file(bytes: u64) -> Option<File> {
    let file = File::from(memfd_create(c"fuzz", MemfdFlags::CLOEXEC).ok()?);
    file.set_len(bytes).ok()?;
    Some(file)
}

#[cfg(test)]
#[path = "../../../fuzz/judges/corpus.rs"]
mod files;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vhost_messages_survive_their_corpus() {
        files::replay("vhost_messages", messages);
    }

    #[test]
    fn a_made_up_front_end_has_a_queue_that_works() {
        let session = session(&[0; 1024]);
        assert!(session.is_some_and(|it| it.has_more()));
    }
}
