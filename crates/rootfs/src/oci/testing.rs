//! Images made for tests, as right or wrong as a test wants them.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// An entry of a layer.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A directory.
    Directory(&'a str),
    /// A file with permissions and bytes.
    File(&'a str, u32, &'a [u8]),
    /// A symbolic link: name and target.
    Link(&'a str, &'a str),
    /// A hard link: name and target.
    HardLink(&'a str, &'a str),
}

/// A layer, not compressed.
pub fn layer(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let (name, kind, permissions, bytes, target) = match *entry {
            Entry::Directory(name) => (name, EntryType::Directory, 0o755, &b""[..], ""),
            Entry::File(name, permissions, bytes) => {
                (name, EntryType::Regular, permissions, bytes, "")
            }
            Entry::Link(name, target) => (name, EntryType::Symlink, 0o777, &b""[..], target),
            Entry::HardLink(name, target) => (name, EntryType::Link, 0o644, &b""[..], target),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(permissions);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        // Names are set by hand: the builder refuses those that climb.
        put(&mut header.as_mut_bytes()[..100], name);
        put(&mut header.as_mut_bytes()[157..257], target);
        header.set_cksum();
        builder.append(&header, bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Bytes compressed by gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// Bytes compressed by zstd.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// An archive of an OCI layout, as skopeo writes it.
pub fn oci_archive(config: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    oci_archive_of(&[(None, config, layers)])
}

/// An image's name, if it has one, its configuration and its layers.
pub type Parts<'a> = (Option<&'a str>, &'a str, &'a [Vec<u8>]);

/// An archive of an OCI layout with several images.
pub fn oci_archive_of(images: &[Parts<'_>]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    append(
        &mut archive,
        "oci-layout",
        br#"{"imageLayoutVersion":"1.0.0"}"#,
    );
    let mut manifests = Vec::new();
    for (name, config, layers) in images {
        let manifest = manifest(&mut archive, config, layers);
        let named = name.map(|name| {
            format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}"#)
        });
        manifests.push(format!(
            r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{manifest}"{}}}"#,
            named.unwrap_or_default()
        ));
    }
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        manifests.join(",")
    );
    append(&mut archive, "index.json", index.as_bytes());
    archive.into_inner().unwrap()
}

fn manifest(archive: &mut Builder<Vec<u8>>, config: &str, layers: &[Vec<u8>]) -> String {
    let config = blob(archive, config.as_bytes());
    let layers: Vec<String> = layers
        .iter()
        .map(|bytes| format!(r#"{{"digest":"{}"}}"#, blob(archive, bytes)))
        .collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{config}"}},"layers":[{}]}}"#,
        layers.join(",")
    );
    blob(archive, manifest.as_bytes())
}

/// An archive as `docker save` wrote it before it wrote OCI layouts.
pub fn docker_archive(config: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    let name = |number: usize| format!("{number}/layer.tar");
    for (number, bytes) in layers.iter().enumerate() {
        append(&mut archive, &name(number), bytes);
    }
    append(&mut archive, "config.json", config.as_bytes());
    let names: Vec<String> = (0..layers.len())
        .map(|it| format!("{:?}", name(it)))
        .collect();
    let manifest = format!(
        r#"[{{"Config":"config.json","RepoTags":null,"Layers":[{}]}}]"#,
        names.join(",")
    );
    append(&mut archive, "manifest.json", manifest.as_bytes());
    archive.into_inner().unwrap()
}

fn blob(archive: &mut Builder<Vec<u8>>, bytes: &[u8]) -> String {
    let digest: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    append(archive, &format!("blobs/sha256/{digest}"), bytes);
    format!("sha256:{digest}")
}

fn append(archive: &mut Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, name, bytes).unwrap();
}

fn put(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}
