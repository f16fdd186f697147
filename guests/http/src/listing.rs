//! The page that lists a directory.
//!
//! Names come from whoever made the files: they are escaped for HTML and for addresses,
//! and each link begins with `./`, so that no name reads as a scheme. Entries and bytes are
//! bounded; what is beyond them is counted on the page.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;

use tare_libos::serve::text::put;
use tare_site::push_encoded;

use crate::decimal;

/// Most entries of a page.
pub(crate) const MOST_ENTRIES: usize = 4096;
/// Most bytes of a page, but for its last lines.
const MOST_BYTES: usize = 512 * 1024;
/// Memory that a listing may take while it is made: entries with the longest names, and a
/// page that grows.
pub(crate) const MOST_MEMORY: u64 = 3 * 1024 * 1024;

/// What a directory has; the order is that of the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Its name.
    pub name: String,
    /// Its length in bytes, if it is a file.
    pub len: u64,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// The first entries of a directory.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    pub(crate) some: Vec<Entry>,
    pub(crate) more: u64,
}

impl Entries {
    /// Adds an entry, unless the directory has too many or its name begins with a dot.
    pub fn add(&mut self, name: &str, kind: EntryKind, len: u64) {
        if name.starts_with('.') {
            return;
        }
        if self.some.len() >= MOST_ENTRIES {
            self.more += 1;
            return;
        }
        self.some.push(Entry {
            kind,
            name: String::from(name),
            len,
        });
    }
}

/// The page for the directory at `path`, named from the root.
pub(crate) fn page(path: &str, entries: Entries) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    put(
        &mut out,
        b"<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>/",
    );
    push_text(&mut out, path.as_bytes());
    put(&mut out, b"</title>\n<h1>/");
    push_text(&mut out, path.as_bytes());
    put(&mut out, b"</h1>\n<table>\n");
    if !path.is_empty() {
        put(&mut out, b"<tr><td><a href=\"../\">../</a><td>\n");
    }
    let Entries { some, mut more } = entries;
    // A heap sorts in place and in few instructions of the image.
    for entry in BinaryHeap::from(some).into_sorted_vec() {
        if out.len() < MOST_BYTES {
            push_entry(&mut out, &entry);
        } else {
            more += 1;
        }
    }
    put(&mut out, b"</table>\n");
    if more > 0 {
        put(&mut out, b"<p>");
        decimal::push(&mut out, more);
        put(&mut out, b" more\n");
    }
    out
}

fn push_entry(out: &mut Vec<u8>, entry: &Entry) {
    let name = entry.name.as_bytes();
    let slash: &[u8] = match entry.kind {
        EntryKind::Directory => b"/",
        EntryKind::File => b"",
    };
    let mut address = b"./".to_vec();
    name.iter()
        .for_each(|&byte| push_encoded(&mut address, byte));
    put(out, b"<tr><td><a href=\"");
    push_text(out, &address);
    put(out, slash);
    put(out, b"\">");
    push_text(out, name);
    put(out, slash);
    put(out, b"</a><td align=right>");
    if entry.kind == EntryKind::File {
        decimal::push(out, entry.len);
    }
    out.push(b'\n');
}

/// Appends text that stays text in an element and in an attribute with double quotes.
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'&' => put(out, b"&amp;"),
            b'<' => put(out, b"&lt;"),
            b'>' => put(out, b"&gt;"),
            b'"' => put(out, b"&quot;"),
            byte => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page_of(path: &str, names: &[(&str, EntryKind, u64)]) -> String {
        let mut entries = Entries::default();
        for (name, kind, len) in names {
            entries.add(name, *kind, *len);
        }
        String::from_utf8(page(path, entries)).unwrap()
    }

    #[test]
    fn directories_come_first_and_names_are_sorted() {
        use EntryKind::{Directory, File};
        let names = [
            ("b", File, 7),
            ("a", File, 1234),
            (".hidden", File, 1),
            ("z", Directory, 0),
        ];
        let page = page_of("pub/x", &names);
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("<tr>"))
            .collect();
        let expected = [
            "<tr><td><a href=\"../\">../</a><td>",
            "<tr><td><a href=\"./z/\">z/</a><td align=right>",
            "<tr><td><a href=\"./a\">a</a><td align=right>1234",
            "<tr><td><a href=\"./b\">b</a><td align=right>7",
        ];
        assert_eq!(rows, expected);
        assert!(page.contains("<title>/pub/x</title>"));
        assert!(!page_of("", &names).contains("../"));
    }

    #[test]
    fn names_are_escaped_for_text_and_address() {
        let name = "<b a=\"1\">&amp; %41?#ä";
        let page = page_of("x&<y>", &[(name, EntryKind::File, 1)]);
        assert!(page.contains("<h1>/x&amp;&lt;y&gt;</h1>"), "{page}");
        let row = "<a href=\"./%3Cb%20a=%221%22%3E&amp;amp;%20%2541%3F%23%C3%A4\">\
            &lt;b a=&quot;1&quot;&gt;&amp;amp; %41?#ä</a>";
        assert!(page.contains(row), "{page}");
        let scheme = page_of("", &[("javascript:alert(1)", EntryKind::File, 1)]);
        assert!(scheme.contains("href=\"./javascript:"), "{scheme}");
    }

    #[test]
    fn entries_and_bytes_are_bounded() {
        let count = |name: &dyn Fn(usize) -> String, entries: usize| {
            let mut all = Entries::default();
            (0..entries).for_each(|n| all.add(&name(n), EntryKind::File, 1));
            let page = page("", all);
            assert!(page.len() < MOST_BYTES + 8192, "{}", page.len());
            let text = String::from_utf8(page).unwrap();
            (text.matches("<tr>").count(), text.ends_with(" more\n"))
        };
        assert_eq!(
            count(&|n| format!("{n}"), MOST_ENTRIES),
            (MOST_ENTRIES, false)
        );
        let text = |n: usize| format!("{n}");
        assert_eq!(count(&text, MOST_ENTRIES + 1), (MOST_ENTRIES, true));
        let (rows, more) = count(&|n| format!("{n:0>5}{}", "\"".repeat(250)), MOST_ENTRIES);
        assert!(rows < MOST_ENTRIES / 4 && more);
    }

    proptest! {
        #[test]
        fn no_name_leaves_its_link(name in "[ -~äb]{1,40}") {
            let page = page_of("", &[(&name, EntryKind::File, 1)]);
            let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("<tr>")).collect();
            if name.starts_with('.') {
                prop_assert!(rows.is_empty());
            } else {
                prop_assert_eq!(rows.len(), 1);
                prop_assert_eq!(rows[0].matches('<').count(), 5);
                prop_assert_eq!(rows[0].matches('"').count(), 2);
            }
        }
    }
}
