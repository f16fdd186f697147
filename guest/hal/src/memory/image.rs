//! The image's own sections.

#![allow(unsafe_code)]

use core::ops::Range;

unsafe extern "C" {
    static tare_text_start: u8;
    static tare_rodata_start: u8;
    static tare_data_start: u8;
    static tare_image_end: u8;
}

/// The image's sections as address ranges.
pub(crate) struct Image {
    /// Code.
    pub(crate) text: Range<u64>,
    /// Constants.
    pub(crate) rodata: Range<u64>,
    /// Everything writable.
    pub(crate) data: Range<u64>,
}

impl Image {
    /// Where the linker put them.
    pub(crate) fn sections() -> Self {
        let text = (&raw const tare_text_start).addr() as u64;
        let rodata = (&raw const tare_rodata_start).addr() as u64;
        let data = (&raw const tare_data_start).addr() as u64;
        let end = (&raw const tare_image_end).addr() as u64;
        Self {
            text: text..rodata,
            rodata: rodata..data,
            data: data..end,
        }
    }
}
