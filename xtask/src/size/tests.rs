//! Tests on a file that is made here.

use super::*;

const TEXT: u64 = 0x20_0000;
const RODATA: u64 = 0x20_1000;
/// Type, address, offset in the file, bytes, section that goes with it, bytes of an entry.
type SectionRow = (u32, u64, u64, u64, u32, u64);
/// Name, kind (1: data, 2: function), section, address, bytes.
type SymbolRow<'a> = (&'a str, u8, u16, u64, u64);

const SYMBOLS: [SymbolRow<'_>; 6] = [
    (
        "_ZN8tare_tcp4wire5parse17h0123456789abcdefE",
        2,
        1,
        TEXT,
        0x40,
    ),
    // Another name of the same bytes.
    (
        "_ZN8tare_tcp5other5parse17h0123456789abcdefE",
        2,
        1,
        TEXT,
        0x40,
    ),
    ("memcpy", 2, 1, TEXT + 0x40, 0x20),
    // A label.
    (
        "_ZN8tare_tcp5label17h0123456789abcdefE",
        2,
        1,
        TEXT + 0x50,
        0,
    ),
    (
        "_ZN10tare_libos3net4PORT17h0123456789abcdefE",
        1,
        2,
        RODATA,
        0x10,
    ),
    // Takes no bytes of the file.
    (
        "_ZN10tare_libos4heap17h0123456789abcdefE",
        1,
        3,
        RODATA + 0x1000,
        0x800,
    ),
];

/// A file with `.text` of 0x100 bytes, `.rodata` of 0x80, `.bss`, and these symbols.
fn file(symbols: &[SymbolRow<'_>]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    let mut names = vec![0];
    let mut table = vec![0; 24];
    for (name, kind, section, address, bytes) in symbols {
        table.extend((names.len() as u32).to_le_bytes());
        table.extend([*kind, 0]);
        table.extend(section.to_le_bytes());
        table.extend(address.to_le_bytes());
        table.extend(bytes.to_le_bytes());
        names.extend(name.bytes());
        names.push(0);
    }
    let section_names = b"\0.text\0.rodata\0.bss\0.symtab\0.strtab\0.shstrtab\0";
    let text = HEADER + SEGMENT;
    let rodata = text + 0x100;
    let symtab = rodata + 0x80;
    let strtab = symtab + table.len() as u64;
    let shstrtab = strtab + names.len() as u64;
    let headers = shstrtab + section_names.len() as u64;
    let sections: [SectionRow; 7] = [
        (0, 0, 0, 0, 0, 0),
        (1, TEXT, text, 0x100, 0, 0),
        (1, RODATA, rodata, 0x80, 0, 0),
        (8, RODATA + 0x1000, rodata + 0x80, 0x1000, 0, 0),
        (2, 0, symtab, table.len() as u64, 5, 24),
        (3, 0, strtab, names.len() as u64, 0, 0),
        (3, 0, shstrtab, section_names.len() as u64, 0, 0),
    ];
    let mut file = vec![0; headers as usize + sections.len() * 64];
    let mut put = |at: u64, bytes: &[u8]| {
        file[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    };
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &2_u16.to_le_bytes());
    put(18, &62_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &HEADER.to_le_bytes());
    put(40, &headers.to_le_bytes());
    for (at, half) in [(52, 64), (54, 56), (56, 1), (58, 64), (60, 7), (62, 6)] {
        put(at, &(half as u16).to_le_bytes());
    }
    put(HEADER, &1_u32.to_le_bytes());
    put(HEADER + 8, &text.to_le_bytes());
    put(HEADER + 16, &TEXT.to_le_bytes());
    put(HEADER + 32, &0x180_u64.to_le_bytes());
    put(HEADER + 40, &0x2000_u64.to_le_bytes());
    put(symtab, &table);
    put(strtab, &names);
    put(shstrtab, section_names);
    let mut name = 0;
    for (number, row) in sections.iter().enumerate() {
        let (kind, address, offset, bytes, link, entry) = *row;
        let at = headers + number as u64 * 64;
        put(at, &(name as u32).to_le_bytes());
        name += section_names[name..]
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(0)
            + 1;
        put(at + 4, &kind.to_le_bytes());
        put(at + 16, &address.to_le_bytes());
        put(at + 24, &offset.to_le_bytes());
        put(at + 32, &bytes.to_le_bytes());
        put(at + 40, &link.to_le_bytes());
        put(at + 56, &entry.to_le_bytes());
    }
    file
}

#[test]
fn bytes_of_an_image_are_summed_by_section_crate_and_module() {
    let file = file(&SYMBOLS);
    let image = Image::parse(&file).expect("an image");
    let report = report(&image, Detail { depth: 3, top: 9 });
    let has = |line: &str| assert!(report.lines().any(|is| is == line), "{line}\n{report}");
    has(&format!(
        "{} bytes, 384 of them loaded, {} headers, symbols and padding of the file",
        file.len(),
        file.len() - 384
    ));
    has("      256       160  .text");
    has("      128       112  .rodata");
    assert!(
        !report.contains(".bss") && !report.contains(".symtab"),
        "{report}"
    );
    // Each byte once, whatever names it has.
    has("       64     1  tare_tcp");
    has("       64     1  tare_tcp::wire");
    has("       32     1  (no crate)");
    has("       16     1  tare_libos::net");
}

#[test]
fn copies_of_a_function_are_summed_and_its_constants_are_none() {
    let copy = |types, address| (types, 2, 1, address, 0x30);
    let symbols = [
        copy("_RINvCs1_1a4callhEB2_", TEXT),
        copy("_RINvCs1_1a4calltEB2_", TEXT + 0x30),
        ("_RNvCs1_1a5TABLE", 1, 2, RODATA, 0x10),
    ];
    let image = Image::parse(&file(&symbols)).expect("an image");
    let report = report(&image, Detail { depth: 3, top: 9 });
    let copies = report.split("bytes and copies of functions\n").nth(1);
    assert_eq!(copies, Some("       96     2  a::call\n"), "{report}");
    assert!(
        report.contains("       48     1  a::call::<u8>\n"),
        "{report}"
    );
}

#[test]
fn a_list_has_the_largest_rows_only() {
    let image = Image::parse(&file(&SYMBOLS)).expect("an image");
    let report = report(&image, Detail { depth: 1, top: 1 });
    let modules = report.split("bytes and symbols by module\n").nth(1);
    let first = modules.and_then(|rest| rest.split("\n\n").next());
    assert_eq!(first, Some("       64     1  tare_tcp"));
}

#[test]
fn a_file_without_symbols_and_one_that_is_none_are_refused() {
    let error = Image::parse(&file(&[])).expect_err("no symbols");
    assert_eq!(error.to_string(), "no symbols");
    let error = Image::parse(b"#!/bin/sh").expect_err("no ELF");
    assert_eq!(error.to_string(), "not an ELF file of 64 bits");
    for end in 0..file(&SYMBOLS).len() {
        // An error or less of it, never a panic.
        let _ = Image::parse(&file(&SYMBOLS)[..end]);
    }
}
