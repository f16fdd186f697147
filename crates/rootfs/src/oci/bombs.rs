//! Small images that would cost much memory, disk or time, each unpacked in a child
//! process that the kernel ends if it takes more than it may.

use std::env;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit, setrlimit};
use tar::{Builder, EntryType, Header};

use super::testing::{docker_archive, gzip};
use super::{ImageRef, Limits, read};
use crate::cpio;

const CHILD: &str = "TARE_TEST_BOMB";
/// The room for the root.
const ROOM: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// What a child may have: the room for unpacked files and for the archive, and some.
fn limit_this_process() {
    let set = |resource, most| {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).expect("a limit");
    };
    set(Resource::As, 512 * MIB);
    set(Resource::Fsize, ROOM + MIB);
    set(Resource::Cpu, 30);
}

#[test]
fn unpacks_in_a_child() {
    let Some(image) = env::var_os(CHILD) else {
        return;
    };
    limit_this_process();
    let image = read(&ImageRef::of(image.as_ref()), Limits::of_bytes(ROOM));
    match image {
        Ok(image) => {
            let mut packed = tempfile::tempfile().unwrap();
            cpio::archive(&image.tree, &mut packed).unwrap();
            println!("[{} bytes]", packed.metadata().unwrap().len());
        }
        Err(error) => println!("[{error}]"),
    }
}

/// Unpacks an image of this layer in a child; what the child says.
fn outcome(layer: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), docker_archive("{}", &[gzip(layer)])).unwrap();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "oci::bombs::unpacks_in_a_child", "--nocapture"])
        .args(["--test-threads", "1"])
        .env(CHILD, file.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let between = |text: &str| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
    assert!(child.status.success(), "{} {said}", child.status);
    between(&said).unwrap_or_else(|| panic!("no outcome: {said}"))
}

struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn header(kind: EntryType, name: &str, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(size);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        header
    }

    fn add(&mut self, kind: EntryType, name: &str, bytes: &[u8]) {
        let header = Self::header(kind, name, bytes.len() as u64);
        self.0.append(&header, bytes).unwrap();
    }

    fn hard_link(&mut self, name: &str, target: &str) {
        let mut header = Self::header(EntryType::Link, name, 0);
        header.set_link_name(target).unwrap();
        header.set_cksum();
        self.0.append(&header, &b""[..]).unwrap();
    }

    fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

#[test]
fn a_sparse_file_counts_with_its_holes() {
    for real_size in [1_u64 << 30, 1 << 50] {
        let mut header = Layer::header(EntryType::GNUSparse, "sparse", 0);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(real_size);
        // One block of no bytes at the end makes a hole of the whole file.
        gnu.sparse[0].set_offset(real_size);
        gnu.sparse[0].set_length(0);
        header.set_cksum();
        let mut layer = Layer::new();
        layer.0.append(&header, &b""[..]).unwrap();
        assert_eq!(outcome(&layer.finish()), "it unpacks to more than 64 MiB");
    }
}

#[test]
fn a_file_with_many_hard_links_is_packed_once() {
    let mut layer = Layer::new();
    layer.add(EntryType::Regular, "data", &vec![0; 20 << 20]);
    for number in 0..2000 {
        layer.hard_link(&format!("link{number}"), "data");
    }
    let said = outcome(&layer.finish());
    let bytes: u64 = said.strip_suffix(" bytes").unwrap().parse().unwrap();
    assert!((20 * MIB..21 * MIB).contains(&bytes), "{said}");
}

#[test]
fn long_names_and_attributes_are_not_kept_in_memory() {
    // Of 40 MiB, though the room would let them pass.
    for kind in [
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
    ] {
        let mut layer = Layer::new();
        layer.add(kind, "././@LongLink", &vec![b'x'; 40 << 20]);
        layer.add(EntryType::Regular, "a", b"");
        let expected = "the headers of a file in it are larger than 256 KiB";
        assert_eq!(outcome(&layer.finish()), expected);
    }
}

#[test]
fn a_path_of_many_components_is_refused_at_once() {
    let name = "a/".repeat(100_000) + "b";
    let record = format!(" path={name}\n");
    let length = record.len() + 6;
    let mut layer = Layer::new();
    layer.add(
        EntryType::XHeader,
        "x",
        format!("{length}{record}").as_bytes(),
    );
    layer.add(EntryType::Regular, "a", b"");
    let said = outcome(&layer.finish());
    assert_eq!(said, "damaged: invalid entry in 0/layer.tar");
}

#[test]
fn directories_that_names_imply_are_counted() {
    let mut layer = Layer::new();
    // 2,000 directories of 2 KiB on average for each entry.
    for number in 0..2000 {
        let name = format!("{number:06}/{}", "a/".repeat(2000));
        layer.add(EntryType::GNULongName, "././@LongLink", name.as_bytes());
        layer.add(EntryType::Directory, "a", b"");
    }
    let said = outcome(&layer.finish());
    assert!(said.starts_with("it "), "{said}");
}

#[test]
fn links_that_lengthen_each_look_up_end_it() {
    let mut layer = Layer::new();
    let mut link = |name: &str, target: &str| {
        layer.add(EntryType::GNULongLink, "././@LongLink", target.as_bytes());
        layer.add(EntryType::Symlink, name, b"");
    };
    // Each step of the chain looks up 2,000 components.
    for number in 0..30 {
        let next = format!("{}l{}", "d/../".repeat(800), number + 1);
        link(&format!("l{number}"), &next);
    }
    for number in 0..20_000 {
        layer.add(EntryType::Regular, &format!("l0/{number}"), b"");
    }
    let said = outcome(&layer.finish());
    let expected = "its directories and symbolic links are nested too deeply to unpack";
    assert_eq!(said, expected);
}

#[test]
fn whiteouts_do_not_search_the_whole_root() {
    let mut low = Layer::new();
    for number in 0..50_000 {
        low.add(
            EntryType::Regular,
            &format!("dir{}/f{number}", number % 10),
            b"",
        );
    }
    let mut high = Layer::new();
    for number in 0..14_000 {
        high.add(EntryType::Regular, &format!(".wh.gone{number}"), b"");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let layers = [gzip(&low.finish()), gzip(&high.finish())];
    fs::File::create(file.path())
        .and_then(|mut file| file.write_all(&docker_archive("{}", &layers)))
        .unwrap();
    let image = read(&ImageRef::of(file.path()), Limits::of_bytes(ROOM)).unwrap();
    assert_eq!(image.tree.len(), 50_010);
}

#[test]
fn more_entries_than_a_root_may_have_are_refused() {
    let mut layer = Layer::new();
    for number in 0..70_000 {
        layer.add(EntryType::Directory, &format!("{number}"), b"");
    }
    let said = outcome(&layer.finish());
    assert_eq!(said, "it has more than 65536 files, directories and links");
}
