//! The setup header, in a bzImage and in the zero page at the same place.

/// Where the header begins, in file and zero page.
pub(super) const START: usize = 0x1f1;
/// Where its place in the zero page ends.
pub(super) const END: usize = 0x290;
/// Where a bzImage's header says how long it is, from [`JUMP_END`].
const JUMP: usize = 0x201;
const JUMP_END: usize = 0x202;
/// "HdrS".
const MAGIC: [u8; 4] = *b"HdrS";
/// Where [`MAGIC`] lies.
const MAGIC_AT: usize = 0x202;
const BOOT_FLAG_AT: usize = 0x1fe;
const BOOT_FLAG: u16 = 0xaa55;
/// Version 2.15, the last one that there is.
const VERSION: u16 = 0x020f;
/// A boot loader without its own number.
const LOADER_UNDEFINED: u8 = 0xff;
const LOADED_HIGH: u8 = 1;

/// The header's bytes at their places, as long as the zero page has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetupHeader([u8; END]);

impl SetupHeader {
    /// The header at the begin of a bzImage; `None` if there is none.
    pub(super) fn of_image(begin: &[u8]) -> Option<Self> {
        let mut header = Self([0; END]);
        let jump = usize::from(*begin.get(JUMP)?);
        let end = (JUMP_END + jump).min(END);
        let bytes = begin.get(START..end)?;
        header.0.get_mut(START..end)?.copy_from_slice(bytes);
        let is_header = end > MAGIC_AT + MAGIC.len()
            && header.u16(BOOT_FLAG_AT) == BOOT_FLAG
            && header.0[MAGIC_AT..MAGIC_AT + 4] == MAGIC;
        is_header.then_some(header)
    }

    /// The header of a kernel that comes without one (vmlinux).
    pub(crate) fn made() -> Self {
        let mut header = Self([0; END]);
        header.put(BOOT_FLAG_AT, &BOOT_FLAG.to_le_bytes());
        header.put(MAGIC_AT, &MAGIC);
        header.put(0x206, &VERSION.to_le_bytes());
        header
    }

    /// What the loader fills in.
    pub(super) fn fill(&mut self, cmdline: u32, cmdline_bytes: u32, initramfs: (u32, u32)) {
        self.put(0x210, &[LOADER_UNDEFINED]);
        let flags = self.0[0x211] | LOADED_HIGH;
        self.put(0x211, &[flags]);
        self.put(0x218, &initramfs.0.to_le_bytes());
        self.put(0x21c, &initramfs.1.to_le_bytes());
        self.put(0x228, &cmdline.to_le_bytes());
        self.put(0x238, &cmdline_bytes.to_le_bytes());
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0[START..]
    }

    pub(super) fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.0[at + index])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
