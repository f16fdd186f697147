use std::fs;

use super::testing::{Entry, docker_archive, gzip, layer, oci_archive, oci_archive_of, zstd};
use super::*;
use crate::cpio;
use crate::tree::{EntryKind, Tree};

const CONFIG: &str = r#"{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/bin/app"],"Cmd":["serve"],"Env":["A=b"],"WorkingDir":"/srv","User":"www","Volumes":null}}"#;
const ROOM: u64 = 1 << 20;

fn open(archive: &[u8]) -> Result<Image, ImageError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), archive).unwrap();
    read(&ImageRef::of(file.path()), Limits::of_bytes(ROOM))
}

fn of_layers(layers: &[&[Entry<'_>]]) -> Result<Image, ImageError> {
    let layers: Vec<_> = layers.iter().map(|entries| layer(entries)).collect();
    open(&oci_archive(CONFIG, &layers))
}

fn names(tree: &Tree) -> Vec<&str> {
    tree.entries().map(|(name, _)| name).collect()
}

fn text(tree: &Tree, name: &str) -> String {
    let EntryKind::File(content) = &tree.get(name).unwrap().kind else {
        panic!("{name} is not a file");
    };
    let mut bytes = Vec::new();
    cpio::copy(content, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn an_image_is_its_files_and_its_settings() {
    let plain = layer(&[
        Entry::Directory("./bin/"),
        Entry::File("./bin/app", 0o755, b"program"),
        Entry::Link("bin/alias", "app"),
        Entry::HardLink("bin/twin", "./bin/app"),
    ]);
    let layers = [gzip(&plain)];
    for archive in [
        oci_archive(CONFIG, &layers),
        docker_archive(CONFIG, &layers),
        gzip(&docker_archive(CONFIG, &layers)),
        oci_archive(CONFIG, &[zstd(&plain)]),
    ] {
        let image = open(&archive).unwrap();
        assert_eq!(
            names(&image.tree),
            ["bin", "bin/alias", "bin/app", "bin/twin"]
        );
        assert_eq!(text(&image.tree, "bin/app"), "program");
        assert_eq!(text(&image.tree, "bin/twin"), "program");
        assert_eq!(image.tree.get("bin/app").unwrap().permissions, 0o755);
        let settings = image.settings;
        let x = ["x".to_owned()];
        for (entrypoint, arguments, command) in [
            (None, &[][..], &["/bin/app", "serve"][..]),
            (None, &x, &["/bin/app", "x"]),
            (Some("sh"), &[], &["sh"]),
            (Some("sh"), &x, &["sh", "x"]),
            (Some(""), &x, &["x"]),
            (Some(""), &[], &[]),
        ] {
            let words = Words {
                entrypoint,
                arguments,
            };
            assert_eq!(settings.command(words), command, "{words:?}");
        }
        let rest = (settings.env, settings.working_dir, settings.user);
        assert_eq!(
            rest,
            (vec!["A=b".to_owned()], "/srv".to_owned(), "www".to_owned())
        );
    }
}

#[test]
fn higher_layers_replace_and_remove() {
    let low = [
        Entry::File("etc/a", 0o644, b"low"),
        Entry::File("etc/b", 0o644, b"low"),
        Entry::File("opaque/old", 0o644, b"low"),
        Entry::File("gone/deep/file", 0o644, b"low"),
    ];
    let high = [
        Entry::File("etc/a", 0o644, b"high"),
        Entry::File("opaque/new", 0o644, b"high"),
        // An opaque directory keeps what comes with it, in any order.
        Entry::File("opaque/.wh..wh..opq", 0o644, b""),
        Entry::File(".wh.gone", 0o644, b""),
    ];
    let tree = of_layers(&[&low, &high]).unwrap().tree;
    assert_eq!(
        names(&tree),
        ["etc", "etc/a", "etc/b", "opaque", "opaque/new"]
    );
    assert_eq!(text(&tree, "etc/a"), "high");
}

#[test]
fn a_layer_reaches_through_links_of_a_lower_one() {
    let low = [Entry::Directory("usr/lib"), Entry::Link("lib", "usr/lib")];
    let high = [Entry::File("lib/x", 0o644, b"x")];
    let tree = of_layers(&[&low, &high]).unwrap().tree;
    assert_eq!(names(&tree), ["lib", "usr", "usr/lib", "usr/lib/x"]);
}

#[test]
fn what_climbs_out_is_refused_by_name() {
    let refused = |layers: &[&[Entry<'_>]], name: &str| match of_layers(layers) {
        Err(ImageError::Climbs { entry, .. }) => assert_eq!(entry, name),
        other => panic!("{name}: {other:?}"),
    };
    refused(
        &[&[Entry::File("../etc/passwd", 0o644, b"x")]],
        "../etc/passwd",
    );
    refused(&[&[Entry::File("a/../../x", 0o644, b"x")]], "a/../../x");
    refused(
        &[&[Entry::HardLink("a", "../../etc/shadow")]],
        "../../etc/shadow",
    );
    let link = Entry::Link("up", "../../..");
    refused(
        &[&[link, Entry::File("up/passwd", 0o644, b"x")]],
        "up/passwd",
    );
    refused(
        &[&[link], &[Entry::File("up/.wh.etc", 0o644, b"")]],
        "up/etc",
    );
}

#[test]
fn an_absolute_name_is_one_within_the_root() {
    let tree = of_layers(&[&[Entry::File("/etc/a", 0o644, b"x")]])
        .unwrap()
        .tree;
    assert_eq!(names(&tree), ["etc", "etc/a"]);
}

#[test]
fn damage_is_named() {
    let good = oci_archive(CONFIG, &[layer(&[Entry::File("a", 0o644, b"content")])]);
    let at = good.windows(7).position(|it| it == b"content").unwrap();
    let mut changed = good.clone();
    changed[at] ^= 1;
    assert!(matches!(open(&changed), Err(ImageError::Digest(_))));
    assert!(open(&good[..good.len() / 2]).is_err());
    assert!(matches!(open(b""), Err(ImageError::NotAnImage(_))));
    let broken_gzip = {
        let mut packed = gzip(&layer(&[Entry::File("a", 0o644, &[7; 5000])]));
        packed.truncate(packed.len() / 2);
        docker_archive(CONFIG, &[packed])
    };
    assert!(matches!(
        open(&broken_gzip),
        Err(ImageError::Damaged { .. })
    ));
    let zstd = docker_archive(CONFIG, &[vec![0x28, 0xb5, 0x2f, 0xfd, 0]]);
    assert!(matches!(open(&zstd), Err(ImageError::Damaged { .. })));
}

#[test]
fn a_layer_may_end_short_of_its_last_block_but_not_of_its_last_file() {
    let whole = layer(&[Entry::File("a", 0o644, b"content")]);
    let short = docker_archive(CONFIG, &[whole[..512 + 7].to_vec()]);
    assert_eq!(text(&open(&short).unwrap().tree, "a"), "content");
    let cut = docker_archive(CONFIG, &[whole[..512 + 6].to_vec()]);
    assert!(matches!(open(&cut), Err(ImageError::Damaged { .. })));
}

#[test]
fn an_image_for_another_machine_is_refused() {
    let arm = CONFIG.replace("amd64", "arm64");
    let error = open(&oci_archive(&arm, &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the image is for linux/arm64, not for linux/amd64"
    );
}

#[test]
fn a_layer_that_unpacks_without_end_is_bounded() {
    let bomb = gzip(&layer(&[Entry::File(
        "zeros",
        0o644,
        &vec![0; 2 * ROOM as usize],
    )]));
    assert!(bomb.len() < 100_000);
    let refused = open(&oci_archive(CONFIG, &[bomb]));
    assert!(
        matches!(refused, Err(ImageError::Limit(LimitError::Bytes { .. }))),
        "{refused:?}"
    );
}

#[test]
fn one_of_several_images_is_chosen_by_name() {
    let content = |name| [layer(&[Entry::File(name, 0o644, b"x")])];
    let (first, second) = (content("first"), content("second"));
    let archive = oci_archive_of(&[
        (Some("web:1"), CONFIG, &first[..]),
        (Some("docker.io/library/db:latest"), CONFIG, &second[..]),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("images.tar");
    fs::write(&file, archive).unwrap();
    let open = |name: &str| {
        read(
            &ImageRef::of(&dir.path().join(format!("images.tar{name}"))),
            Limits::of_bytes(ROOM),
        )
    };
    let error = open("").unwrap_err().to_string();
    assert_eq!(
        error,
        "there are several images: docker.io/library/db:latest, web:1"
    );
    assert_eq!(names(&open(":web:1").unwrap().tree), ["first"]);
    assert_eq!(names(&open(":db").unwrap().tree), ["second"]);
    let error = open(":b").unwrap_err().to_string();
    assert!(
        error.starts_with("there is no image named b; available: docker.io"),
        "{error}"
    );
}

#[test]
fn a_layout_is_read_from_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let archive = oci_archive(CONFIG, &[layer(&[Entry::File("a", 0o644, b"x")])]);
    tar::Archive::new(archive.as_slice())
        .unpack(dir.path())
        .unwrap();
    assert!(is_layout(dir.path()));
    assert_eq!(
        names(
            &read(&ImageRef::of(dir.path()), Limits::of_bytes(ROOM))
                .unwrap()
                .tree
        ),
        ["a"]
    );
}

#[test]
fn hard_links_stay_one_file() {
    let entries = [
        Entry::File("a", 0o644, b"content"),
        Entry::HardLink("b", "a"),
        Entry::HardLink("c", "b"),
    ];
    let tree = of_layers(&[&entries]).unwrap().tree;
    let group = |name: &str| tree.get(name).unwrap().links;
    assert!(group("a").is_some() && group("a") == group("b") && group("b") == group("c"));
    let missing = of_layers(&[&[Entry::HardLink("b", "none")]]).unwrap_err();
    assert!(matches!(missing, ImageError::Name { .. }), "{missing:?}");
}

#[test]
fn what_a_guest_does_not_get_is_reported() {
    let mut special = tar::Builder::new(Vec::new());
    let mut entry = |kind, name: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_cksum();
        special.append(&header, &b""[..]).unwrap();
    };
    entry(tar::EntryType::Char, b"dev/null");
    entry(tar::EntryType::Regular, b"caf\xe9");
    entry(tar::EntryType::Regular, b"caf\xe8");
    entry(tar::EntryType::Regular, b"kept");
    let layers = [special.into_inner().unwrap()];
    let image = open(&oci_archive(CONFIG, &layers)).unwrap();
    let bytes = ["caf\u{10ffe8}", "caf\u{10ffe9}"];
    assert_eq!(names(&image.tree), [bytes[0], bytes[1], "kept"]);
    assert_eq!(image.warnings, ["dev/null is left out: it is a device"]);
}

#[test]
fn a_guest_gets_an_images_pipes_and_capabilities() {
    let bind = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut special = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o640);
    header.set_uid(0);
    header.set_gid(7);
    header.set_entry_type(tar::EntryType::Fifo);
    special.append_data(&mut header, "pipe", &b""[..]).unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    let headers = [
        ("SCHILY.xattr.user.note", &b"x"[..]),
        ("SCHILY.xattr.security.capability", &bind),
    ];
    special.append_pax_extensions(headers).unwrap();
    special.append_data(&mut header, "ping", &b""[..]).unwrap();
    let split = [("SCHILY.xattr.security.capability", &b"\n\n"[..])];
    special.append_pax_extensions(split).unwrap();
    special.append_data(&mut header, "other", &b""[..]).unwrap();
    let image = open(&oci_archive(CONFIG, &[special.into_inner().unwrap()])).unwrap();
    let pipe = image.tree.get("pipe").unwrap();
    assert!(matches!(pipe.kind, EntryKind::Pipe));
    assert_eq!((pipe.permissions, pipe.gid), (0o640, 7));
    let set = crate::guest::capabilities(&image.tree);
    assert_eq!((set.len(), &*set[0].path), (1, &b"ping"[..]));
    assert_eq!(set[0].value, bind);
    assert_eq!(
        image.warnings,
        [
            "ping loses a part (the extended attribute user.note)",
            "other loses a part (the extended attribute of a header that cannot be read)",
        ]
    );
}

#[test]
fn errors_quote_little_of_an_image_and_escape_it() {
    let long = format!("../\u{1b}]0;title\u{7}{}", "x".repeat(70));
    let error = of_layers(&[&[Entry::File(&long, 0o644, b"")]]).unwrap_err();
    let text = error.to_string();
    assert!(
        !text.contains('\u{1b}') && text.contains(r"\u{1b}"),
        "{text}"
    );
    let mut broken = docker_archive(CONFIG, &[layer(&[Entry::File("a", 0o644, b"x")])]);
    broken[100..107].copy_from_slice(b"\x1b[31m77");
    let Err(ImageError::Damaged { source, .. }) = open(&broken) else {
        panic!("a damaged archive is taken");
    };
    assert!(!source.to_string().contains('\u{1b}'), "{source}");
}

#[test]
fn long_names_of_the_outer_archive_are_not_kept_in_memory() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 20);
    header.set_cksum();
    archive.append(&header, &vec![b'x'; 1 << 20][..]).unwrap();
    let Err(ImageError::Damaged { source, .. }) = open(&archive.into_inner().unwrap()) else {
        panic!("an archive of names is taken");
    };
    assert_eq!(
        source.to_string(),
        "the headers of a file are larger than 256 KiB"
    );
}

#[test]
fn volumes_are_directories_and_stay_inside() {
    let volumes = |names: &str| format!(r#"{{"config":{{"Volumes":{{{names}}}}}}}"#);
    let layers = [layer(&[Entry::File("data/file", 0o644, b"x")])];
    let config = volumes(r#""/data":{},"/var/lib/db":{},"/":{}"#);
    let image = open(&oci_archive(&config, &layers)).unwrap();
    let made = ["data", "data/file", "var", "var/lib", "var/lib/db"];
    assert_eq!(names(&image.tree), made);
    let climbs = open(&oci_archive(&volumes(r#""/../x":{}"#), &layers));
    assert!(matches!(climbs, Err(ImageError::Climbs { .. })));
}

#[test]
fn a_compressed_archive_that_expands_without_end_is_bounded() {
    let bomb = gzip(&vec![0; 20 << 20]);
    let refused = open(&bomb);
    assert!(matches!(
        refused,
        Err(ImageError::Limit(LimitError::Bytes { .. }))
    ));
}

/// An archive of docker says what its layers unpack to, and nothing of the layers themselves.
#[test]
fn a_changed_layer_of_a_docker_archive_is_noticed() {
    let plain = layer(&[Entry::File("a", 0o644, b"content")]);
    let id = digest::hash::<sha2::Sha256>(plain.as_slice()).unwrap();
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let config = |id: &str| {
        format!(r#"{{"config":{{}},"rootfs":{{"type":"layers","diff_ids":["sha256:{id}"]}}}}"#)
    };
    for layer in [plain.clone(), gzip(&plain)] {
        let image = open(&docker_archive(&config(&id), &[layer])).unwrap();
        assert_eq!(names(&image.tree), ["a"]);
    }
    let mut changed = docker_archive(&config(&id), std::slice::from_ref(&plain));
    let at = changed.windows(7).position(|it| it == b"content").unwrap();
    changed[at] ^= 1;
    let error = open(&changed).unwrap_err();
    assert!(
        matches!(&error, ImageError::Digest(name) if name == "0/layer.tar"),
        "{error}"
    );
    // Also behind the archive's end, which no entry is read from.
    let mut longer = plain.clone();
    longer.extend([0; 1024]);
    for layer in [longer.clone(), gzip(&longer)] {
        let error = open(&docker_archive(&config(&id), &[layer])).unwrap_err();
        assert!(matches!(error, ImageError::Digest(_)), "{error}");
    }
    let error = open(&docker_archive(&config("x"), std::slice::from_ref(&plain))).unwrap_err();
    assert!(matches!(error, ImageError::BadDigest(_)), "{error}");
    // Older archives have none.
    let none = r#"{"rootfs":{"diff_ids":null}}"#;
    assert!(open(&docker_archive(none, &[plain])).is_ok());
}

/// A sparse file as GNU tar and libarchive write it, with the map that its content begins with.
fn sparse_layer(form: &[u8], map: &str, data: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let pax = [
        ("GNU.sparse.major", form),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"var/db"),
        ("GNU.sparse.realsize", b"1030"),
    ];
    tar.append_pax_extensions(pax).unwrap();
    let mut content = map.as_bytes().to_vec();
    content.resize(512, 0);
    content.extend(data);
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    tar.append_data(&mut header, "GNUSparseFile.7/db", content.as_slice())
        .unwrap();
    tar.into_inner().unwrap()
}

#[test]
fn a_sparse_file_has_its_name_and_its_holes() {
    let map = "2\n1024\n3\n1030\n0\n";
    let image = open(&docker_archive(CONFIG, &[sparse_layer(b"1", map, b"end")])).unwrap();
    assert_eq!(names(&image.tree), ["var", "var/db"]);
    let expected = format!("{}end{}", "\0".repeat(1024), "\0".repeat(3));
    assert_eq!(text(&image.tree, "var/db"), expected);
}

#[test]
fn a_sparse_file_whose_map_is_wrong_is_damage() {
    for (form, map) in [
        (&b"0"[..], "0\n"),
        (b"1", "2\n1024\n3\n1000\n3\n"),
        (b"1", "1\n1024\n9\n"),
        (b"1", "1\n18446744073709551615\n3\n"),
        (b"1", "1\n1024\n-3\n"),
        (b"1", "99999999999\n"),
        (b"1", "1\n2000\n3\n"),
    ] {
        let layer = sparse_layer(form, map, b"end");
        let error = open(&docker_archive(CONFIG, &[layer])).unwrap_err();
        assert!(
            matches!(error, ImageError::Damaged { .. } | ImageError::Limit(_)),
            "{map:?}: {error}"
        );
    }
}
