use std::ffi::OsStr;
use std::fs;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cpio::newc;

use super::*;
use crate::walk::{Links, walk};

fn example() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("index.html"), "<p>hello").unwrap();
    fs::write(dir.path().join("sub/empty"), "").unwrap();
    fs::write(dir.path().join("sub/large"), vec![7; CHUNK * 2 + 3]).unwrap();
    let tree = walk(dir.path(), Links::Followed, 16 << 20).unwrap().tree;
    (dir, tree)
}

fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_was_packed_can_be_read_again() {
    let (dir, tree) = example();
    let bytes = contents(pack(&tree).unwrap());
    assert_eq!(bytes.len() as u64, archive_bytes(&tree));
    let mut rest = bytes.as_slice();
    for (name, node) in tree.entries() {
        let mut reader = newc::Reader::new(rest).unwrap();
        assert_eq!(reader.entry().name(), name);
        assert_eq!(reader.entry().mtime(), node.modified_s);
        assert_eq!(reader.entry().mode() & 0o7777, node.permissions);
        let mut content = Vec::new();
        reader.read_to_end(&mut content).unwrap();
        if matches!(node.kind, EntryKind::File(_)) {
            assert_eq!(content, fs::read(dir.path().join(name)).unwrap());
        }
        rest = reader.finish().unwrap();
    }
    assert!(newc::Reader::new(rest).unwrap().entry().is_trailer());
}

#[test]
fn links_and_owners_are_kept() {
    let mut tree = Tree::new();
    let mut link = Node::link("busybox");
    (link.uid, link.gid) = (33, 34);
    tree.insert("bin/sh", link).unwrap();
    let bytes = contents(pack(&tree).unwrap());
    let rest = newc::Reader::new(bytes.as_slice())
        .unwrap()
        .finish()
        .unwrap();
    let mut reader = newc::Reader::new(rest).unwrap();
    assert_eq!((reader.entry().uid(), reader.entry().gid()), (33, 34));
    assert_eq!(reader.entry().mode(), 0o120_777);
    let mut target = String::new();
    reader.read_to_string(&mut target).unwrap();
    assert_eq!(target, "busybox");
}

/// Names and contents of an archive, without any reader that takes names for text.
fn raw_entries(archive: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let field = |header: &[u8], at: usize| {
        let digits = std::str::from_utf8(&header[6 + at * 8..][..8]).unwrap();
        usize::from_str_radix(digits, 16).unwrap()
    };
    let mut rest = archive;
    let mut entries = Vec::new();
    loop {
        assert_eq!(rest[..6], *b"070701");
        let (content_bytes, name_bytes) = (field(rest, 6), field(rest, 11));
        let name = &rest[110..][..name_bytes];
        let content = (110 + name_bytes).next_multiple_of(4);
        let name = name.strip_suffix(b"\0").unwrap();
        if name == b"TRAILER!!!" {
            return entries;
        }
        entries.push((name.to_vec(), rest[content..][..content_bytes].to_vec()));
        rest = &rest[(content + content_bytes).next_multiple_of(4)..];
    }
}

#[test]
fn names_and_targets_of_any_bytes_are_packed_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
    fs::create_dir(at(b"d\xff")).unwrap();
    // The last one is the character by which a text has the byte 0xE9.
    let files: [(&[u8], &[u8]); 5] = [
        (b"caf\xe8", b"e8"),
        (b"caf\xe9", b"e9"),
        (b"caf\xc3\xa9", b"text"),
        (b"d\xff/in", b"in"),
        (b"caf\xf4\x8f\xbf\xa9", b"private"),
    ];
    for (name, content) in files {
        fs::write(at(name), content).unwrap();
    }
    symlink(OsStr::from_bytes(b"d\xff/caf\xe9\xfe"), at(b"link")).unwrap();
    let listing = walk(dir.path(), Links::Kept, 16 << 20).unwrap();
    assert_eq!(listing.warnings, [""; 0]);
    let packed = raw_entries(&contents(pack(&listing.tree).unwrap()));
    let mut right = files
        .map(|(name, content)| (name.to_vec(), content.to_vec()))
        .to_vec();
    right.push((b"d\xff".to_vec(), Vec::new()));
    right.push((b"link".to_vec(), b"d\xff/caf\xe9\xfe".to_vec()));
    let sorted = |mut entries: Vec<_>| {
        entries.sort();
        entries
    };
    assert_eq!(sorted(packed), sorted(right.clone()));

    // The image for programs has texts, and reads the same names from them.
    let texts = raw_entries(&contents(pack_as(&listing.tree, Layout::Pages).unwrap()));
    let read = texts.into_iter().map(|entry| {
        let bytes = |text| names::bytes(&String::from_utf8(text).unwrap()).into_owned();
        (bytes(entry.0), bytes(entry.1))
    });
    assert_eq!(sorted(read.collect()), sorted(right));
}

#[test]
fn a_site_has_names_of_utf_8_alone_and_those_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let private = "caf\u{10FFE9}".as_bytes();
    for name in [b"caf\xe9", private] {
        fs::write(dir.path().join(OsStr::from_bytes(name)), "").unwrap();
    }
    let listing = walk(dir.path(), Links::Followed, 16 << 20).unwrap();
    assert_eq!(listing.warnings.len(), 1, "{:?}", listing.warnings);
    assert!(listing.warnings[0].ends_with("caf\u{fffd} is left out: its name is not UTF-8"));
    let packed = raw_entries(&contents(pack(&listing.tree).unwrap()));
    assert_eq!(packed, [(private.to_vec(), Vec::new())]);
}

#[test]
fn a_part_of_a_file_is_packed_alone() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"0123456789").unwrap();
    let part = Content::Part {
        file: Arc::new(file),
        offset: 3,
        bytes: 4,
    };
    let mut copied = Vec::new();
    copy(&part, &mut copied).unwrap();
    assert_eq!(copied, b"3456");
}

#[test]
fn packing_twice_gives_the_same_bytes() {
    let (dir, tree) = example();
    let again = walk(dir.path(), Links::Followed, 16 << 20).unwrap().tree;
    assert_eq!(
        contents(pack(&tree).unwrap()),
        contents(pack(&again).unwrap())
    );
}

#[test]
fn the_archive_cannot_be_changed() {
    let (_dir, tree) = example();
    let mut file = pack(&tree).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    assert!(file.write_all(b"x").is_err());
    assert!(file.set_len(0).is_err());
}

#[test]
fn cpio_lists_the_archive() {
    let (_dir, tree) = example();
    let mut file = pack(&tree).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let listed = Command::new("cpio")
        .args(["-t", "--quiet"])
        .stdin(Stdio::from(file))
        .output();
    let Ok(listed) = listed else {
        tare_vmtest::lacks("cpio is not installed");
        return;
    };
    assert!(listed.status.success(), "{listed:?}");
    let names: Vec<&str> = tree.entries().map(|(name, _)| name).collect();
    assert_eq!(
        String::from_utf8(listed.stdout).unwrap(),
        names.join("\n") + "\n"
    );
    assert_eq!(String::from_utf8(listed.stderr).unwrap(), "");
}

#[test]
fn a_file_that_changes_is_noticed() {
    let (dir, tree) = example();
    fs::write(dir.path().join("index.html"), "longer than before").unwrap();
    assert!(matches!(pack(&tree), Err(PackError::Changed(_))));
}

#[test]
fn hard_links_are_packed_once_with_one_inode() {
    let mut tree = Tree::new();
    tree.insert("b/data", Node::bytes(*b"12345", 0o644))
        .unwrap();
    for name in ["a", "c"] {
        tree.hard_link("b/data", name).unwrap();
    }
    tree.insert("single", Node::bytes(*b"1", 0o644)).unwrap();
    let bytes = contents(pack(&tree).unwrap());
    assert_eq!(bytes.len() as u64, archive_bytes(&tree));
    let mut rest = bytes.as_slice();
    let mut seen = Vec::new();
    while let Ok(reader) = newc::Reader::new(rest) {
        let entry = reader.entry();
        if entry.is_trailer() {
            break;
        }
        seen.push((
            entry.name().to_owned(),
            entry.ino(),
            entry.nlink(),
            entry.file_size(),
        ));
        rest = reader.finish().unwrap();
    }
    let seen: Vec<_> = seen
        .iter()
        .map(|it| (it.0.as_str(), it.1, it.2, it.3))
        .collect();
    assert_eq!(
        seen,
        [
            ("a", 1, 3, 5),
            ("b", 2, 2, 0),
            ("b/data", 1, 3, 0),
            ("c", 1, 3, 0),
            ("single", 5, 1, 1)
        ]
    );
}

#[test]
fn hard_links_become_hard_links_of_a_directory() {
    use std::os::unix::fs::MetadataExt as _;

    use crate::directory::{self, Owners};
    let mut tree = Tree::new();
    tree.insert("a", Node::bytes(*b"12345", 0o644)).unwrap();
    tree.hard_link("a", "z").unwrap();
    let dir = tempfile::tempdir().unwrap();
    directory::write(&tree, dir.path(), Owners::Kept).unwrap();
    let inode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("z"));
}

/// Each entry with a name: where its content begins, and the content.
fn mapped(archive: &[u8]) -> HashMap<String, (usize, Vec<u8>)> {
    let mut rest = archive;
    let mut found = HashMap::new();
    loop {
        let mut reader = newc::Reader::new(rest).unwrap();
        let entry = reader.entry();
        if entry.is_trailer() {
            return found;
        }
        let name = entry.name().to_owned();
        let (page, bytes) = (entry.rdev_major() as usize, entry.rdev_minor() as usize);
        let mut at = archive.len() - rest.len() + name_bytes(&name) as usize;
        let mut content = Vec::new();
        reader.read_to_end(&mut content).unwrap();
        if page > 0 {
            assert!(content.is_empty(), "{name}");
            at = page * PAGE as usize;
            content.extend_from_slice(&archive[at..at + bytes]);
            let end = (at + bytes).next_multiple_of(PAGE as usize);
            assert!(archive[at + bytes..end].iter().all(|byte| *byte == 0));
        }
        rest = reader.finish().unwrap();
        if !name.is_empty() {
            assert!(found.insert(name, (at, content)).is_none());
        }
    }
}

#[test]
fn files_for_mapping_begin_at_pages_and_no_entry_is_lost() {
    let mut tree = Tree::new();
    let mut sizes = Vec::new();
    for n in 0..200_usize {
        let name = format!("{}{n}", "x".repeat(n * 21 % 97));
        let bytes = match n % 3 {
            0 => n,
            1 => 4096 + n * 37,
            _ => 4096 * 2,
        };
        tree.insert(&name, Node::bytes(vec![n as u8; bytes], 0o644))
            .unwrap();
        sizes.push((name, bytes, n as u8));
    }
    tree.insert("again", Node::link("x")).unwrap();
    let found = mapped(&contents(pack_as(&tree, Layout::Pages).unwrap()));
    assert_eq!(found.len(), sizes.len() + 1);
    // Behind all names.
    let names_end = found.values().map(|(at, content)| match content.len() {
        4096.. => 0,
        length => at + length,
    });
    let names_end = names_end.max().unwrap();
    for (name, length, byte) in sizes {
        let (at, content) = &found[&name];
        assert_eq!(content.len(), length);
        assert!(content.iter().all(|it| *it == byte));
        let is_apart = at.is_multiple_of(4096) && *at > names_end;
        assert!(length < 4096 || is_apart, "{name} at {at}");
    }
}

/// The names end anywhere in a page: each gap up to the contents is filled, also one that is shorter
/// than an entry.
#[test]
fn contents_for_mapping_begin_at_a_page_wherever_the_names_end() {
    for bytes in (0..4096).step_by(4) {
        let mut tree = Tree::new();
        tree.insert("a", Node::bytes(vec![1; bytes], 0o644))
            .unwrap();
        tree.insert("b", Node::bytes(vec![2; 5000], 0o644)).unwrap();
        let found = mapped(&contents(pack_as(&tree, Layout::Pages).unwrap()));
        assert_eq!(found["a"].1, vec![1; bytes]);
        assert_eq!(found["b"].1, vec![2; 5000]);
    }
}

#[test]
fn an_archive_for_mapping_has_a_file_of_several_names_once() {
    let mut tree = Tree::new();
    tree.insert("a", Node::bytes(vec![1; 9000], 0o644)).unwrap();
    tree.hard_link("a", "z").unwrap();
    let found = mapped(&contents(pack_as(&tree, Layout::Pages).unwrap()));
    assert_eq!(found["a"].1.len(), 9000);
    assert!(found["z"].1.is_empty());
    assert!(mapped(&contents(pack_as(&Tree::new(), Layout::Pages).unwrap())).is_empty());
}
