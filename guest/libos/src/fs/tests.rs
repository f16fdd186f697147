use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::cpio::{self, Archive, ArchiveError, EntryKind, HEADER_LEN, Header, TRAILER};
use super::tree::Tree;

const FILE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;

/// Packs entries (name, mode, content) as `cpio -o -H newc` does.
fn pack(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(name, mode, data) in entries.iter().chain([&(TRAILER, 0, &[][..])]) {
        let fields = [
            1,
            mode,
            0,
            0,
            1,
            1_700_000_000,
            data.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        out.extend_from_slice(b"070701");
        for field in fields {
            out.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

#[test]
fn finds_files_by_any_spelling_of_their_path() {
    let archive = pack(&[
        (".", DIRECTORY, b""),
        ("./index.html", FILE, b"<p>hello"),
        ("css", DIRECTORY, b""),
        ("css/a.css", FILE, b"a"),
    ]);
    let tree = Tree::build(&archive);
    assert_eq!(tree.error(), None);
    for path in ["index.html", "/index.html", "./index.html", "//index.html"] {
        assert_eq!(tree.lookup(path).unwrap().data, b"<p>hello", "{path}");
    }
    assert_eq!(tree.lookup("/css/").unwrap().kind, EntryKind::Directory);
    assert_eq!(tree.lookup("").unwrap().kind, EntryKind::Directory);
    assert_eq!(tree.lookup("css/a.css").unwrap().modified_s, 1_700_000_000);
    for path in ["css/b", "css/../index.html", "INDEX.HTML", "css/a.css/x"] {
        assert!(tree.lookup(path).is_none(), "{path}");
    }
}

#[test]
fn directories_that_are_left_out_exist() {
    let archive = pack(&[("a/b/c/file", FILE, b"x"), ("a/b/other", FILE, b"y")]);
    let tree = Tree::build(&archive);
    for path in ["a", "a/b", "a/b/c"] {
        assert_eq!(
            tree.lookup(path).unwrap().kind,
            EntryKind::Directory,
            "{path}"
        );
    }
    assert_eq!(tree.entries().len(), 6);
}

#[test]
fn a_thousand_files_are_all_found() {
    let names: Vec<_> = (0..1000).map(|i| format!("d{}/f{i}", i % 7)).collect();
    let entries: Vec<_> = names
        .iter()
        .map(|n| (n.as_str(), FILE, n.as_bytes()))
        .collect();
    let archive = pack(&entries);
    let tree = Tree::build(&archive);
    for name in &names {
        assert_eq!(tree.lookup(name).unwrap().data, name.as_bytes());
    }
}

#[test]
fn later_entries_and_later_archives_win() {
    let mut archive = pack(&[("a", FILE, b"old"), ("a", FILE, b"new")]);
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive.extend(pack(&[("b", FILE, b"second")]));
    let tree = Tree::build(&archive);
    assert_eq!(tree.lookup("a").unwrap().data, b"new");
    assert_eq!(tree.lookup("b").unwrap().data, b"second");
}

#[test]
fn links_and_odd_names_are_never_content() {
    let archive = pack(&[
        ("link", LINK, b"/etc/passwd"),
        ("../up", FILE, b"x"),
        ("ok", FILE, b"y"),
    ]);
    let tree = Tree::build(&archive);
    let link = tree.lookup("link").unwrap();
    assert_eq!(
        (link.kind, link.data),
        (EntryKind::Link, b"/etc/passwd".as_slice())
    );
    assert!(tree.lookup("../up").is_none());
    assert!(tree.lookup("ok").is_some());
}

#[test]
fn an_archive_that_breaks_off_keeps_what_came_before() {
    let archive = pack(&[("first", FILE, b"1"), ("second", FILE, b"22222222")]);
    let second = archive.len() - 2 * HEADER_LEN - 40;
    let tree = Tree::build(&archive[..second + 20]);
    assert!(tree.lookup("first").is_some());
    assert!(matches!(tree.error(), Some(ArchiveError::Truncated(_))));
    assert_eq!(Tree::build(b"gzip?").error(), Some(ArchiveError::Magic(0)));
    assert_eq!(Tree::build(b"").error(), None);
    assert_eq!(Tree::build(&[0; 700]).error(), None);
}

#[test]
fn fields_must_be_hexadecimal() {
    for bad in [b'g', b' ', b'+', b'/', b':', b'@', b'`', b'G', 0, 0xff] {
        let mut archive = pack(&[("x", FILE, b"")]);
        archive[6 + 8 + 3] = bad;
        let error = Archive::parse(&archive).next().unwrap();
        assert_eq!(error, Err(ArchiveError::Digit(0)), "{bad:#x}");
    }
    let mut archive = pack(&[("x", FILE, b"")]);
    archive.make_ascii_lowercase();
    assert!(Archive::parse(&archive).next().unwrap().is_ok());
}

#[test]
fn a_files_content_may_lie_elsewhere_in_the_archive() {
    // The numbers of a device, in a header's place.
    let read = |mode, numbers: &str| {
        let mut archive = pack(&[("a", mode, b""), ("b", FILE, &[7; 5000])]);
        archive[78..94].copy_from_slice(numbers.as_bytes());
        let data = Archive::parse(&archive)
            .next()
            .unwrap()
            .map(|entry| entry.data.len());
        (data, archive.len())
    };
    assert_eq!(read(FILE, "0000000000000000").0, Ok(0));
    assert_eq!(read(FILE, "0000000100000100").0, Ok(0x100));
    let (to_the_end, length) = read(FILE, "0000000100000000");
    assert_eq!(to_the_end, Ok(0));
    let rest = length - 4096;
    assert_eq!(read(FILE, &format!("00000001{rest:08x}")).0, Ok(rest));
    let cut = Err(ArchiveError::Truncated(0));
    for numbers in [
        format!("00000001{:08x}", rest + 1),
        "ffffffffffffffff".into(),
        "0000000200000001".into(),
        "x000000100000001".into(),
    ] {
        assert_eq!(read(FILE, &numbers).0, cut, "{numbers}");
    }
    // Devices have such numbers.
    assert_eq!(read(0o020_644, "0000000500000001").0, Ok(0));
    assert_eq!(read(DIRECTORY, "0000000500000001").0, Ok(0));
}

#[test]
fn only_files_with_other_names_have_a_number() {
    // Inode number and number of names, in a header's places.
    let numbered = |mode, inode: &str, links: &str| {
        let mut archive = pack(&[("a", mode, b"")]);
        archive[6..14].copy_from_slice(inode.as_bytes());
        archive[38..46].copy_from_slice(links.as_bytes());
        Archive::parse(&archive).next().unwrap().unwrap().inode
    };
    assert_eq!(numbered(FILE, "0000001f", "00000001"), None);
    assert_eq!(numbered(FILE, "0000001f", "00000002"), Some(0x1f));
    assert_eq!(numbered(DIRECTORY, "0000001f", "00000002"), None);
    assert_eq!(numbered(FILE, "not hexa", "00000002"), None);
}

#[test]
fn a_header_by_itself_says_what_its_entry_is() {
    for (mode, kind) in [
        (FILE, EntryKind::File),
        (DIRECTORY, EntryKind::Directory),
        (LINK, EntryKind::Link),
        (0o010_644, EntryKind::Other),
    ] {
        let mut archive = pack(&[("./a/b", mode, b"12345")]);
        let header = Header::parse(archive.first_chunk().unwrap()).unwrap();
        assert_eq!((header.kind(), header.modified_s), (kind, 1_700_000_000));
        assert_eq!((header.len, header.name_len), (5, 6));
        let name = &archive[HEADER_LEN..][..header.name_len];
        assert_eq!(cpio::path(name), Some("a/b"));
        archive[0] = b'1';
        assert_eq!(Header::parse(archive.first_chunk().unwrap()), None);
    }
    for nothing in [
        &b"TRAILER!!!\0"[..],
        b"a",
        b"\0",
        b"a\0b\0",
        b"../a\0",
        b"\xff\0",
    ] {
        assert_eq!(cpio::path(nothing), None, "{nothing:?}");
    }
}

#[test]
fn lengths_beyond_the_end_do_not_overflow() {
    for (field, value) in [(6, "FFFFFFFF"), (11, "FFFFFFFF"), (11, "00000000")] {
        let mut archive = pack(&[("x", FILE, b"data")]);
        let at = 6 + field * 8;
        archive[at..at + 8].copy_from_slice(value.as_bytes());
        for entry in Archive::parse(&archive).flatten() {
            assert!(entry.data.len() <= archive.len());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = Tree::build(&bytes).entries().len();
    }

    #[test]
    fn damage_never_panics_and_always_ends(
        at in 0usize..700, byte in any::<u8>(), len in 0usize..700,
    ) {
        let mut archive = pack(&[
            ("a", DIRECTORY, b""), ("a/b", FILE, b"content"), ("c", FILE, &[9; 100]),
        ]);
        if let Some(slot) = archive.get_mut(at) { *slot = byte; }
        archive.truncate(len.min(archive.len()));
        let items = Archive::parse(&archive).count();
        prop_assert!(items <= archive.len() / HEADER_LEN + 1);
    }

    #[test]
    fn what_is_packed_is_found(
        files in prop::collection::btree_map("[a-z]{1,9}(/[a-z]{1,20})?", prop::collection::vec(any::<u8>(), 0..40), 0..12)
    ) {
        let entries: Vec<_> = files.iter().map(|(n, d)| (n.as_str(), FILE, d.as_slice())).collect();
        let archive = pack(&entries);
        let tree = Tree::build(&archive);
        for (name, data) in &files {
            prop_assert_eq!(tree.lookup(name).unwrap().data, data.as_slice());
        }
    }
}

#[test]
fn directories_list_their_own_entries_only() {
    let archive = pack(&[
        ("index.html", FILE, b"i"),
        ("css/a.css", FILE, b"a"),
        ("css/deep/b.css", FILE, b"b"),
    ]);
    super::mount(vec![archive].remove(0).leak());
    let names = |path| -> Vec<_> {
        super::read_dir(path)
            .unwrap()
            .map(|entry| entry.file_name().to_owned())
            .collect()
    };
    assert_eq!(names("/"), ["index.html", "css"]);
    assert_eq!(names("css"), ["a.css", "deep"]);
    assert!(super::read_dir("index.html").is_err());
    assert_eq!(super::read("/css/a.css").unwrap(), b"a");
    assert!(super::read("/css").is_err());
}

#[test]
fn a_file_is_sought_and_read_through_embedded_io() {
    use embedded_io::{BufRead, Read, Seek, SeekFrom};

    let digits: &'static [u8] = b"0123456789";
    let metadata = super::Metadata {
        len: 10,
        modified_s: 0,
        kind: EntryKind::File,
    };
    let mut file = super::File::new(digits.into(), metadata);
    assert_eq!(file.seek(SeekFrom::End(-3)), Ok(7));
    assert_eq!(file.fill_buf(), Ok(&b"789"[..]));
    file.consume(1);
    let mut two = [0; 2];
    file.read_exact(&mut two).unwrap();
    assert_eq!((two, file.stream_position()), (*b"89", Ok(10)));
    assert_eq!(file.read(&mut two), Ok(0));

    assert_eq!(file.seek(SeekFrom::Start(1000)), Ok(1000));
    assert_eq!(file.read(&mut two), Ok(0), "behind the end");
    file.consume(5);
    assert_eq!(file.stream_position(), Ok(1000));
    assert_eq!(file.seek(SeekFrom::Current(-999)), Ok(1));
    assert_eq!(file.fill_buf(), Ok(&b"123456789"[..]));

    for outside in [
        SeekFrom::Current(-2),
        SeekFrom::End(-11),
        SeekFrom::End(i64::MIN),
    ] {
        let error = file.seek(outside).unwrap_err();
        assert_eq!(error.kind(), crate::io::ErrorKind::InvalidInput);
    }
    assert_eq!(file.stream_position(), Ok(1), "where it was");
}
