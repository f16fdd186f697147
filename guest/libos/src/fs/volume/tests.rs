//! On file systems that mke2fs made, whole and damaged.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::superblock::{self, SuperblockError};
use core::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::block::Access;

/// A file that needs several extents or indirect blocks.
const LARGE: usize = 300_000;

/// Content that differs from block to block.
fn large() -> Vec<u8> {
    (0..LARGE)
        .map(|at| ((at / 7) ^ (at / 1024)) as u8)
        .collect()
}

/// A file system with a few files, made as `mke2fs WORDS` says.
fn image(words: &[&str]) -> Vec<u8> {
    image_with(words, "4M", |_| {})
}

/// The same of that size, with what `more` puts into its tree.
fn image_with(words: &[&str], size: &str, more: impl FnOnce(&Path)) -> Vec<u8> {
    static COUNT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    let name = alloc::format!("tare-volume-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let tree = directory.join("tree");
    fs::create_dir_all(tree.join("css/deep")).unwrap();
    fs::write(tree.join("index.html"), b"<p>hello").unwrap();
    fs::write(tree.join("css/a.css"), b"body {}").unwrap();
    fs::write(tree.join("empty"), b"").unwrap();
    fs::write(tree.join("large"), large()).unwrap();
    std::os::unix::fs::symlink("css/a.css", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("/../../etc/passwd", tree.join("out")).unwrap();
    std::os::unix::fs::symlink("loop", tree.join("loop")).unwrap();
    let file = directory.join("image");
    more(&tree);
    make(&tree, &file, words, size);
    let bytes = fs::read(&file).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    bytes
}

fn make(tree: &Path, file: &Path, words: &[&str], size: &str) {
    let mke2fs = Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-F", "-d"])
        .arg(tree)
        .args(words)
        .args([file.as_os_str(), size.as_ref()])
        .output();
    let output = mke2fs.expect("mke2fs, from Debian's e2fsprogs");
    assert!(output.status.success(), "{output:?}");
}

fn mount(bytes: Vec<u8>) -> core::result::Result<Volume, MountError> {
    Volume::open(&Disk::in_memory("disk0", bytes, Access::ReadOnly))
}

fn error<T: fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn files_of_each_kind_of_file_system_are_read() {
    for words in [
        &["-t", "ext2"][..],
        &["-t", "ext3"],
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        &["-t", "ext4", "-O", "64bit,^has_journal"],
    ] {
        let volume = mount(image(words)).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(
            volume.read("index.html").unwrap().0,
            b"<p>hello",
            "{words:?}"
        );
        assert_eq!(volume.read("/css//a.css").unwrap().0, b"body {}");
        assert_eq!(volume.read("empty").unwrap().0, b"");
        assert_eq!(volume.read("large").unwrap().0, large());
        let metadata = volume.metadata("large").unwrap();
        assert_eq!((metadata.len(), metadata.is_file()), (LARGE as u64, true));
        assert!(metadata.modified().as_secs() > 1_600_000_000);
        assert!(volume.metadata("/").unwrap().is_dir());
        assert!(volume.metadata("css/deep").unwrap().is_dir());
    }
}

#[test]
fn a_directory_lists_its_entries() {
    let volume = mount(image(&["-t", "ext4"])).unwrap();
    let names = |path: &str| {
        let entries = volume.read_dir(path).unwrap();
        let mut names: Vec<_> = entries
            .iter()
            .map(|entry| (entry.file_name().to_owned(), entry.path().to_owned()))
            .collect();
        names.sort();
        names
    };
    let pair = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    assert_eq!(
        names("css"),
        [pair("a.css", "css/a.css"), pair("deep", "css/deep")]
    );
    let root = names("");
    assert!(root.contains(&pair("index.html", "index.html")), "{root:?}");
    assert_eq!(
        error(volume.read_dir("index.html")),
        ErrorKind::NotADirectory
    );
}

#[test]
fn files_make_room_for_each_other_unless_they_are_held() {
    static ROOM: AtomicU64 = AtomicU64::new(0);
    ROOM.store(1 << 20, Ordering::SeqCst);
    let disk = Disk::in_memory("disk0", image(&["-t", "ext4"]), Access::ReadOnly);
    let volume = Volume::open_within(&disk, || ROOM.load(Ordering::SeqCst)).unwrap();
    let (held, _) = volume.read("index.html").unwrap();
    drop(volume.read("css/a.css").unwrap());
    ROOM.store(100, Ordering::SeqCst);
    assert_eq!(error(volume.read("large")), ErrorKind::ResourceBusy);
    assert_eq!(held, b"<p>hello");
    ROOM.store(1 << 20, Ordering::SeqCst);
    assert_eq!(volume.read("large").unwrap().0, large());
}

#[test]
fn links_stay_within_the_file_system() {
    let volume = mount(image(&["-t", "ext4"])).unwrap();
    let (target, _) = volume.read("css/a.css").unwrap();
    let (link, _) = volume.read("link").unwrap();
    assert_eq!(link, b"body {}");
    assert_eq!(link.as_ptr(), target.as_ptr(), "kept once");
    assert_eq!(error(volume.read("out")), ErrorKind::NotFound);
    assert_eq!(error(volume.read("loop")), ErrorKind::InvalidData);
    for path in [
        "../etc/passwd",
        "css/../../x",
        "nothing",
        "index.html/x",
        "a\0b",
    ] {
        let kind = error(volume.read(path));
        assert!(
            matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory),
            "{path:?}: {kind:?}"
        );
    }
    assert_eq!(error(volume.read("css")), ErrorKind::IsADirectory);
}

#[test]
fn a_disk_without_a_file_system_is_an_error() {
    let problem = |bytes: Vec<u8>| mount(bytes).unwrap_err().to_string();
    assert_eq!(problem(vec![0; 512]), "the disk disk0 cannot be read");
    let none = "the disk disk0: no ext2, ext3 or ext4 file system found";
    assert_eq!(problem(vec![0; 65_536]), none);
    let mut cut = image(&["-t", "ext4"]);
    cut.truncate(1 << 20);
    assert_eq!(
        problem(cut),
        "the disk disk0: the file system is larger than the disk"
    );
    let mut new = image(&["-t", "ext4", "-O", "^metadata_csum"]);
    new[1024 + 0x63] = 0x40;
    let problem = problem(new);
    assert!(problem.starts_with("the file system on disk0 cannot be mounted: "));
}

#[test]
fn a_superblock_cannot_ask_for_more_than_there_is() {
    let image = image(&["-t", "ext4", "-b", "4096"]);
    let mut bytes: [u8; superblock::LEN] = image[1024..2048].try_into().unwrap();
    let disk = image.len() as u64;
    assert_eq!(superblock::check(&bytes, disk, 1 << 20), Ok(()));
    assert_eq!(
        superblock::check(&bytes, disk, 100),
        Err(SuperblockError::Memory(1))
    );
    let with = |at: usize, value: u32| {
        let mut changed = bytes;
        changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        superblock::check(&changed, disk, 1 << 20)
    };
    assert_eq!(with(0x18, 7), Err(SuperblockError::BlockSize));
    assert_eq!(with(0x4, u32::MAX), Err(SuperblockError::TooLarge));
    assert_eq!(with(0x150, u32::MAX), Err(SuperblockError::TooLarge));
    // Also without the feature `64bit`, where Linux does not look at it.
    let mut short = bytes;
    short[0x60] &= !0x80;
    assert_eq!(superblock::check(&short, disk, 1 << 20), Ok(()));
    short[0x150] = 1;
    let checked = superblock::check(&short, disk, 1 << 20);
    assert_eq!(checked, Err(SuperblockError::TooLarge));
    assert_eq!(with(0x20, 0), Err(SuperblockError::Groups));
    assert_eq!(with(0x20, 1), Err(SuperblockError::Groups));
    bytes[0x38] = 0;
    assert_eq!(
        superblock::check(&bytes, disk, 1 << 20),
        Err(SuperblockError::Magic)
    );
}

#[test]
fn damage_gives_errors_and_leaves_the_rest_readable() {
    let whole = image(&["-t", "ext4"]);
    let volume = mount(whole.clone()).unwrap();
    let (content, _) = volume.read("index.html").unwrap();
    // Everything but what mounting needs is damaged, a byte in each 61.
    let mut damaged = whole.clone();
    damaged
        .iter_mut()
        .skip(65_536)
        .step_by(61)
        .for_each(|byte| *byte ^= 0xff);
    if let Ok(volume) = mount(damaged) {
        for path in ["index.html", "large", "css/a.css", "link"] {
            let _ = volume.read(path);
        }
        let _ = volume.read_dir("/");
        assert!(volume.read("large").is_err() || volume.read("large").unwrap().0 != large());
    }
    assert_eq!(content, b"<p>hello");
}

/// A file of `len` bytes with data at the places, and holes in between.
fn sparse(path: &Path, len: u64, places: &[u64]) -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    let mut content = vec![0; len as usize];
    for at in places {
        let data: Vec<u8> = (0..700).map(|n| (at / 1024 + n) as u8 | 1).collect();
        file.write_all_at(&data, *at).unwrap();
        content[*at as usize..][..700].copy_from_slice(&data);
    }
    content
}

/// With blocks of 1 KiB an indirect block has 256 of them, a doubly indirect one 65,536.
#[test]
fn holes_as_large_as_indirect_blocks_are_zeros() {
    let kib = |n: u64| n << 10;
    for words in [
        &["-t", "ext2", "-b", "1024"][..],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "^extents,^64bit"],
        &["-t", "ext4", "-b", "1024"],
    ] {
        let mut expected = Vec::new();
        let bytes = image_with(words, "5M", |tree| {
            let end = [kib(3_000) - 700];
            expected.push(("end", sparse(&tree.join("end"), kib(3_000), &end)));
            // The second of the double block's indirect blocks, the third is a hole.
            let some = [0, kib(600), kib(1_100)];
            expected.push(("some", sparse(&tree.join("some"), kib(2_000), &some)));
            expected.push(("none", sparse(&tree.join("none"), kib(900), &[])));
        });
        let volume = mount(bytes).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        for (name, content) in &expected {
            assert!(volume.read(name).unwrap().0 == *content, "{words:?} {name}");
        }
        assert_eq!(volume.read("large").unwrap().0, large());
    }
}

#[test]
fn a_hole_below_a_triply_indirect_block_is_zeros() {
    let mut content = Vec::new();
    let bytes = image_with(&["-t", "ext2", "-b", "1024"], "80M", |tree| {
        content = sparse(&tree.join("long"), 68 << 20, &[5 << 10, (67 << 20) + 5]);
    });
    let volume = mount(bytes).unwrap();
    assert!(volume.read("long").unwrap().0 == content);
}

#[test]
fn a_block_map_that_leads_nowhere_is_damage() {
    let mut bytes = image_with(
        &["-t", "ext2", "-b", "1024", "-O", "^metadata_csum"],
        "4M",
        |tree| {
            sparse(&tree.join("holes"), 1_234_567, &[0, 1 << 20]);
        },
    );
    let length = 1_234_567_u32.to_le_bytes();
    let at = bytes.windows(4).position(|window| window == length);
    // The doubly indirect block: 40 bytes after the length is the map's begin.
    let entry = at.unwrap() - 4 + 0x28 + 13 * 4;
    bytes[entry..entry + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let volume = mount(bytes).unwrap();
    assert_eq!(error(volume.read("holes")), ErrorKind::InvalidData);
    assert_eq!(volume.read("large").unwrap().0, large());
}

#[test]
fn a_file_longer_than_the_disk_is_damage() {
    // Inodes without checksums: find the large file's by its length.
    let mut bytes = image(&["-t", "ext2", "-O", "^metadata_csum"]);
    let length = (LARGE as u32).to_le_bytes();
    let at = bytes
        .windows(4)
        .position(|window| window == length)
        .unwrap();
    bytes[at..at + 4].copy_from_slice(&0xf000_0000_u32.to_le_bytes());
    let volume = mount(bytes).unwrap();
    assert_eq!(volume.metadata("large").unwrap().len(), 0xf000_0000);
    assert_eq!(error(volume.read("large")), ErrorKind::InvalidData);
    assert_eq!(volume.read("index.html").unwrap().0, b"<p>hello");
}

#[test]
fn bytes_anywhere_are_read_through_whole_sectors() {
    let bytes: Vec<u8> = (0..4096_u32).map(|at| (at % 251) as u8).collect();
    let reader = reader::Reader(Disk::in_memory("d", bytes.clone(), Access::ReadOnly));
    for (start, len) in [
        (0, 4096),
        (1, 1),
        (511, 2),
        (513, 1600),
        (3584, 512),
        (100, 0),
    ] {
        let mut into = vec![0; len];
        reader.fill(start as u64, &mut into).unwrap();
        assert_eq!(into, bytes[start..start + len], "{start} {len}");
    }
    assert!(reader.fill(4000, &mut [0; 97]).is_err());
    assert!(reader.fill(u64::MAX, &mut [0; 1]).is_err());
}
