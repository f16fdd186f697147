//! Image to guest memory: ELF with a PVH note, boot information, ACPI tables.
