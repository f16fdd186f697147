//! A server gets another root while it runs, from a disk that the test writes as the host does.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;
use tare_guest_http::connection;
use tare_guest_http::first_root::FirstRoot;
use tare_guest_http::host::MemoryFiles;
use tare_guest_http::reload::Reload;
use tare_guest_http::rules::Given;
use tare_guest_http::server::{Precompressed, Server};
use tare_libos::block::{Access, Disk};
use tare_libos::fs::Region;
use tare_libos::serve::{Transport, TransportError};
use tare_site::reload::{
    ARCHIVE_SECTOR, Answer, REPLY_SECTOR, REQUEST_SECTOR, Refusal, Reply, Request, SECTOR_BYTES,
};
use tare_site::{FILE, Host, Log, MOST_BYTES, Missing, Table};

use support::{Act, Run as _, Script, get, responses};

const FILE_MODE: u32 = 0o100_644;
const DIRECTORY_MODE: u32 = 0o040_755;
const LINK_MODE: u32 = 0o120_777;
const MODIFIED_S: u32 = 784_111_777;
/// Enough for all archives here.
const ROOM: u64 = 1 << 20;

/// An entry: path, mode, content.
type Entry<'a> = (&'a str, u32, &'a [u8]);

/// The host's side.
struct HostSide {
    disk: Disk,
    generation: u64,
}

impl HostSide {
    fn new() -> Self {
        Self {
            disk: Disk::in_memory("disk0", vec![0; 2 << 20], Access::ReadWrite),
            generation: 0,
        }
    }

    fn reload(&self) -> Reload {
        Reload::new(self.disk.clone(), Given::default(), Log::Off)
    }

    /// Puts a root on the disk; a table among the entries is the site's.
    fn offer(&mut self, entries: &[Entry<'_>]) -> u64 {
        let archive = pack(entries);
        let has_site = entries.iter().any(|(path, ..)| *path == FILE);
        self.offer_archive(archive, entries.len() as u32, has_site)
    }

    fn offer_archive(&mut self, mut archive: Vec<u8>, entries: u32, has_site: bool) -> u64 {
        self.generation += 1;
        let request = Request {
            generation: self.generation,
            bytes: archive.len() as u64,
            entries,
            has_site,
        };
        archive.resize(archive.len().next_multiple_of(SECTOR_BYTES), 0);
        let nothing = [0; SECTOR_BYTES];
        self.disk.write(REQUEST_SECTOR, &nothing).unwrap();
        if !archive.is_empty() {
            self.disk.write(ARCHIVE_SECTOR, &archive).unwrap();
        }
        let sector = request.to_sector();
        self.disk.write(REQUEST_SECTOR, &sector).unwrap();
        request.memory_bytes()
    }

    fn reply(&self) -> Option<Reply> {
        let mut sector = [0; SECTOR_BYTES];
        self.disk.read(REPLY_SECTOR, &mut sector).unwrap();
        Reply::parse(&sector)
    }
}

/// Packs entries as `cpio -o -H newc` does.
fn pack(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(name, mode, data) in entries.iter().chain([&("TRAILER!!!", 0, &[][..])]) {
        let (len, name_len) = (data.len() as u32, name.len() as u32 + 1);
        out.extend_from_slice(b"070701");
        for field in [1, mode, 0, 0, 1, MODIFIED_S, len, 0, 0, 0, 0, name_len, 0] {
            out.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

fn old() -> Server<MemoryFiles> {
    let files = MemoryFiles::new()
        .with("index.html", b"old home", 1000)
        .with("gone.txt", b"old text", 1000);
    Server::new(files)
}

fn body(server: &Server<MemoryFiles>, target: &str) -> (u16, String) {
    let answer = get(server, target, "");
    (answer.status, String::from_utf8(answer.body).unwrap())
}

fn refused(answer: Option<Answer>) -> Refusal {
    match answer {
        Some(Answer::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_new_root_is_served_from_the_next_request_on_and_another_one_after_it() {
    let (server, mut host) = (old(), HostSide::new());
    let mut reload = host.reload();
    assert_eq!(reload.look(&server, ROOM), None);
    // One target is among the latest, the other is not.
    assert_eq!(body(&server, "/"), (200, "old home".into()));
    let large = vec![b'x'; 200_000];
    host.offer(&[
        ("docs", DIRECTORY_MODE, b""),
        ("docs/index.html", FILE_MODE, b"new docs"),
        ("docs/link", LINK_MODE, b"index.html"),
        ("index.html", FILE_MODE, b"new home"),
        ("large", FILE_MODE, &large),
    ]);
    let taken = Answer::Taken { files: 3 };
    assert_eq!(reload.look(&server, ROOM), Some(taken));
    let reply = Reply {
        generation: 1,
        answer: taken,
    };
    assert_eq!(host.reply(), Some(reply));
    assert_eq!(body(&server, "/"), (200, "new home".into()));
    assert_eq!(body(&server, "/docs/"), (200, "new docs".into()));
    assert_eq!(body(&server, "/docs").0, 301);
    assert_eq!(body(&server, "/docs/link").0, 404);
    assert_eq!(body(&server, "/gone.txt").0, 404);
    assert_eq!(get(&server, "/large", "").body, large);
    let dated = get(&server, "/", "");
    assert_eq!(dated.field("Last-Modified"), Some(support::MODIFIED));
    // What was taken is not taken again.
    assert_eq!(reload.look(&server, ROOM), None);
    host.offer(&[("index.html", FILE_MODE, b"third home")]);
    let taken = Answer::Taken { files: 1 };
    assert_eq!(reload.look(&server, ROOM), Some(taken));
    assert_eq!(body(&server, "/"), (200, "third home".into()));
    assert_eq!(body(&server, "/docs/").0, 404);
    let counters = &server.counters;
    assert_eq!(
        (counters.reloads.get(), counters.reloads_refused.get()),
        (2, 0)
    );
}

/// A client that takes little at a time, and something that happens after its first take.
struct Meanwhile<'a> {
    script: Script,
    act: Option<Box<dyn FnOnce() + 'a>>,
}

impl Transport for &mut Meanwhile<'_> {
    fn receive(
        &mut self,
        into: &mut [u8],
        within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        (&mut self.script).receive(into, within)
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        within: Duration,
    ) -> Result<usize, TransportError> {
        let sent = (&mut self.script).send(parts, within);
        if let Some(act) = self.act.take() {
            act();
        }
        sent
    }

    fn finish(&mut self) {
        (&mut self.script).finish();
    }

    fn now(&self) -> Duration {
        self.script.elapsed()
    }

    fn peer(&self) -> Option<IpAddr> {
        None
    }
}

#[test]
fn an_answer_that_is_being_sent_ends_with_its_own_file() {
    let (server, mut host) = (old(), HostSide::new());
    let mut reload = host.reload();
    let large = |byte| vec![byte; 300_000];
    host.offer(&[("large", FILE_MODE, &large(b'1'))]);
    reload.look(&server, ROOM).unwrap();
    let request = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let script = Script::new([Act::Send(request.repeat(2).into())]);
    let mut client = Meanwhile {
        script: script.slow(10_000, Duration::ZERO),
        act: Some(Box::new(|| {
            host.offer(&[("large", FILE_MODE, &large(b'2'))]);
            reload.look(&server, ROOM).unwrap();
        })),
    };
    connection::serve(&mut client, &server);
    // The same connection gets the new file next.
    let answers = responses(&client.script.sent, &[]);
    assert_eq!(answers.len(), 2);
    assert!(answers[0].body == large(b'1') && answers[1].body == large(b'2'));
}

/// The first root's files are parts of one archive, which stays until no answer has one of them.
#[test]
fn the_first_roots_archive_goes_with_the_last_answer_that_has_a_file_of_it() {
    let large = vec![b'1'; 300_000];
    let archive = Region::from(pack(&[
        // In any order, as other packers have them.
        ("large", FILE_MODE, &large),
        ("index.html", FILE_MODE, b"first home"),
        ("a/b", FILE_MODE, b"below"),
        ("a/link", LINK_MODE, b"b"),
        ("empty", FILE_MODE, b""),
        (FILE, FILE_MODE, b"table"),
    ]));
    let first = FirstRoot::of(&archive, Some(FILE)).unwrap();
    assert_eq!(first.table.as_deref(), Some(&b"table"[..]));
    assert_eq!(first.files.files(), 4);
    let server = Server::new(MemoryFiles::new()).with_files(first.files);
    assert_eq!(body(&server, "/"), (200, "first home".into()));
    assert_eq!(body(&server, "/a/b"), (200, "below".into()));
    assert_eq!(body(&server, "/a").0, 301);
    assert_eq!(body(&server, "/empty"), (200, String::new()));
    for hidden in ["/a/link", "/.tare-site"] {
        assert_eq!(body(&server, hidden).0, 404, "{hidden}");
    }
    assert!(!archive.is_only_handle());

    let mut host = HostSide::new();
    let mut reload = host.reload();
    let request = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let script = Script::new([Act::Send(request.to_vec())]);
    let mut client = Meanwhile {
        script: script.slow(10_000, Duration::ZERO),
        act: Some(Box::new(|| {
            host.offer(&[("index.html", FILE_MODE, b"next home")]);
            reload.look(&server, ROOM).unwrap();
            assert!(!archive.is_only_handle(), "still being sent");
        })),
    };
    connection::serve(&mut client, &server);
    assert!(responses(&client.script.sent, &[])[0].body == large);
    assert_eq!(body(&server, "/"), (200, "next home".into()));
    assert!(archive.is_only_handle());
}

#[test]
fn rules_come_and_go_with_their_root() {
    let (server, mut host) = (old(), HostSide::new());
    let mut reload = host.reload();
    let named = Host {
        name: "b.example",
        table: Table {
            root: "b",
            ..Table::default()
        },
    };
    let table = Table {
        missing: Missing::Page("404.html"),
        hosts: vec![named],
        ..Table::default()
    }
    .to_bytes()
    .unwrap();
    let with_site: [Entry<'_>; 5] = [
        (FILE, FILE_MODE, &table),
        ("404.html", FILE_MODE, b"no such page"),
        ("b", DIRECTORY_MODE, b""),
        ("b/index.html", FILE_MODE, b"of b"),
        ("index.html", FILE_MODE, b"of all"),
    ];
    let of_b = |server: &Server<MemoryFiles>| {
        let request = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
        let script = Script::new([Act::Send(request.into())]).run(server);
        responses(&script.sent, &[]).remove(0).body
    };
    for _ in 0..3 {
        host.offer(&with_site);
        let taken = Answer::Taken { files: 3 };
        assert_eq!(reload.look(&server, ROOM), Some(taken));
        // The second time from the latest assets.
        for _ in 0..2 {
            assert_eq!(of_b(&server), b"of b");
            assert_eq!(body(&server, "/"), (200, "of all".into()));
        }
        assert_eq!(body(&server, "/x"), (404, "no such page".into()));
        // The table is not a file.
        assert_eq!(body(&server, "/.tare-site").0, 404);
        host.offer(&[("index.html", FILE_MODE, b"without rules")]);
        reload.look(&server, ROOM).unwrap();
        assert_eq!(of_b(&server), b"without rules");
        assert_ne!(body(&server, "/x").1, "no such page");
    }
    // Without a site, a file of the table's name is a file.
    host.offer_archive(pack(&[(FILE, FILE_MODE, b"mine")]), 1, false);
    reload.look(&server, ROOM).unwrap();
    assert_eq!(body(&server, "/.tare-site"), (200, "mine".into()));
}

#[test]
fn a_compressed_form_is_of_the_root_that_is_served() {
    let server = old().with_precompressed(Precompressed::On);
    let mut host = HostSide::new();
    let mut reload = host.reload();
    for (plain, gz) in [(b"a1", b"z1"), (b"a2", b"z2")] {
        host.offer(&[("a", FILE_MODE, plain), ("a.gz", FILE_MODE, gz)]);
        reload.look(&server, ROOM).unwrap();
        assert_eq!(get(&server, "/a", "").body, plain);
        let zipped = get(&server, "/a", "Accept-Encoding: gzip\r\n");
        assert_eq!(zipped.body, gz);
    }
}

#[test]
fn a_root_without_memory_is_refused_with_what_is_missing() {
    let (server, mut host) = (old(), HostSide::new());
    let mut reload = host.reload();
    let needed = host.offer(&[("index.html", FILE_MODE, b"new home")]);
    let refusal = refused(reload.look(&server, needed - 7));
    assert_eq!(refusal, Refusal::Memory { missing_bytes: 7 });
    let reply = host.reply().unwrap();
    assert_eq!(reply.answer, Answer::Refused(refusal));
    assert_eq!(body(&server, "/"), (200, "old home".into()));
    assert_eq!(server.counters.reloads_refused.get(), 1);
    // With enough memory it is served, by another request.
    assert_eq!(reload.look(&server, needed), None);
    host.offer(&[("index.html", FILE_MODE, b"new home")]);
    reload.look(&server, needed).unwrap();
    assert_eq!(body(&server, "/"), (200, "new home".into()));
}

#[test]
fn a_bad_root_leaves_the_one_before() {
    let table = |table: Table<'_>| table.to_bytes().unwrap();
    let logs = table(Table {
        log: Log::Json,
        ..Table::default()
    });
    let names_nothing = table(Table {
        missing: Missing::Fallback("none.html"),
        ..Table::default()
    });
    let good = pack(&[("a", FILE_MODE, b"1"), ("b", FILE_MODE, b"2")]);
    let without_end = &good[..good.len() - 124];
    let swapped = pack(&[("b", FILE_MODE, b"2"), ("a", FILE_MODE, b"1")]);
    let twice = pack(&[("a", FILE_MODE, b"2"), ("a", FILE_MODE, b"1")]);
    let outside = pack(&[("../a", FILE_MODE, b"1")]);
    let mut longer_than_it_is = pack(&[("a", FILE_MODE, &[0; 900_000])]);
    longer_than_it_is.truncate(1000);
    let with_site = |bytes: &[u8]| pack(&[(FILE, FILE_MODE, bytes)]);
    let too_long = with_site(&vec![0; MOST_BYTES + 1]);
    let cases: [(&[u8], u32, bool, Refusal); 13] = [
        (&good, 1, false, Refusal::Archive),
        (without_end, 2, false, Refusal::Archive),
        (&swapped, 2, false, Refusal::Archive),
        (&twice, 2, false, Refusal::Archive),
        (&outside, 1, false, Refusal::Archive),
        (&longer_than_it_is, 1, false, Refusal::Archive),
        (&[0; 4000], 1, false, Refusal::Archive),
        (&[], 0, false, Refusal::Archive),
        // A site's table is missing, too long, damaged, or cannot be kept.
        (&good, 2, true, Refusal::Archive),
        (&too_long, 1, true, Refusal::Archive),
        (&with_site(b"tareSITE"), 1, true, Refusal::Table),
        (&with_site(&logs), 1, true, Refusal::Log),
        (&with_site(&names_nothing), 1, true, Refusal::Named),
    ];
    let (server, mut host) = (old(), HostSide::new());
    let mut reload = host.reload();
    for (archive, entries, has_site, expected) in cases {
        host.offer_archive(archive.to_vec(), entries, has_site);
        let refusal = refused(reload.look(&server, ROOM));
        assert_eq!(refusal, expected, "{} bytes", archive.len());
        assert_eq!(body(&server, "/"), (200, "old home".into()));
    }
    // An archive beyond the disk's end.
    let sector = Request {
        generation: 99,
        bytes: 1 << 40,
        entries: 1,
        has_site: false,
    };
    host.disk
        .write(REQUEST_SECTOR, &sector.to_sector())
        .unwrap();
    let refusal = refused(reload.look(&server, u64::MAX));
    assert!(matches!(refusal, Refusal::Archive | Refusal::Disk));
}

/// Between the request and its end another root is written.
#[test]
fn a_request_that_is_withdrawn_gets_no_reply() {
    let (server, mut host) = (old(), HostSide::new());
    let mut reload = host.reload();
    host.offer(&[("index.html", FILE_MODE, b"new home")]);
    host.disk.write(REQUEST_SECTOR, &[0; SECTOR_BYTES]).unwrap();
    assert_eq!(reload.look(&server, ROOM), None);
    assert_eq!(host.reply(), None);
    assert_eq!(body(&server, "/"), (200, "old home".into()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_damaged_archive_is_served_or_refused_as_a_whole(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut archive = pack(&[
            ("a", DIRECTORY_MODE, b""),
            ("a/b", FILE_MODE, b"12345"),
            ("index.html", FILE_MODE, b"new home"),
        ]);
        if cuts {
            archive.truncate(cut.index(archive.len()));
        }
        for (at, byte) in changes {
            if !archive.is_empty() {
                let at = at.index(archive.len());
                archive[at] = byte;
            }
        }
        let (server, mut host) = (old(), HostSide::new());
        let mut reload = host.reload();
        host.offer_archive(archive, 3, false);
        match reload.look(&server, ROOM) {
            Some(Answer::Taken { files }) => prop_assert!(files <= 3),
            _ => prop_assert_eq!(body(&server, "/"), (200, "old home".to_owned())),
        }
    }
}
