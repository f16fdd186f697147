//! Images that are not raw: recognised by their first bytes, so that they can
//! be refused with a name. A guess from a guest's bytes never decides how
//! they are read.

/// Bytes that [`of`] looks at.
pub(super) const LOOKED_AT: usize = 512;

/// The format's name, unless it may be raw.
pub(super) fn of(start: &[u8]) -> Option<&'static str> {
    let magics: [(usize, &[u8], &'static str); 7] = [
        (0, b"QFI\xfb", "qcow2"),
        (0, b"QED\0", "QED"),
        (0, b"KDMV", "VMDK"),
        (0, b"# Disk DescriptorFile", "VMDK"),
        (0, b"conectix", "VHD"),
        (0, b"vhdxfile", "VHDX"),
        (0x40, b"\x7f\x10\xda\xbe", "VDI"),
    ];
    magics.into_iter().find_map(|(at, magic, name)| {
        let there = start.get(at..)?.starts_with(magic);
        there.then_some(name)
    })
}
