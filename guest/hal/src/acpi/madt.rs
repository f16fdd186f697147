//! The multiple APIC description table (ACPI 6.5, 5.2.12).

use super::tables::Tables;
use crate::boot::u32_at;
use crate::cpu::MAX;

const ENTRIES: usize = 44;
const PCAT_COMPAT: u32 = 1;
const LOCAL_APIC: u8 = 0;
const IO_APIC: u8 = 1;
const LOCAL_X2APIC: u8 = 9;
const MAX_IOAPICS: usize = 8;
const ENABLED: u32 = 1;

/// Adds what the table says.
pub(super) fn read(tables: &mut Tables, madt: &[u8]) {
    tables.has_pic = u32_at(madt, 40).unwrap_or(0) & PCAT_COMPAT != 0;
    let mut rest = madt.get(ENTRIES..).unwrap_or(&[]);
    while let [kind, length, ..] = *rest {
        let length = usize::from(length);
        if length < 2 || length > rest.len() {
            return;
        }
        let (entry, after) = rest.split_at(length);
        add(tables, kind, entry);
        rest = after;
    }
}

fn add(tables: &mut Tables, kind: u8, entry: &[u8]) {
    match kind {
        LOCAL_APIC if u32_at(entry, 4).is_some_and(|flags| flags & ENABLED != 0) => {
            add_cpu(tables, u32::from(entry[3]));
        }
        LOCAL_X2APIC if u32_at(entry, 8).is_some_and(|flags| flags & ENABLED != 0) => {
            add_cpu(tables, u32_at(entry, 4).unwrap_or(u32::MAX));
        }
        IO_APIC if tables.ioapics.len() < MAX_IOAPICS => {
            if let (Some(address), Some(first)) = (u32_at(entry, 4), u32_at(entry, 8)) {
                tables.ioapics.push((address, first));
            }
        }
        _ => {}
    }
}

/// IDs from 255 cannot be reached without x2APIC, and 16 CPUs do not need them.
fn add_cpu(tables: &mut Tables, apic_id: u32) {
    let Ok(apic_id) = u8::try_from(apic_id) else {
        return;
    };
    let known = tables.apic_ids[..tables.cpus].contains(&apic_id);
    if apic_id != u8::MAX && !known && tables.cpus < MAX {
        tables.apic_ids[tables.cpus] = apic_id;
        tables.cpus += 1;
    }
}
