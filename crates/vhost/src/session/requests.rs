//! What each message of the front-end does (QEMU `docs/interop/vhost-user.rst`).
//! An error ends the connection.

use std::fs::File;
use std::io;

use tare_daemon::poll::Interest;
use tare_devices::blk::MAX_QUEUES;
use tare_devices::virtio::VirtioDevice as _;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut as Requests,
    VhostUserVirtioFeatures,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::cache_mode::Belief;
use super::log_area::LogArea;
use super::memory::{FrontendRegion, MemoryError, Regions};
use super::notifier::{self, Notifier};
use super::ring::{Addresses, MAX_SIZE};
use super::{Session, StartError};
use crate::limits::MAX_REGIONS;

/// Longest device configuration (`VHOST_USER_CONFIG_SIZE`).
const CONFIG_BYTES: usize = 256;
/// Length of the capacity, with which it begins (virtio 1.2, 5.2.4).
const CAPACITY_BYTES: usize = 8;

const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    .union(VhostUserProtocolFeatures::RESET_DEVICE);

impl Session {
    /// Feature bits.
    pub(super) fn offered(&self) -> u64 {
        self.device.features()
            | 1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn known(&self, index: impl Into<u64>) -> Result<usize> {
        let index = usize::try_from(index.into()).map_err(|_| Error::InvalidParam)?;
        let known = index < self.rings.len();
        known.then_some(index).ok_or(Error::InvalidParam)
    }

    fn stopped(&self, index: u32) -> Result<usize> {
        let index = self.known(index)?;
        if self.live[index].is_none() && self.rings[index].parked.is_none() {
            Ok(index)
        } else {
            Err(Error::InvalidOperation("the queue is started"))
        }
    }

    fn refuse_memory(&self, error: MemoryError) -> Error {
        self.counters.memory_refused.increment();
        failed(error)
    }
}

impl Requests for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        for index in 0..self.rings.len() {
            self.stop(index);
            self.rings[index].enabled = false;
        }
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.offered() != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        self.device.start(features);
        self.apply_cache_mode().map_err(Error::ReqHandlerError)?;
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            for index in 0..self.rings.len() {
                self.enable(index).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        places: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mut regions = Regions::default();
        for (region, file) in places.iter().zip(files) {
            let added = regions.add(place(region), file);
            added.map_err(|error| self.refuse_memory(error))?;
        }
        self.change_memory(regions).map_err(failed)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let index = self.stopped(index)?;
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(Error::InvalidParam);
        }
        self.rings[index].size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let index = self.stopped(index)?;
        self.rings[index].addresses = Some(Addresses {
            descriptors,
            available,
            used,
        });
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let index = self.stopped(index)?;
        self.rings[index].base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let known = self.known(index)?;
        Ok(VhostUserVringState::new(index, self.stop(known).into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = self.known(index)?;
        let polling = Error::InvalidOperation("queues are not polled");
        let token = self.first_token + index as u64;
        let mut kick = Notifier::new(file.ok_or(polling)?, &self.poll, token)
            .map_err(|source| failed(StartError::Watch { index, source }))?;
        let live = self.live[index].is_some();
        if live {
            self.rings[index].kick = None;
            kick.watch(Interest::READ)
                .map_err(|source| failed(StartError::Watch { index, source }))?;
            // The old one may have been signalled and not been read.
            self.rings[index].pending = true;
        }
        self.rings[index].kick = Some(kick);
        if live || self.rings[index].parked.is_some() {
            Ok(())
        } else {
            self.start(index).map_err(failed)
        }
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = self.known(index)?;
        let call = file
            .map(notifier::sender)
            .transpose()
            .map_err(Error::ReqHandlerError)?;
        let bound = self.signals[index].bind(call.as_ref());
        self.rings[index].call = call;
        bound.map_err(Error::ReqHandlerError)?;
        if self.live[index].is_some() || self.rings[index].parked.is_some() {
            self.pay_interrupt(index);
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = self.known(index)?;
        let error = file.map(notifier::sender).transpose();
        self.rings[index].error = error.map_err(Error::ReqHandlerError)?;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        match features & !PROTOCOL.bits() {
            0 => Ok(()),
            _ => Err(Error::InvalidParam),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.rings.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let index = self.known(index)?;
        if enable {
            return self.enable(index).map_err(failed);
        }
        self.disable(index);
        Ok(())
    }

    /// Front-ends ask for structures longer than the device has: zeros follow.
    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let (offset, size) = (offset as usize, size as usize);
        if offset + size > CONFIG_BYTES {
            return Err(Error::InvalidParam);
        }
        if self.belief == Belief::Unknown {
            self.believe(Belief::Read).map_err(Error::ReqHandlerError)?;
        }
        if offset < CAPACITY_BYTES {
            self.read_bytes = Some(self.device.bytes());
        }
        let mut config = vec![0; size];
        self.device.read_config(offset, &mut config);
        Ok(config)
    }

    /// The driver may change the cache mode and nothing else.
    fn set_config(&mut self, offset: u32, data: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        let Some(cache) = self.device.cache_written(offset as usize, data) else {
            self.counters.config_writes_refused.increment();
            return Ok(());
        };
        self.counters.cache_changes.increment();
        let changed = self.believe(Belief::Chosen(cache));
        changed.map_err(Error::ReqHandlerError)
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let VhostUserInflight {
            num_queues,
            queue_size,
            ..
        } = *wanted;
        let (file, bytes) = LogArea::make(num_queues, queue_size).map_err(failed)?;
        let given = VhostUserInflight::new(bytes, 0, num_queues, queue_size);
        Ok((given, file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        if self.is_started() {
            return Err(Error::InvalidOperation("queues are started"));
        }
        let place = (given.mmap_offset, given.mmap_size);
        let shape = (given.num_queues, given.queue_size);
        let log = LogArea::map(file, place, shape).map_err(failed)?;
        let noted = Belief::of_entry(log.cache_mode());
        self.log = Some(log);
        // What this connection has said is newer.
        let belief = match (self.belief, noted) {
            (Belief::Chosen(_), _) | (_, Belief::Unknown) => self.belief,
            _ => noted,
        };
        self.believe(belief).map_err(Error::ReqHandlerError)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let mut regions = self.regions.clone();
        let added = regions.add(place(region), file);
        added.map_err(|error| self.refuse_memory(error))?;
        self.change_memory(regions).map_err(failed)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let mut regions = self.regions.clone();
        let removed = regions.remove(region.guest_phys_addr, region.memory_size);
        removed.map_err(|error| self.refuse_memory(error))?;
        self.change_memory(regions).map_err(failed)
    }

    /// The crate has found a UNIX stream socket in the message. It keeps its own descriptor to
    /// itself; the copy that was taken before serves.
    fn set_backend_req_fd(&mut self, _: Backend) {
        self.channel = self.offered_channel.take();
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("this is a disk"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("there are no shared objects"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("there is no state to transfer"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("there is no state to transfer"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("there is no shared memory"))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("migration is not supported"))
    }
}

fn place(region: &VhostUserMemoryRegion) -> FrontendRegion {
    FrontendRegion {
        guest: region.guest_phys_addr,
        size: region.memory_size,
        user: region.user_addr,
        offset: region.mmap_offset,
    }
}

/// As the protocol's error, with its causes in one line.
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::ReqHandlerError(io::Error::other(error))
}

const _: () = assert!(MAX_QUEUES <= u8::MAX as u16);
