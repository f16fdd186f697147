//! The BPF programs of `bpf/kvm.bpf.c` and where they are attached.

use std::fs;

use super::gate_words::{GateMap as _, Words};
use super::slices;
use super::weighted::GROUPS;
use crate::Unavailable;
use crate::bpf::{Object, Point};
use crate::vm::Vm;

/// Raw trace points; each has a program `on_NAME`.
const RAW: &[(&str, &str)] = &[
    ("sched_waking", "on_sched_waking"),
    ("sched_switch", "on_sched_switch"),
    ("kvm_msr", "on_kvm_msr"),
    ("kvm_pio", "on_kvm_pio"),
    ("kvm_mmio", "on_kvm_mmio"),
    ("kvm_fast_mmio", "on_kvm_fast_mmio"),
    ("kvm_apic", "on_kvm_apic"),
    ("kvm_cpuid", "on_kvm_cpuid"),
    ("kvm_hypercall", "on_kvm_hypercall"),
    ("kvm_userspace_exit", "on_kvm_userspace_exit"),
    ("kvm_entry", "on_kvm_entry"),
    ("kvm_set_irq", "on_kvm_set_irq"),
    ("kvm_pic_set_irq", "on_kvm_pic_set_irq"),
    ("kvm_msi_set_irq", "on_kvm_msi_set_irq"),
    ("kvm_apic_ipi", "on_kvm_apic_ipi"),
    ("kvm_apic_accept_irq", "on_kvm_apic_accept_irq"),
    ("kvm_eoi", "on_kvm_eoi"),
    ("kvm_pv_eoi", "on_kvm_pv_eoi"),
    ("kvm_vcpu_wakeup", "on_kvm_vcpu_wakeup"),
];
/// The exit's reason is in the record only, not among the arguments.
const EXIT: Point<'static> = Point::Record {
    category: "kvm",
    event: "kvm_exit",
    program: "on_kvm_exit",
};
const FORMATS: [&str; 2] = [
    "/sys/kernel/tracing/events/kvm/kvm_exit/format",
    "/sys/kernel/debug/tracing/events/kvm/kvm_exit/format",
];
/// Words of `struct vm`, `struct value` and `struct thread`, and of the last from `in_ns` on, as
/// of `struct task_record`.
const VM_WORDS: usize = 18;
pub(super) const VALUE_WORDS: usize = 10 + GROUPS;
pub(super) const COUNTED_WORDS: usize = 9 + GROUPS;
pub(super) const THREAD_WORDS: usize = 25 + COUNTED_WORDS;

/// What was loaded.
pub(super) struct Loaded {
    pub(super) object: Option<Object>,
    /// Where its programs can be attached.
    pub(super) points: Vec<Point<'static>>,
    pub(super) missing: Vec<Unavailable>,
}

/// Loads the object, some maps with other numbers of entries, names the machines, then attaches.
pub(super) fn load(vms: &[Vm], entries: &[(&'static str, u32)]) -> Loaded {
    let mut object = match object(entries) {
        Ok(object) => object,
        Err(unavailable) => {
            return Loaded {
                object: None,
                points: Vec::new(),
                missing: vec![unavailable],
            };
        }
    };
    // Nothing is counted until the window begins ([`super::gate::Gate::open`]).
    object.write(Words::closed());
    let mut missing: Vec<_> = vms
        .iter()
        .filter_map(|vm| watch(&mut object, vm.pid).err())
        .collect();
    let raw = RAW
        .iter()
        .map(|(event, program)| Point::raw(event, program));
    let mut points = Vec::new();
    for point in raw.chain([EXIT]) {
        let refused = object.attach(&[point]);
        if refused.is_empty() {
            points.push(point);
        }
        missing.extend(refused);
    }
    Loaded {
        object: Some(object),
        points,
        missing,
    }
}

fn object(entries: &[(&'static str, u32)]) -> Result<Object, Unavailable> {
    let image = crate::bpf_image!("kvm.bpf.o");
    Object::load_sized(image, &globals(), entries)
}

/// The object without its programs, for scripts.
#[cfg(test)]
pub(super) fn unattached() -> Result<Object, Unavailable> {
    object(&[])
}

/// Counts for this process from now on.
pub(super) fn watch(object: &mut Object, pid: u32) -> Result<(), Unavailable> {
    object.insert("vms", pid, [0; VM_WORDS])
}

/// Counts no more for it.
pub(super) fn forget(object: &mut Object, pid: u32) {
    object.remove::<VM_WORDS>("vms", pid);
    object.retain::<3, VALUE_WORDS>("counts", |[ids, ..], _| *ids as u32 != pid);
}

/// Counts what this thread does for process `pid`.
pub(super) fn watch_thread(object: &mut Object, pid: u32, tid: u32) {
    if object.get::<THREAD_WORDS>("threads", tid).is_none() {
        let mut thread = [0; THREAD_WORDS];
        thread[0] = pid.into();
        // A full map is counted by the programs.
        let _ = object.insert("threads", tid, thread);
    }
}

/// No more, since it ended.
pub(super) fn forget_thread(object: &mut Object, tid: u32) {
    object.remove::<THREAD_WORDS>("threads", tid);
}

/// Kinds of exit that were counted together, so far.
pub(super) fn overflowed(object: &Object, pid: u32) -> u64 {
    let vm = object.get::<VM_WORDS>("vms", pid);
    vm.map_or(0, |[_, overflowed, ..]| overflowed)
}

/// Counts that found the map full, so far.
pub(super) fn lost(object: &Object) -> u64 {
    object.word("lost", 0).unwrap_or(0)
}

/// What the programs get to know of this kernel: where its record of `kvm_exit` has its fields,
/// and its tick.
fn globals() -> Vec<(&'static str, u32)> {
    let format = FORMATS
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
        .unwrap_or_default();
    [
        ("exit_reason_offset", "exit_reason"),
        ("exit_isa_offset", "isa"),
    ]
    .into_iter()
    .filter_map(|(global, field)| Some((global, offset(&format, field)?)))
    .chain([(
        "tick_ns",
        u32::try_from(slices::tick_ns()).unwrap_or(u32::MAX),
    )])
    .collect()
}

/// The offset of a field in a `format` file.
fn offset(format: &str, field: &str) -> Option<u32> {
    let ends = format!(" {field};");
    let line = format.lines().find(|line| line.contains(&ends))?;
    let (_, rest) = line.split_once("offset:")?;
    rest.split(';').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_a_format() {
        let format = "\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\n\tfield:u32 isa;\toffset:24;\tsize:4;\n";
        assert_eq!(offset(format, "exit_reason"), Some(8));
        assert_eq!(offset(format, "isa"), Some(24));
        assert_eq!(offset(format, "rip"), None);
        assert_eq!(offset("u32 isa;", "isa"), None);
    }
}
