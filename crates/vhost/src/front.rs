//! A front-end with a driver, for tests: of this crate and of the program.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use tare_devices::GuestRam;
use tare_devices::blk::SEG_MAX;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Bytes of its memory.
pub const MEMORY_BYTES: u64 = 1 << 20;
/// Requests of three descriptors that its queue has room for.
pub const SLOTS: u16 = 5;
/// The front-end's address of its memory.
pub const USER: u64 = 0x7000_0000;
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADER: u64 = 0x4000;
const DATA: u64 = 0x5000;
const STATUS: u64 = 0x6000;
/// An indirect table of 256 descriptors.
const INDIRECT: u64 = 0x8000;
/// Data of the slots after the first.
const SLOTS_DATA: u64 = 0xa000;
/// The rings of a queue of `LARGE` descriptors.
const LARGE: u16 = 1024;
const LARGE_RINGS: u64 = 0x6_0000;
const LARGE_TABLE: u64 = LARGE_RINGS + TABLE;
const LARGE_AVAILABLE: u64 = LARGE_TABLE + 0x8000;
const LARGE_USED: u64 = LARGE_TABLE + 0xc000;
const LONG_DATA: u64 = 0x1_0003;
const LONG_PART: u32 = 256 << 10;
const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITABLE: u16 = VRING_DESC_F_WRITE as u16;

/// A file in memory of `bytes` zero bytes.
pub fn memory_file(bytes: u64) -> File {
    let file = File::from(memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(bytes).unwrap();
    file
}

/// Waits until something holds; panics with `what` after half a minute.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection whose features are agreed on.
fn negotiate(socket: &Path) -> (UnixStream, Frontend) {
    let stream = UnixStream::connect(socket).unwrap();
    let mut link = Frontend::from_stream(stream.try_clone().unwrap(), 2);
    link.set_owner().unwrap();
    let features = link.get_features().unwrap();
    let protocol = link.get_protocol_features().unwrap();
    link.set_protocol_features(protocol).unwrap();
    link.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
    link.set_features(features).unwrap();
    assert!(protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD));
    (stream, link)
}

/// Where a slot has its data.
fn data(slot: u16) -> u64 {
    match slot {
        0 => DATA,
        slot => SLOTS_DATA + 512 * u64::from(slot),
    }
}

/// A front-end with memory and one queue.
pub struct Front {
    /// The connection.
    pub link: Frontend,
    /// Its bytes.
    pub stream: UnixStream,
    /// The file of its memory.
    pub file: File,
    /// Its memory.
    pub memory: GuestRam,
    kick: EventFd,
    call: EventFd,
    /// The log of what is in flight, to be given to a successor.
    pub log: Option<(VhostUserInflight, File)>,
}

impl Front {
    /// Connects to the daemon at `socket` and agrees on all features.
    pub fn connect(socket: &Path) -> Self {
        let (stream, link) = negotiate(socket);
        let file = memory_file(MEMORY_BYTES);
        let copy = FileOffset::new(file.try_clone().unwrap(), 0);
        let region = MmapRegion::from_file(copy, MEMORY_BYTES as usize).unwrap();
        let region = GuestRegionMmap::new(region, GuestAddress(0)).unwrap();
        let eventfd = || EventFd::new(EFD_NONBLOCK).unwrap();
        Self {
            link,
            stream,
            file,
            memory: GuestRam::from_regions(vec![region]).unwrap(),
            kick: eventfd(),
            call: eventfd(),
            log: None,
        }
    }

    /// The 32-bit field of the device's configuration at `offset`.
    pub fn config(&mut self, offset: u32) -> u32 {
        let flags = VhostUserConfigFlags::empty();
        let read = self.link.get_config(offset, 4, flags, &[0; 4]);
        u32::from_le_bytes(read.unwrap().1.try_into().unwrap())
    }

    /// The first `bytes` of its memory as a region.
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
        self.start_sized(16, base, offset)
    }

    /// The same with `size` descriptors, at most 256. The methods that offer requests know a
    /// queue of 16: the first request only is right in a longer one.
    pub fn start_sized(&mut self, size: u16, base: u16, offset: u64) -> Result<(), vhost::Error> {
        let places = [TABLE, AVAILABLE, USED];
        self.start_at(size, base, places.map(|place| place + offset))
    }

    /// The same with 1,024 descriptors, for [`offer_many`](Self::offer_many).
    pub fn start_large(&mut self, base: u16) -> Result<(), vhost::Error> {
        self.start_at(LARGE, base, [LARGE_TABLE, LARGE_AVAILABLE, LARGE_USED])
    }

    fn start_at(
        &mut self,
        size: u16,
        base: u16,
        [table, available, used]: [u64; 3],
    ) -> Result<(), vhost::Error> {
        self.link.set_vring_num(0, size)?;
        self.link.set_vring_base(0, base)?;
        let place = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: USER + table,
            avail_ring_addr: USER + available,
            used_ring_addr: USER + used,
            log_addr: None,
        };
        self.link.set_vring_addr(0, &place)?;
        self.link.set_vring_call(0, &self.call)?;
        self.link.set_vring_kick(0, &self.kick)?;
        self.link.set_vring_enable(0, true)
    }

    /// Gives queue 0 its notifiers again; the old ones are not read any more.
    pub fn renew_notifiers(&mut self) {
        self.link.set_vring_call(0, &self.call).unwrap();
        self.link.set_vring_kick(0, &self.kick).unwrap();
    }

    /// Takes the file that queue 0 interrupts by (`VHOST_USER_SET_VRING_CALL` without a file).
    pub fn take_call(&mut self) {
        const SET_VRING_CALL: u32 = 13;
        const VERSION: u32 = 1;
        const LEN: u32 = 8;
        const NO_FILE: u64 = 1 << 8;
        let header = [SET_VRING_CALL, VERSION, LEN]
            .map(u32::to_ne_bytes)
            .concat();
        let message = [&header[..], &NO_FILE.to_ne_bytes()].concat();
        self.stream.write_all(&message).unwrap();
        // Answered after it.
        self.link.get_features().unwrap();
    }

    fn put<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.memory.write_obj(value, GuestAddress(at)).unwrap();
    }

    /// The used ring's index.
    pub fn used(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }

    /// Offers a read of `sector` as the driver's `number`th request.
    pub fn offer_read(&self, number: u16, sector: u64) {
        self.offer(number, (VIRTIO_BLK_T_IN, sector), (512, WRITABLE));
    }

    /// Offers a read of the 4 KiB from `sector` on as the driver's `number`th request.
    pub fn offer_read_4k(&self, number: u16, sector: u64) {
        self.offer(number, (VIRTIO_BLK_T_IN, sector), (4096, WRITABLE));
    }

    /// Offers a write of `byte`s to `sector` as the driver's `number`th request.
    pub fn offer_write(&self, number: u16, sector: u64, byte: u8) {
        let data = GuestAddress(DATA);
        self.memory.write_slice(&[byte; 512], data).unwrap();
        self.offer(number, (VIRTIO_BLK_T_OUT, sector), (512, 0));
    }

    /// As [`offer_write`](Self::offer_write) from place `slot`, while requests from the
    /// others are in flight.
    pub fn offer_write_in(&self, slot: u16, number: u16, sector: u64, byte: u8) {
        let data = GuestAddress(data(slot));
        self.memory.write_slice(&[byte; 512], data).unwrap();
        self.offer_in(slot, number, (VIRTIO_BLK_T_OUT, sector), Some((512, 0)));
    }

    /// Offers to fill `sectors` sectors from `sector` on with zeros (virtio 1.2, 5.2.6.2).
    pub fn offer_zeroes(&self, number: u16, sector: u64, sectors: u32) {
        self.put(DATA, sector);
        self.put(DATA + 8, sectors);
        self.put(DATA + 12, 0u32);
        self.offer(number, (VIRTIO_BLK_T_WRITE_ZEROES, 0), (16, 0));
    }

    /// Offers a flush.
    pub fn offer_flush_in(&self, slot: u16, number: u16) {
        self.offer_in(slot, number, (VIRTIO_BLK_T_FLUSH, 0), None);
    }

    /// The slot whose request was the `number`th to be answered.
    pub fn used_slot(&self, number: u16) -> u16 {
        let entry = USED + 4 + 8 * u64::from(number % 16);
        let head: u32 = self.memory.read_obj(GuestAddress(entry)).unwrap();
        head as u16 / 3
    }

    /// The status of a slot's last request.
    pub fn status(&self, slot: u16) -> u8 {
        let status = GuestAddress(STATUS + u64::from(slot));
        self.memory.read_obj(status).unwrap()
    }

    /// Goes on with another daemon, as a monitor does when its connection has ended.
    pub fn reconnect(&mut self, socket: &Path) {
        (self.stream, self.link) = negotiate(socket);
        self.share();
        self.start(self.used(), 0).unwrap();
    }

    /// Offers a request with one buffer of data: its length and flags.
    fn offer(&self, number: u16, request: (u32, u64), data: (u32, u16)) {
        self.offer_in(0, number, request, Some(data));
    }

    fn offer_in(
        &self,
        slot: u16,
        number: u16,
        (kind, sector): (u32, u64),
        buffer: Option<(u32, u16)>,
    ) {
        let header = HEADER + 32 * u64::from(slot);
        let status = STATUS + u64::from(slot);
        self.put(header, u64::from(kind));
        self.put(header + 8, sector);
        self.put(status, 0xffu8);
        let head = 3 * slot;
        let mut chain = vec![(header, 16u32, NEXT)];
        chain.extend(buffer.map(|(len, flags)| (data(slot), len, NEXT | flags)));
        chain.push((status, 1, WRITABLE));
        for (index, part) in (head..).zip(chain) {
            self.put_descriptor(TABLE, index, part);
        }
        self.put(AVAILABLE + 4 + 2 * u64::from(number % 16), head);
        // An interrupt for this one is wanted (used_event).
        self.put(AVAILABLE + 36, number);
        self.put(AVAILABLE + 2, number.wrapping_add(1));
    }

    /// Offers the longest read there is, from the disk's begin, as the driver's `number`th
    /// request: all of its buffers are the same 256 KiB at an odd address.
    pub fn offer_long_read(&self, number: u16) {
        self.put(HEADER, u64::from(VIRTIO_BLK_T_IN));
        self.put(HEADER + 8, 0u64);
        let data = (LONG_DATA, LONG_PART, NEXT | WRITABLE);
        let chain = [(HEADER, 16, NEXT)]
            .into_iter()
            .chain(std::iter::repeat_n(data, SEG_MAX as usize))
            .chain([(STATUS, 1, WRITABLE)]);
        let mut entries = 0;
        for (index, (address, len, flags)) in (0..).zip(chain) {
            self.put_descriptor(INDIRECT, index, (address, len, flags));
            entries += 1;
        }
        let table = (INDIRECT, 16 * entries, VRING_DESC_F_INDIRECT as u16);
        self.put_descriptor(TABLE, number % 16, table);
        self.put(AVAILABLE + 4 + 2 * u64::from(number % 16), number % 16);
        self.put(AVAILABLE + 2, number.wrapping_add(1));
    }

    /// Offers as many reads of the first sector, each its own descriptor and all into one buffer, in
    /// a queue of 1,024.
    pub fn offer_many(&self, count: u16) {
        self.put(HEADER, u64::from(VIRTIO_BLK_T_IN));
        self.put(HEADER + 8, 0u64);
        let chain = [
            (HEADER, 16, NEXT),
            (DATA, 512, NEXT | WRITABLE),
            (STATUS, 1, WRITABLE),
        ];
        for (index, part) in (0..).zip(chain) {
            self.put_descriptor(INDIRECT, index, part);
        }
        for head in 0..count {
            let table = (INDIRECT, 16 * 3, VRING_DESC_F_INDIRECT as u16);
            self.put_descriptor(LARGE_TABLE, head, table);
            self.put(LARGE_AVAILABLE + 4 + 2 * u64::from(head), head);
        }
        self.put(LARGE_AVAILABLE + 2, count);
    }

    /// The heads that were answered in a queue of 1,024.
    pub fn answered_of_many(&self) -> Vec<u32> {
        let used: u16 = self.memory.read_obj(GuestAddress(LARGE_USED + 2)).unwrap();
        let entries = (0..u64::from(used)).map(|entry| LARGE_USED + 4 + 8 * entry);
        let heads = entries.map(|entry| self.memory.read_obj(GuestAddress(entry)).unwrap());
        heads.collect()
    }

    fn put_descriptor(&self, table: u64, index: u16, (address, len, flags): (u64, u32, u16)) {
        let entry = table + 16 * u64::from(index);
        self.put(entry, address);
        self.put(entry + 8, len);
        self.put(entry + 12, flags);
        self.put(entry + 14, index + 1);
    }

    /// Notifies queue 0.
    pub fn notify(&self) {
        self.kick.write(1).unwrap();
    }

    /// The first byte of the data, once the request was answered with success and
    /// an interrupt.
    pub fn answer(&self, used: u16) -> u8 {
        eventually("an answer", || self.used() == used);
        eventually("an interrupt", || self.call.read().is_ok());
        let status: u8 = self.memory.read_obj(GuestAddress(STATUS)).unwrap();
        assert_eq!(status, 0);
        self.memory.read_obj(GuestAddress(DATA)).unwrap()
    }
}
