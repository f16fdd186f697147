//! [`VirtioBlk`]: a device of several queues, and threads that wait for it.

#![allow(unsafe_code)] // requests in the ring point to their threads' memory

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tare_hal::virtio::Transport;
use virtio_drivers::transport::Transport as _;

use super::features;
use super::header::{self, LEN, SERIAL_LEN};
use super::ring::{Added, Completion, Data, NotAdded, Ring};
use super::setup::{self, OpenError, Tables};
use crate::block::{BlockError, Cache, Device, DiskStats, Geometry, Operation};
use crate::hal::once::OnceCell;
use crate::sync::{Event, IrqLock};
use crate::thread;

/// A queue, its interrupts counted.
#[derive(Default)]
struct QueueState {
    ring: OnceCell<IrqLock<Ring>>,
    interrupts: AtomicU64,
}

/// A virtio block device.
pub(crate) struct VirtioBlk {
    geometry: Geometry,
    queues: Vec<&'static QueueState>,
    /// Notifies queues.
    transport: IrqLock<Transport>,
    features: u64,
}

impl VirtioBlk {
    /// Takes the device over, with a queue for each core if it has enough.
    pub(crate) fn new(mut transport: Transport, tables: Tables) -> Result<Arc<Self>, OpenError> {
        let features = setup::negotiate(&mut transport, tables)?;
        let has = |feature| features & feature != 0;
        let config =
            setup::config(&transport, features, thread::cores()).map_err(OpenError::Setup)?;
        let (indirect, event_idx) = (has(features::INDIRECT), has(features::EVENT_IDX));
        let mut queues: Vec<&'static QueueState> = Vec::new();
        let mut depth = 0;
        let most = setup::queues_for(transport.interrupts_left()).ok_or(OpenError::NoInterrupt)?;
        for index in 0..config.queues.min(most) {
            // Handlers live forever, and so do disks.
            let queue: &'static QueueState = Box::leak(Box::default());
            let handler = Box::leak(Box::new(move || queue.interrupted()));
            transport.on_interrupt_at(index as u16, index, handler);
            let ring = Ring::new(&mut transport, index as u16, indirect, event_idx)?;
            depth += ring.depth(indirect);
            let _ = queue.ring.set(IrqLock::new(ring));
            queues.push(queue);
        }
        transport.finish_init();
        let mut blk = Self {
            geometry: Geometry {
                serial: alloc::string::String::new(),
                sectors: config.sectors,
                access: config.access,
                discard_sectors: config.discard_sectors,
                zero_sectors: config.zero_sectors,
                request_bytes: config.request_bytes,
                depth,
                queues: queues.len(),
            },
            queues,
            transport: IrqLock::new(transport),
            features,
        };
        blk.geometry.serial = blk.ask_serial();
        Ok(Arc::new(blk))
    }

    /// Empty where the device knows none.
    fn ask_serial(&self) -> alloc::string::String {
        let mut bytes = [0; SERIAL_LEN];
        match self.submit(header::get_id(), Data::In(NonNull::from(&mut bytes[..]))) {
            Ok(()) => header::serial(&bytes),
            Err(_) => alloc::string::String::new(),
        }
    }

    /// The queue of this core.
    fn queue(&self) -> (u16, &'static QueueState) {
        let index = match self.queues.len() {
            1 => 0,
            queues => thread::current_core() % queues,
        };
        (index as u16, self.queues[index])
    }

    /// Carries a request out; its data is used until this returns.
    fn submit(&self, request: [u8; LEN], data: Data) -> Result<(), BlockError> {
        let (index, queue) = self.queue();
        let Some(ring) = queue.ring.get() else {
            return Err(BlockError::Broken);
        };
        let completion = Completion {
            done: AtomicBool::new(false),
            result: Cell::new(Ok(())),
        };
        let thread = thread::current();
        loop {
            let mut held = ring.lock();
            // SAFETY: this function returns when the request was not added, or
            // when `done` is set; the data is the caller's argument.
            let added = unsafe { held.add(request, data, NonNull::from(&completion), &thread) };
            match added {
                Ok(Added::Quiet) => break,
                Ok(Added::Notify) => {
                    drop(held);
                    self.transport.lock().notify(index);
                    break;
                }
                Err(NotAdded::Broken) => return Err(BlockError::Broken),
                Err(NotAdded::Full) => {
                    held.waits_for_room += 1;
                    held.waiting.push_back(thread.clone());
                    drop(held);
                    thread::park();
                }
            }
        }
        while !completion.done.load(Ordering::Acquire) {
            thread::park();
        }
        completion.result.get()
    }
}

impl QueueState {
    /// Called with interrupts off, on the queue's core.
    fn interrupted(&self) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
        if let Some(ring) = self.ring.get() {
            ring.lock().reap();
        }
    }
}

impl Device for VirtioBlk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn sectors(&self) -> u64 {
        let opened = self.geometry.sectors;
        setup::capacity(&self.transport.lock()).map_or(opened, |now| now.max(opened))
    }

    fn execute(&self, operation: Operation<'_>) -> Result<(), BlockError> {
        let request = header::of(&operation);
        let range = header::range(&operation);
        let data = match operation {
            Operation::Read { into, .. } => Data::In(NonNull::from(into)),
            Operation::Write { from, .. } => Data::Out(NonNull::from(from)),
            // Without the feature every write is durable when it completes
            // (virtio 1.2, 5.2.6.2).
            Operation::Flush if self.features & features::FLUSH == 0 => return Ok(()),
            Operation::Flush => Data::None,
            Operation::Discard { .. } | Operation::WriteZeroes { .. } => {
                Data::Out(NonNull::from(&range[..]))
            }
        };
        self.submit(request, data)
    }

    fn set_cache(&self, cache: Cache) -> Result<(), BlockError> {
        if self.features & features::CONFIG_WCE == 0 {
            return Err(BlockError::Unsupported);
        }
        let wanted = u8::from(cache == Cache::Writeback);
        let mut transport = self.transport.lock();
        let written = transport.write_config_space(features::CONFIG_WRITEBACK, wanted);
        written.map_err(|_| BlockError::Unsupported)?;
        let now = transport.read_config_space::<u8>(features::CONFIG_WRITEBACK);
        // The device has to make durable what was written, and may fail.
        match now {
            Ok(now) if now == wanted => Ok(()),
            _ => Err(BlockError::Io),
        }
    }

    fn watch(&self, changed: &'static Event) -> Result<(), BlockError> {
        let handler = Box::leak(Box::new(move || changed.set()));
        if self.transport.lock().on_config_change(handler) {
            Ok(())
        } else {
            Err(BlockError::Unsupported)
        }
    }

    fn stats(&self) -> DiskStats {
        let mut stats = DiskStats::default();
        for queue in &self.queues {
            stats.interrupts += queue.interrupts.load(Ordering::Relaxed);
            let Some(ring) = queue.ring.get() else {
                continue;
            };
            let ring = ring.lock();
            stats.completions += ring.completions;
            stats.errors += ring.errors;
            stats.notifications += ring.notifications;
            stats.waits_for_room += ring.waits_for_room;
        }
        stats
    }
}
