//! Guest hardware: boot, paging, traps, APIC, clocks, ports, DMA; the guest's unsafe code.

#![cfg_attr(target_os = "none", no_std)]
