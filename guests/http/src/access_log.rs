//! The access log: a line for each answer, in the combined format or as JSON.
//!
//! Lines wait in memory for the thread that writes them, which is bounded: a line without room
//! is dropped and counted, and no request waits for the console. What a client controls is
//! escaped byte by byte (`\xHH`, in JSON `\u00HH`) unless it is printable ASCII, and cut to
//! `MOST_TEXT` bytes: no line is made to look like two, or like a terminal's command.

use alloc::vec::Vec;
use core::fmt::Write as _;

use tare_libos::net::IpAddr;
use tare_libos::serve::text::put;
use tare_libos::sync::{Event, Mutex};

use crate::status::Status;
use crate::{decimal, http_date};

/// Bytes of lines that wait.
const MOST_WAITING: usize = 32 * 1024;
/// Most bytes of a text of the client, once it is escaped.
const MOST_TEXT: usize = 384;
/// Most bytes of a line: four texts, and the server's own.
const MOST_LINE: usize = 4 * MOST_TEXT + 384;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As Apache's and nginx's `combined`.
    Combined,
    /// An object a line.
    Json,
}

/// Lines that wait to be written.
pub struct AccessLog {
    format: Format,
    waiting: Mutex<Vec<u8>>,
    changed: Event,
}

/// An answer, as far as the log wants it.
pub(crate) struct Entry<'a> {
    /// The bytes of the request's head, or what came of one that is refused.
    pub(crate) head: &'a [u8],
    pub(crate) client: Option<IpAddr>,
    pub(crate) unix_s: u64,
    pub(crate) status: Status,
    /// Bytes of content that were sent.
    pub(crate) bytes: u64,
}

impl AccessLog {
    /// A log without lines, which takes its memory now.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            waiting: Mutex::new(Vec::with_capacity(MOST_WAITING)),
            changed: Event::new(),
        }
    }

    /// Adds a line; false if there is no room.
    pub(crate) fn add(&self, entry: &Entry<'_>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() + MOST_LINE > MOST_WAITING {
            return false;
        }
        match self.format {
            Format::Combined => push_combined(&mut waiting, entry),
            Format::Json => push_json(&mut waiting, entry),
        }
        drop(waiting);
        self.changed.set();
        true
    }

    /// Waits for lines and exchanges them with `written`, which is emptied.
    pub fn wait(&self, written: &mut Vec<u8>) {
        written.clear();
        written.reserve(MOST_WAITING);
        while written.is_empty() {
            core::mem::swap(written, &mut *self.waiting.lock());
            if written.is_empty() {
                self.changed.wait();
            }
        }
    }
}

fn push_combined(out: &mut Vec<u8>, entry: &Entry<'_>) {
    push_client(out, entry.client);
    let date = http_date::format(entry.unix_s);
    let parts = [
        b" - - [",
        &date[5..7],
        b"/",
        &date[8..11],
        b"/",
        &date[12..16],
        b":",
        &date[17..25],
        b" +0000] \"",
    ];
    parts.iter().for_each(|part| put(out, part));
    push_text(out, first_line(entry.head), b"\\x");
    put(out, b"\" ");
    decimal::push(out, entry.status.code().into());
    out.push(b' ');
    decimal::push(out, entry.bytes);
    for name in [&b"referer"[..], b"user-agent"] {
        put(out, b" \"");
        push_text(out, field(entry.head, name).unwrap_or(b"-"), b"\\x");
        out.push(b'"');
    }
    out.push(b'\n');
}

fn push_json(out: &mut Vec<u8>, entry: &Entry<'_>) {
    put(out, b"{\"time\":\"");
    put(out, &http_date::iso(entry.unix_s));
    put(out, b"\",\"client\":\"");
    push_client(out, entry.client);
    put(out, b"\",\"status\":");
    decimal::push(out, entry.status.code().into());
    put(out, b",\"bytes\":");
    decimal::push(out, entry.bytes);
    for (key, value) in [
        (&b"request"[..], Some(first_line(entry.head))),
        (b"host", field(entry.head, b"host")),
        (b"referer", field(entry.head, b"referer")),
        (b"user_agent", field(entry.head, b"user-agent")),
    ] {
        put(out, b",\"");
        put(out, key);
        put(out, b"\":\"");
        push_text(out, value.unwrap_or_default(), b"\\u00");
        out.push(b'"');
    }
    put(out, b"}\n");
}

fn push_client(out: &mut Vec<u8>, client: Option<IpAddr>) {
    let mut text = Text(out);
    let written = match client {
        Some(client) => write!(text, "{client}"),
        None => write!(text, "-"),
    };
    // A vector takes everything.
    debug_assert!(written.is_ok());
}

struct Text<'a>(&'a mut Vec<u8>);

impl core::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends a client's bytes, of which those that are not plain are escaped by `prefix` and two
/// hexadecimal digits.
fn push_text(out: &mut Vec<u8>, text: &[u8], prefix: &[u8]) {
    let most = out.len() + MOST_TEXT - prefix.len() - 2;
    for &byte in text {
        if out.len() > most {
            return;
        }
        if matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\') {
            out.push(byte);
        } else {
            put(out, prefix);
            out.extend([byte >> 4, byte & 15].map(|half| b"0123456789abcdef"[usize::from(half)]));
        }
    }
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = head.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn first_line(head: &[u8]) -> &[u8] {
    lines(head).next().unwrap_or_default()
}

/// The value of the first field of that name, which is in lower case.
fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let fields = lines(head).skip(1).take_while(|line| !line.is_empty());
    fields
        .filter_map(|line| line.split_at_checked(name.len()))
        .filter(|(start, _)| start.eq_ignore_ascii_case(name))
        .find_map(|(_, value)| value.strip_prefix(b":"))
        .map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use proptest::prelude::*;

    use super::*;

    const HEAD: &[u8] = b"GET /a?b HTTP/1.1\r\nHost: x.example\r\nREFERER: http://y/\r\n\
        User-Agent: curl/8 \r\n\r\nReferer: of the body";

    fn entry(head: &[u8]) -> Entry<'_> {
        Entry {
            head,
            client: Some(IpAddr::from([192, 0, 2, 7])),
            unix_s: 784_111_777,
            status: Status::PartialContent,
            bytes: 1234,
        }
    }

    fn line(format: Format, head: &[u8]) -> String {
        let log = AccessLog::new(format);
        assert!(log.add(&entry(head)));
        let mut written = Vec::new();
        log.wait(&mut written);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn both_formats_have_what_a_request_said() {
        assert_eq!(
            line(Format::Combined, HEAD),
            "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 206 1234 \
             \"http://y/\" \"curl/8\"\n"
        );
        assert_eq!(
            line(Format::Json, HEAD),
            "{\"time\":\"1994-11-06T08:49:37Z\",\"client\":\"192.0.2.7\",\"status\":206,\
             \"bytes\":1234,\"request\":\"GET /a?b HTTP/1.1\",\"host\":\"x.example\",\
             \"referer\":\"http://y/\",\"user_agent\":\"curl/8\"}\n"
        );
        let empty = line(Format::Combined, b"");
        assert!(
            empty.ends_with("+0000] \"\" 206 1234 \"-\" \"-\"\n"),
            "{empty}"
        );
    }

    #[test]
    fn what_a_client_sends_stays_in_its_place() {
        let head = b"GET /\"\\\x1b[2J\xc2\x9b HTTP/1.1\r\nUser-Agent: a\rb\"}\r\n\r\n";
        let combined = line(Format::Combined, head);
        let expected = "\"GET /\\x22\\x5c\\x1b[2J\\xc2\\x9b HTTP/1.1\"";
        assert!(combined.contains(expected), "{combined}");
        assert!(combined.ends_with("\"a\\x0db\\x22}\"\n"), "{combined}");
        let json = line(Format::Json, head);
        assert!(json.contains("\"a\\u000db\\u0022}\""), "{json}");
    }

    #[test]
    fn lines_that_wait_are_bounded_and_each_is_short() {
        let log = AccessLog::new(Format::Json);
        let text = [0xff; 16 * 1024];
        let head = [
            &text[..],
            b"\r\nHost: ",
            &text,
            b"\r\nReferer: ",
            &text,
            b"\r\nUser-Agent: ",
            &text,
            b"\r\n",
        ]
        .concat();
        let mut longest = entry(&head);
        longest.client = Some(IpAddr::from([0xffff_u16; 8]));
        (longest.bytes, longest.unix_s) = (u64::MAX, u64::MAX);
        let added = (0..1000).take_while(|_| log.add(&longest)).count();
        assert!((10..1000).contains(&added), "{added}");
        let mut written = Vec::new();
        log.wait(&mut written);
        assert!(written.capacity() <= MOST_WAITING, "never grown");
        assert_eq!(written.split(|byte| *byte == b'\n').count(), added + 1);
        assert!(written.len() / added <= MOST_LINE);
        assert!(log.add(&longest), "there is room again");
    }

    proptest! {
        #[test]
        fn a_line_is_one_line_of_printable_ascii(head in prop::collection::vec(any::<u8>(), 0..300)) {
            for format in [Format::Combined, Format::Json] {
                let line = line(format, &head);
                let text = line.strip_suffix('\n').unwrap();
                prop_assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
                let quotes = text.matches('"').count();
                prop_assert_eq!(quotes, if format == Format::Json { 28 } else { 6 });
            }
        }
    }
}
