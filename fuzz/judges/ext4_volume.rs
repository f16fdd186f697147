//! What a damaged file system must not do to a machine whose program writes to it, whatever the
//! damage. Shared by the fuzz target and the tests of `tare-ext4`.
//!
//! The first byte chooses a file system that mke2fs made (with files `a`, `d/b` and the link `l`),
//! each five that follow change a byte at a place. Without checksums damage reaches what reads it;
//! with them it must be noticed.

use std::process::Command;
use std::sync::OnceLock;

use tare_ext4::mount_with;
use tare_libos::block::{Access, Disk};
use tare_linux::volume::{Kind, New, Sought, Volume};

/// Options of mke2fs for each.
const BASES: [&str; 3] = [
    "^metadata_csum,^uninit_bg",
    "^metadata_csum,^64bit,^extents,^flex_bg",
    "metadata_csum",
];
/// Kibibytes of each.
const KIB: u64 = 2048;

/// The file systems, undamaged.
fn bases() -> &'static [Vec<u8>] {
    static MADE: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    MADE.get_or_init(|| BASES.iter().map(|options| made(options)).collect())
}

fn made(options: &str) -> Vec<u8> {
    let place = std::env::temp_dir().join(format!("tare-ext4-{}-{options}", std::process::id()));
    let root = place.join("root");
    std::fs::create_dir_all(root.join("d")).expect("a directory");
    std::fs::write(root.join("a"), [7; 5000]).expect("a file");
    std::fs::write(root.join("d/b"), "short").expect("a file");
    std::os::unix::fs::symlink("d/b", root.join("l")).expect("a link");
    let image = place.join("image");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(KIB << 10).expect("a size");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O", options, "-d"]);
    let status = mke2fs.arg(&root).arg(&image).status();
    assert!(status.expect("mke2fs").success(), "{options}");
    let bytes = std::fs::read(&image).expect("an image");
    std::fs::remove_dir_all(&place).expect("removed");
    bytes
}

/// Mounting, reading and writing end, with an answer or an error.
pub(crate) fn judge(bytes: &[u8]) {
    let Some((base, patch)) = bytes.split_first() else {
        return;
    };
    let mut image = bases()[usize::from(*base) % BASES.len()].clone();
    for place in patch.as_chunks::<5>().0 {
        let at = u32::from_le_bytes([place[0], place[1], place[2], 0]) as usize % image.len();
        image[at] = place[3] ^ place[4];
    }
    let disk = Disk::in_memory("disk0", image, Access::ReadWrite);
    match mount_with(&disk, 256 << 10) {
        Ok(volume) => use_all(&volume),
        Err(error) => assert!(error.to_string().len() < 400, "{error}"),
    }
}

fn use_all(volume: &dyn Volume) {
    let root = volume.root();
    let mut bytes = vec![0; 9000];
    for name in ["a", "d", "l", "none"] {
        let Ok(Some(found)) = volume.look_up(root, name) else {
            continue;
        };
        let inode = found.inode;
        let _ = volume.attributes(inode);
        match found.kind {
            Kind::File => {
                let _ = volume.read(inode, 0, &mut bytes);
                let _ = volume.seek(inode, 0, Sought::Hole);
                let _ = volume.write(inode, 4000, b"written");
                let _ = volume.append(inode, &bytes);
                let _ = volume.set_len(inode, 100);
            }
            Kind::Directory => {
                let _ = volume.list(inode);
                let _ = volume.make(inode, "c", New::File(0o644));
                let _ = volume.unlink(inode, "b");
            }
            // `rsext4` 0.9.2 takes as much memory for a link's target as the inode says, which
            // ends the machine; its API does not tell the upper half of that length.
            Kind::Link | Kind::Other => {}
        }
    }
    let _ = volume.list(root);
    if let Ok(new) = volume.make(root, "new", New::File(0o644)) {
        let _ = volume.write(new.inode, 0, &bytes);
        let _ = volume.allocate(new.inode, 20_000, 5000);
        let _ = volume.rename((root, "new"), (root, "a"));
        let _ = volume.link(new.inode, root, "e");
        let _ = volume.set_permissions(new.inode, 0o600);
    }
    let _ = volume.make(root, "f", New::Directory(0o755));
    let _ = volume.make(root, "g", New::Link("somewhere"));
    let _ = volume.sync();
    let _ = volume.remove_directory(root, "f");
    let _ = volume.space();
    volume.end();
}
