//! Recognises images that are not raw by their first bytes, so that an error can name the format.
//! How an image is read never depends on such a guess from a guest's bytes.

/// Bytes that [`of`] looks at.
pub(super) const LOOKED_AT: usize = 512;

/// The format's name; `None` if the image may be raw.
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
