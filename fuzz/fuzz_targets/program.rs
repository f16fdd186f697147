//! A program's ELF file and its start file, as the library OS and `tare run` read them.
#![no_main]

use tare_program::elf::Layout;
use tare_program::Start;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(layout) = Layout::parse(bytes) {
        let pages = layout.pages();
        assert!(pages.start < pages.end && layout.memory_bytes() > 0);
        for segment in &layout.segments {
            assert!(!(segment.write && segment.execute));
            assert!(segment.offset + segment.file_bytes <= bytes.len() as u64);
            assert!(pages.start <= segment.pages().start && segment.pages().end <= pages.end);
        }
    }
    if let Ok(start) = Start::parse(bytes) {
        assert!(!start.path.is_empty() && !start.arguments.is_empty());
        // What was read can be written, unless it has become too long.
        drop(start.to_bytes());
    }
});
