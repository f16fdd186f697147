//! The shared object that every program finds mapped (`vdso(7)`): through it C libraries and Go
//! read clocks without a system call. One page, made at the start: ELF's headers, a symbol table
//! and its hash table (System V ABI, 4 and 5). Where the functions are the library OS's, symbols
//! lead out of the page, by addresses that wrap around; else their code follows the tables. All have
//! Linux's one version, which Go does not do without.

use alloc::vec::Vec;

/// Bytes of the headers and entries of ELF64.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SYMBOL: usize = 24;
const DYNAMIC: usize = 16;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const READ: u32 = 4;
const EXECUTE: u32 = 1;
/// Alignment of code behind the tables.
const CODE_ALIGN: usize = 16;

const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;

const NAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";
/// Its number: 1 is the object itself.
const VERSION_NUMBER: u16 = 2;
/// Bytes of a version's definition with its name.
const DEFINITION: usize = 28;
/// `STB_GLOBAL`, `STT_FUNC`.
const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
/// A section that does not exist, but is not `SHN_UNDEF`.
const DEFINED: u16 = 1;

/// Functions of the object by name.
#[derive(Clone, Debug)]
pub(crate) enum Functions {
    /// And address.
    Elsewhere([(&'static str, u64); 3]),
    /// And place in this code.
    Within([(&'static str, u64); 3], Vec<u8>),
}

/// The object for the address `base`.
pub(crate) fn image(base: u64, object: &Functions) -> Vec<u8> {
    let (functions, code): (_, &[u8]) = match object {
        Functions::Elsewhere(functions) => (functions, &[]),
        Functions::Within(functions, code) => (functions, code),
    };
    let symbols = functions.len() + 1;
    let symbols_at = HEADER + 2 * PROGRAM_HEADER;
    let hash_at = symbols_at + symbols * SYMBOL;
    // One bucket: a chain of all.
    let hash_words = 2 + 1 + symbols;
    let version_at = hash_at + hash_words * 4;
    let versions_at = version_at + DEFINITION;
    let dynamic_at = (versions_at + symbols * 2).next_multiple_of(8);
    let strings_at = dynamic_at + 10 * DYNAMIC;

    let mut strings = Vec::from([0]);
    let mut name = |name: &str| {
        let at = strings.len();
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
        at as u64
    };
    let own_name = name(NAME);
    let version = name(VERSION);
    let names: Vec<u64> = functions.iter().map(|(it, _)| name(it)).collect();
    let code_at = match object {
        Functions::Elsewhere(_) => strings_at + strings.len(),
        Functions::Within(..) => (strings_at + strings.len()).next_multiple_of(CODE_ALIGN),
    };
    let bytes = (code_at + code.len()) as u64;

    let mut out = Image(Vec::new());
    out.0
        .extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // A shared object for x86-64.
    out.halves([3, 62]).words([1]).longs([0, HEADER as u64, 0]);
    out.words([0]);
    out.halves([HEADER as u16, PROGRAM_HEADER as u16, 2, 64, 0, 0]);
    out.words([PT_LOAD, READ | EXECUTE])
        .longs([0, 0, 0, bytes, bytes, 4096]);
    let dynamic = (dynamic_at as u64, (strings_at - dynamic_at) as u64);
    out.words([PT_DYNAMIC, READ]);
    out.longs([dynamic.0, dynamic.0, dynamic.0, dynamic.1, dynamic.1, 8]);

    out.longs([0; SYMBOL / 8]);
    for ((_, address), name) in functions.iter().zip(&names) {
        out.words([*name as u32]);
        out.0.extend([GLOBAL_FUNCTION, 0]);
        let value = match object {
            Functions::Elsewhere(_) => address.wrapping_sub(base),
            Functions::Within(..) => code_at as u64 + address,
        };
        out.halves([DEFINED]).longs([value, 0]);
    }

    let last = functions.len() as u32;
    out.words([1, symbols as u32, last, 0]);
    // Each leads to the one before it; 0 ends the chain.
    out.words((1..=last).map(|symbol| symbol - 1));

    out.halves([1, 0, VERSION_NUMBER, 1]);
    out.words([hash(VERSION), 20, 0, version as u32, 0]);
    out.halves([0]);
    out.halves(functions.iter().map(|_| VERSION_NUMBER));
    out.0.resize(dynamic_at, 0);

    out.longs([DT_HASH, hash_at as u64, DT_STRTAB, strings_at as u64]);
    out.longs([DT_SYMTAB, symbols_at as u64]);
    out.longs([DT_STRSZ, strings.len() as u64, DT_SYMENT, SYMBOL as u64]);
    out.longs([DT_VERSYM, versions_at as u64]);
    out.longs([DT_VERDEF, version_at as u64, DT_VERDEFNUM, 1]);
    out.longs([DT_SONAME, own_name, 0, 0]);
    out.0.extend(strings);
    out.0.resize(code_at, 0);
    out.0.extend(code);
    out.0
}

/// A name's hash (System V ABI, 5).
fn hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

struct Image(Vec<u8>);

impl Image {
    fn halves(&mut self, values: impl IntoIterator<Item = u16>) -> &mut Self {
        self.0.extend(values.into_iter().flat_map(u16::to_le_bytes));
        self
    }

    fn words(&mut self, values: impl IntoIterator<Item = u32>) -> &mut Self {
        self.0.extend(values.into_iter().flat_map(u32::to_le_bytes));
        self
    }

    fn longs(&mut self, values: impl IntoIterator<Item = u64>) -> &mut Self {
        self.0.extend(values.into_iter().flat_map(u64::to_le_bytes));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x6000_0000_0000;
    const FUNCTIONS: [(&str, u64); 3] = [
        ("__vdso_clock_gettime", 0x20_1234),
        ("__vdso_gettimeofday", 0x20_5678),
        ("__vdso_time", BASE + 0x77),
    ];

    fn long(image: &[u8], at: u64) -> u64 {
        u64::from_le_bytes(*image[at as usize..].first_chunk().expect("in the image"))
    }

    fn word(image: &[u8], at: u64) -> u32 {
        u32::from_le_bytes(*image[at as usize..].first_chunk().expect("in the image"))
    }

    fn half(image: &[u8], at: u64) -> u16 {
        u16::from_le_bytes(*image[at as usize..].first_chunk().expect("in the image"))
    }

    /// Finds a symbol as musl does (`src/internal/vdso.c`).
    fn find(image: &[u8], name: &str) -> Option<u64> {
        let header = (0..u64::from(image[56])).map(|at| long(image, 32) + at * 56);
        let dynamic = header
            .into_iter()
            .find(|at| word(image, *at) == PT_DYNAMIC)?;
        let entries = long(image, dynamic + 8);
        let value = |tag: u64| {
            let mut entry = (0..).map(|at| entries + at * 16);
            let found = entry.find(|at| [tag, 0].contains(&long(image, *at)))?;
            (long(image, found) == tag).then(|| long(image, found + 8))
        };
        let (strings, symbols) = (value(DT_STRTAB)?, value(DT_SYMTAB)?);
        let hash = value(DT_HASH)?;
        let (buckets, count) = (word(image, hash), word(image, hash + 4));
        assert_eq!(buckets, 1);
        let text = |at: u64| {
            let bytes = &image[(strings + at) as usize..];
            let end = bytes.iter().position(|byte| *byte == 0)?;
            core::str::from_utf8(&bytes[..end]).ok()
        };
        assert_eq!(text(value(DT_SONAME)?), Some(NAME));
        // By the chain, as glibc and Go go.
        let mut symbol = u64::from(word(image, hash + 8));
        while symbol != 0 {
            assert!(symbol < u64::from(count));
            let at = symbols + symbol * 24;
            if text(u64::from(word(image, at))) == Some(name) {
                assert_eq!(image[at as usize + 4], GLOBAL_FUNCTION);
                let number = half(image, value(DT_VERSYM)? + symbol * 2);
                let version = value(DT_VERDEF)?;
                assert_eq!(
                    (half(image, version + 2), half(image, version + 4)),
                    (0, number)
                );
                assert_eq!(word(image, version + 8), 0x3ae_75f6, "as Go has it");
                let named = version + u64::from(word(image, version + 12));
                assert_eq!(text(u64::from(word(image, named))), Some(VERSION));
                return Some(BASE.wrapping_add(long(image, at + 8)));
            }
            symbol = u64::from(word(image, hash + 12 + symbol * 4));
        }
        None
    }

    #[test]
    fn each_function_is_found_at_its_address() {
        let image = image(BASE, &Functions::Elsewhere(FUNCTIONS));
        assert!(image.len() <= 4096);
        for (name, address) in FUNCTIONS {
            assert_eq!(find(&image, name), Some(address));
        }
        assert_eq!(find(&image, "__vdso_getcpu"), None);
    }

    #[test]
    fn each_function_is_found_in_the_code_that_follows() {
        let code: Vec<u8> = (0..200).collect();
        let places = [
            (FUNCTIONS[0].0, 0),
            (FUNCTIONS[1].0, 64),
            (FUNCTIONS[2].0, 192),
        ];
        let image = image(BASE, &Functions::Within(places, code.clone()));
        for (name, place) in places {
            let address = find(&image, name).expect("it is in the table");
            let rest = &image[(address - BASE) as usize..];
            assert_eq!((rest, (address - place) % 16), (&code[place as usize..], 0));
        }
        assert_eq!(long(&image, long(&image, 32) + 32), image.len() as u64);
    }

    #[test]
    fn its_segments_hold_all_of_it() {
        let image = image(BASE, &Functions::Elsewhere(FUNCTIONS));
        let load = long(&image, 32);
        assert_eq!(word(&image, load), PT_LOAD);
        assert_eq!(long(&image, load + 32), image.len() as u64);
        let dynamic = load + 56;
        let end = long(&image, dynamic + 8) + long(&image, dynamic + 32);
        assert_eq!(long(&image, end - 16), 0, "the last entry ends the list");
        assert!(end <= image.len() as u64);
    }
}
