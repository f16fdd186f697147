use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use super::*;
use crate::oci::testing::{Entry, layer, zstd};

const ROOM: u64 = 8 << 20;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// Unpacks in little room: the directory, or the error and its causes.
fn unpacked(bytes: &[u8]) -> Result<tempfile::TempDir, String> {
    let dir = tempfile::tempdir().unwrap();
    let done = unpack_within(&file(bytes), "a.tar", dir.path(), Limits::of_bytes(ROOM));
    let why = |error: ArchiveError| {
        let mut said = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            said = format!("{said}: {error}");
            source = error.source();
        }
        said
    };
    done.map(|()| dir).map_err(why)
}

/// What a program makes of bytes; None where it is not installed.
fn by(program: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command.arg("--stdout").stdin(file(bytes));
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{program}: {error}"));
    tare_vmtest::or_lacks(output).map(|it| it.stdout)
}

fn example() -> Vec<u8> {
    layer(&[
        Entry::Directory("linux"),
        Entry::File("linux/Makefile", 0o644, b"VERSION = 6\n"),
        Entry::File("linux/run", 0o4777, &[7; 300_000]),
        Entry::Link("linux/link", "Makefile"),
        Entry::HardLink("linux/again", "linux/run"),
    ])
}

/// These bytes, and compressed by everything that is read.
fn compressed(plain: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let zipped = ["gzip", "xz", "bzip2"].map(|program| by(program, plain));
    let own = [Some(plain.to_vec()), Some(zstd(plain))];
    own.into_iter().chain(zipped).flatten()
}

#[test]
fn archives_of_every_compression_are_unpacked_by_confined_readers() {
    let plain = example();
    for bytes in compressed(&plain) {
        let dir = unpacked(&bytes).unwrap();
        let at = |name: &str| dir.path().join("linux").join(name);
        assert_eq!(fs::read(at("Makefile")).unwrap(), b"VERSION = 6\n");
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("Makefile"));
        let (run, again) = (fs::metadata(at("run")), fs::metadata(at("again")));
        let run = run.unwrap();
        assert_eq!(run.ino(), again.unwrap().ino());
        // No other user may change what this user compiles, nor become this user by it.
        assert_eq!(run.permissions().mode() & 0o7777, 0o755);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
    // This process is not confined.
    fs::write(tempfile::tempdir().unwrap().path().join("x"), "x").unwrap();
}

#[test]
fn an_archive_that_leads_out_or_lies_is_refused() {
    for entry in [
        Entry::File("../out", 0o644, b"x"),
        Entry::Link("../out", "/etc"),
        Entry::HardLink("a", "../../etc/passwd"),
    ] {
        let error = unpacked(&layer(&[entry])).unwrap_err();
        assert!(error.contains("leads out of the root"), "{error}");
    }
    // A link is one of the root, which has no such directory.
    let through = layer(&[
        Entry::Link("etc", "/etc"),
        Entry::File("etc/tare-test", 0o644, b"x"),
    ]);
    let error = unpacked(&through).unwrap_err();
    assert!(error.contains("leads out of the root"), "{error}");
    assert!(!Path::new("/etc/tare-test").exists());
    let packed = zstd(&example());
    for damaged in [
        &b"no archive"[..],
        &example()[..200_000],
        &packed[..packed.len() / 2],
    ] {
        let error = unpacked(damaged).unwrap_err();
        assert!(error.starts_with("damaged: cannot read a.tar"), "{error}");
    }
}

#[test]
fn what_an_archive_unpacks_to_is_limited_in_every_compression() {
    let large = vec![0; ROOM as usize + 1];
    let large = layer(&[Entry::File("large", 0o644, &large)]);
    let names: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let many: Vec<_> = names.iter().map(|name| Entry::Directory(name)).collect();
    let many = layer(&many);
    for (bytes, expected) in [
        (large, "it unpacks to more than 8 MiB"),
        (many, "it has more than 10000 files, directories and links"),
    ] {
        for bytes in compressed(&bytes) {
            assert_eq!(unpacked(&bytes).unwrap_err(), expected);
        }
    }
}

#[test]
fn a_decompressor_says_what_is_wrong() {
    for program in ["gzip", "xz", "bzip2"] {
        let Some(mut packed) = by(program, &example()) else {
            continue;
        };
        packed.truncate(packed.len() / 2);
        let error = unpacked(&packed).unwrap_err();
        let expected = format!("{program} failed (");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_package_is_unpacked_without_its_owners() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    let control = "Package: tare-test\nVersion: 1\nArchitecture: all\n\
                   Maintainer: none <none@invalid>\nDescription: test\n";
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    fs::create_dir_all(tree.join("usr/lib/x")).unwrap();
    fs::write(tree.join("usr/lib/x/module"), "module").unwrap();
    let package = dir.path().join("x.deb");
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-b"]).arg(&tree);
    match build.arg(&package).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => return tare_vmtest::lacks(format!("dpkg-deb: {error}")),
    }
    // Two packages have directories in common.
    let to = dir.path().join("to");
    fs::create_dir_all(to.join("usr/lib")).unwrap();
    unpack_package(File::open(&package).unwrap(), "x.deb", &to).unwrap();
    assert_eq!(fs::read(to.join("usr/lib/x/module")).unwrap(), b"module");
    assert!(!to.join("DEBIAN").exists());
    let bad = unpack_package(file(b"no package"), "x.deb", &to);
    let error = bad.unwrap_err().to_string();
    assert!(error.starts_with("dpkg-deb failed ("), "{error}");
}
