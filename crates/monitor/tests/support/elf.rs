//! The smallest ELF file with a PVH note (System V ABI; Xen `elfnote.h`).

/// Where the code is loaded, and begins.
pub(crate) const ENTRY: u32 = 0x10_0000;
const CODE_OFFSET: u64 = 0x1000;
const NOTE_OFFSET: u64 = 64 + 2 * 56;
const XEN_ELFNOTE_PHYS32_ENTRY: u32 = 18;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;

/// `code` as an image that begins at its first byte, in 32-bit mode.
pub(crate) fn pvh(code: &[u8]) -> Vec<u8> {
    let note = note();
    let mut file = Vec::new();
    file.extend_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    file.extend_from_slice(&[0; 8]);
    push16(&mut file, &[ET_EXEC, EM_X86_64]);
    push32(&mut file, &[1]);
    push64(&mut file, &[ENTRY.into(), 64, 0]);
    push32(&mut file, &[0]);
    push16(&mut file, &[64, 56, 2, 64, 0, 0]);
    let length = code.len() as u64;
    segment(&mut file, PT_LOAD, CODE_OFFSET, ENTRY.into(), length);
    segment(&mut file, PT_NOTE, NOTE_OFFSET, 0, note.len() as u64);
    file.extend_from_slice(&note);
    file.resize(CODE_OFFSET as usize, 0);
    file.extend_from_slice(code);
    file
}

fn note() -> Vec<u8> {
    let mut note = Vec::new();
    push32(&mut note, &[4, 4, XEN_ELFNOTE_PHYS32_ENTRY]);
    note.extend_from_slice(b"Xen\0");
    push32(&mut note, &[ENTRY]);
    note
}

fn segment(file: &mut Vec<u8>, kind: u32, offset: u64, address: u64, length: u64) {
    push32(file, &[kind, 7]);
    push64(file, &[offset, address, address, length, length, 4]);
}

fn push16(to: &mut Vec<u8>, values: &[u16]) {
    values.iter().for_each(|v| to.extend(v.to_le_bytes()));
}

fn push32(to: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|v| to.extend(v.to_le_bytes()));
}

fn push64(to: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|v| to.extend(v.to_le_bytes()));
}
