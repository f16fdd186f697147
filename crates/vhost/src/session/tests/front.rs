//! The daemon's I/O loop on a thread, and a front-end with a driver.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use tare_daemon::poll::Poll;
use tare_devices::GuestRam;
use tare_devices::blk::{
    Access, Blk, BlkSettings, Cache, Disk, MonotonicClock, SERIAL_BYTES, choose,
};
use vhost::vhost_user::message::{VhostUserInflight, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

use crate::counters::VhostCounters;
use crate::io::{IoLoop, QUEUES};
use crate::session::Session;

pub const MEMORY_BYTES: u64 = 1 << 20;
/// The front-end's address of its memory.
pub const USER: u64 = 0x7000_0000;
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADER: u64 = 0x4000;
const DATA: u64 = 0x5000;
const STATUS: u64 = 0x6000;

pub fn memory_file(bytes: u64) -> File {
    let file = File::from(memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(bytes).unwrap();
    file
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// The daemon, ended when dropped.
pub struct Daemon {
    directory: tempfile::TempDir,
    pub counters: Arc<VhostCounters>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Serves a disk whose sectors hold their numbers.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let bytes: Vec<u8> = (0..64).flat_map(|sector| [sector; 512]).collect();
        std::fs::write(&path, bytes).unwrap();
        let disk = Disk::open(&path, Access::ReadWrite).unwrap();
        let settings = BlkSettings {
            serial: [b's'; SERIAL_BYTES],
            queues: 2,
            cache: Cache::Writeback,
            coalesce: tare_policy::coalesce::Settings::default(),
        };
        let engine = choose(&disk).unwrap().engine;
        let device = Blk::new(settings, disk, engine, Box::new(MonotonicClock));
        let poll = Arc::new(Poll::new().unwrap());
        let counters: Arc<VhostCounters> = Arc::default();
        let session = Session::new(device, Arc::clone(&poll), Arc::clone(&counters), QUEUES);
        let session = Arc::new(Mutex::new(session));
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let stop = event();
        let stopped = stop.try_clone().unwrap();
        let counted = Arc::clone(&counters);
        let io = IoLoop::new(poll, listener, session, counted, stopped, event()).unwrap();
        let thread = std::thread::spawn(move || io.run().unwrap());
        Self {
            directory,
            counters,
            stop,
            thread: Some(thread),
        }
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("s")
    }

    pub fn connect(&self) -> Front {
        Front::new(Frontend::connect(self.socket(), 2).unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A front-end with memory and one queue.
pub struct Front {
    pub link: Frontend,
    pub file: File,
    pub memory: GuestRam,
    kick: vmm_sys_util::eventfd::EventFd,
    call: vmm_sys_util::eventfd::EventFd,
    pub log: Option<(VhostUserInflight, File)>,
}

impl Front {
    fn new(mut link: Frontend) -> Self {
        let file = memory_file(MEMORY_BYTES);
        let copy = FileOffset::new(file.try_clone().unwrap(), 0);
        let region = MmapRegion::from_file(copy, MEMORY_BYTES as usize).unwrap();
        let region = GuestRegionMmap::new(region, GuestAddress(0)).unwrap();
        link.set_owner().unwrap();
        let features = link.get_features().unwrap();
        let protocol = link.get_protocol_features().unwrap();
        link.set_protocol_features(protocol).unwrap();
        link.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        link.set_features(features).unwrap();
        assert!(protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD));
        let eventfd = || vmm_sys_util::eventfd::EventFd::new(libc_nonblock()).unwrap();
        Self {
            link,
            file,
            memory: GuestRam::from_regions(vec![region]).unwrap(),
            kick: eventfd(),
            call: eventfd(),
            log: None,
        }
    }

    pub fn region(&self, bytes: u64) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: bytes,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// Shares memory and asks for a log.
    pub fn share(&mut self) {
        self.link
            .set_mem_table(&[self.region(MEMORY_BYTES)])
            .unwrap();
        let wanted = VhostUserInflight::new(0, 0, 2, 16);
        let (given, file) = match self.log.take() {
            Some(log) => log,
            None => self.link.get_inflight_fd(&wanted).unwrap(),
        };
        self.link.set_inflight_fd(&given, file.as_raw_fd()).unwrap();
        self.log = Some((given, file));
    }

    /// Starts queue 0 with its rings at the usual place plus `offset`.
    pub fn start(&mut self, base: u16, offset: u64) -> Result<(), vhost::Error> {
        self.link.set_vring_num(0, 16)?;
        self.link.set_vring_base(0, base)?;
        let place = VringConfigData {
            queue_max_size: 16,
            queue_size: 16,
            flags: 0,
            desc_table_addr: USER + TABLE + offset,
            avail_ring_addr: USER + AVAILABLE + offset,
            used_ring_addr: USER + USED + offset,
            log_addr: None,
        };
        self.link.set_vring_addr(0, &place)?;
        self.link.set_vring_call(0, &self.call)?;
        self.link.set_vring_kick(0, &self.kick)?;
        self.link.set_vring_enable(0, true)
    }

    fn put<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.memory.write_obj(value, GuestAddress(at)).unwrap();
    }

    pub fn used(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }

    /// Offers a read of `sector` as the driver's `number`th request.
    pub fn offer_read(&self, number: u16, sector: u64) {
        self.put(HEADER, 0u64);
        self.put(HEADER + 8, sector);
        self.put(STATUS, 0xffu8);
        let chain = [(HEADER, 16u32, 1u16), (DATA, 512, 3), (STATUS, 1, 2)];
        for (index, (address, len, flags)) in (0..).zip(chain) {
            let entry = TABLE + 16 * index;
            self.put(entry, address);
            self.put(entry + 8, len);
            self.put(entry + 12, flags);
            self.put(entry + 14, index as u16 + 1);
        }
        self.put(AVAILABLE + 4 + 2 * u64::from(number % 16), 0u16);
        // An interrupt for this one is wanted (used_event).
        self.put(AVAILABLE + 36, number);
        self.put(AVAILABLE + 2, number.wrapping_add(1));
    }

    pub fn notify(&self) {
        self.kick.write(1).unwrap();
    }

    /// The read's data, once it was answered with success and an interrupt.
    pub fn answer(&self, used: u16) -> u8 {
        eventually("an answer", || self.used() == used);
        eventually("an interrupt", || self.call.read().is_ok());
        let status: u8 = self.memory.read_obj(GuestAddress(STATUS)).unwrap();
        assert_eq!(status, 0);
        self.memory.read_obj(GuestAddress(DATA)).unwrap()
    }
}

fn libc_nonblock() -> i32 {
    vmm_sys_util::eventfd::EFD_NONBLOCK
}
