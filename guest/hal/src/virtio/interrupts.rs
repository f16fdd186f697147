//! How a device's interrupts reach their handlers.

/// An interrupt handler: called with interrupts off on the CPU to which the
/// device's interrupts go (CPU 0 unless asked otherwise). It must not block.
pub type Handler = &'static (dyn Fn() + Sync);

/// A device's way to interrupt.
#[derive(Debug)]
pub(super) enum Interrupts {
    /// None: the host, or a device whose driver polls.
    #[cfg(not(target_os = "none"))]
    None,
    /// A vector for each queue.
    #[cfg(target_os = "none")]
    Msix(msix::PerQueue),
    /// One line for all queues.
    #[cfg(target_os = "none")]
    Line(line::Shared),
}

impl Interrupts {
    /// Calls `handler` when the device signals `queue`, on that CPU if the
    /// queue has its own vector.
    pub(super) fn handle(&mut self, queue: u16, cpu: usize, handler: Handler) {
        match self {
            #[cfg(not(target_os = "none"))]
            Self::None => {
                let _ = (queue, cpu, handler);
            }
            #[cfg(target_os = "none")]
            Self::Msix(msix) => msix.handle(queue, cpu, handler),
            #[cfg(target_os = "none")]
            Self::Line(line) => line.handle(handler),
        }
    }

    /// How many more queues of this machine's devices can have an interrupt.
    pub(super) fn left(&self) -> usize {
        match self {
            #[cfg(target_os = "none")]
            Self::Msix(_) => crate::irq::left(),
            _ => usize::MAX,
        }
    }
}

#[cfg(target_os = "none")]
pub(super) mod msix {
    //! MSI-X: no acknowledgement, no sharing.

    use super::Handler;
    use crate::irq;
    use crate::pci::Msix;
    use crate::smp;

    /// "No vector" in a device's vector registers (virtio 1.2, 4.1.4.3).
    pub(in crate::virtio) const NO_VECTOR: u16 = 0xffff;

    /// Entries handed out so far.
    #[derive(Debug)]
    pub(in crate::virtio) struct PerQueue {
        table: Msix,
        /// The queue that has the entry of this index.
        queues: alloc::vec::Vec<u16>,
    }

    impl PerQueue {
        /// No queue has an entry.
        pub(in crate::virtio) fn new(table: Msix) -> Self {
            Self {
                table,
                queues: alloc::vec::Vec::new(),
            }
        }

        /// Gives the queue an entry, and the entry a vector on that CPU.
        pub(in crate::virtio) fn handle(&mut self, queue: u16, cpu: usize, handler: Handler) {
            let entry = self.queues.len() as u16;
            let routed = irq::allocate(handler)
                .is_some_and(|vector| self.table.route(entry, vector, smp::apic_id(cpu)));
            if routed {
                self.queues.push(queue);
            } else {
                log::error!("no interrupt vector is left for queue {queue}");
            }
        }

        /// The entry for `queue`.
        pub(in crate::virtio) fn entry(&self, queue: u16) -> u16 {
            let position = self.queues.iter().position(|&owner| owner == queue);
            position.map_or(NO_VECTOR, |entry| entry as u16)
        }
    }
}

#[cfg(target_os = "none")]
pub(super) mod line {
    //! A line: read the interrupt status, acknowledge it, call all handlers.
    //!
    //! Lines are edges here (Linux and Firecracker agree), so the handler goes
    //! on until the status is clear: else a signal between its read and its
    //! acknowledgement would keep the line up and raise no edge.

    #![allow(unsafe_code)]

    use alloc::boxed::Box;
    use alloc::vec::Vec;

    use super::Handler;
    use crate::apic::ioapic;
    use crate::irq;
    use crate::lock::IrqLock;
    use crate::smp;

    const INTERRUPT_STATUS: u64 = 0x60;
    const INTERRUPT_ACK: u64 = 0x64;
    /// Of the status: the device's configuration has changed.
    const CONFIG_CHANGE: u32 = 2;
    /// Rounds before a device that never stops is left alone until next time.
    const MAX_ROUNDS: u32 = 64;

    /// The handlers of one device.
    #[derive(Debug)]
    pub(in crate::virtio) struct Shared {
        registers: u64,
        line: u32,
        handlers: Option<&'static IrqLock<Handlers>>,
    }

    #[derive(Debug)]
    struct Handlers {
        queues: Vec<Callback>,
        config: Option<Callback>,
    }

    #[derive(Clone, Copy)]
    struct Callback(Handler);

    impl core::fmt::Debug for Callback {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("Callback")
        }
    }

    impl Shared {
        /// For the device whose mapped registers are at `registers`.
        pub(in crate::virtio) fn new(registers: u64, line: u32) -> Self {
            Self {
                registers,
                line,
                handlers: None,
            }
        }

        /// Adds a handler; the first one switches the line on.
        pub(in crate::virtio) fn handle(&mut self, handler: Handler) {
            if let Some(handlers) = self.handlers {
                handlers.lock().queues.push(Callback(handler));
                return;
            }
            let handlers = &*Box::leak(Box::new(IrqLock::new(Handlers {
                queues: alloc::vec![Callback(handler)],
                config: None,
            })));
            self.handlers = Some(handlers);
            let registers = self.registers;
            let dispatch = Box::leak(Box::new(move || serve(registers, handlers)));
            let routed = irq::allocate(dispatch)
                .is_some_and(|vector| ioapic::route(self.line, vector, smp::apic_id(0)));
            if !routed {
                log::error!("interrupt line {} cannot be used", self.line);
            }
        }

        /// Sets the handler of changes of the configuration. False if there is one, or if no
        /// queue has switched the line on.
        pub(in crate::virtio) fn handle_config(&mut self, handler: Handler) -> bool {
            let Some(handlers) = self.handlers else {
                return false;
            };
            let mut handlers = handlers.lock();
            let is_free = handlers.config.is_none();
            if is_free {
                handlers.config = Some(Callback(handler));
            }
            is_free
        }
    }

    fn serve(registers: u64, handlers: &IrqLock<Handlers>) {
        for _ in 0..MAX_ROUNDS {
            // SAFETY: 1. `discover::open_mmio` mapped the registers, and mappings are never
            //    removed. 2. Their address is a multiple of 4 (`MmioWord::new`), and the status is
            //    a register of 32 bits (virtio 1.2, 4.2.2).
            let status = unsafe { ((registers + INTERRUPT_STATUS) as *const u32).read_volatile() };
            if status == 0 {
                return;
            }
            // SAFETY: 1. The registers are mapped and aligned, as for the status. 2. The write
            //    acknowledges what was read and changes no memory.
            unsafe { ((registers + INTERRUPT_ACK) as *mut u32).write_volatile(status) };
            let handlers = handlers.lock();
            for callback in &handlers.queues {
                (callback.0)();
            }
            if let (true, Some(config)) = (status & CONFIG_CHANGE != 0, handlers.config) {
                (config.0)();
            }
        }
    }
}
