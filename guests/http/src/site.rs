//! The files that are served: lookup, and what is worked out once per file.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tare_libos::fs::Content;
use tare_libos::serve::text::put;
use tare_libos::sync::Mutex;

use crate::conditions::Validators;
use crate::encoding::{self, Encoding};
use crate::listing::Entries;
use crate::range::Part;
use crate::request::Lines;
use crate::status::Status;
use crate::{content_type, decimal, http_date};

/// Where files come from. A content is a handle: on the appliance it leads to the
/// initramfs or to what was read from a disk, and is sent without a copy.
pub trait Files {
    /// What is at `path`, which is clean and relative; `None` for nothing.
    fn find(&self, path: &str) -> Result<Option<Node>, FindError>;

    /// Time of the last change of the file at `path`, seconds since 1970, without reading
    /// it; `None` for no file, and where that is not known.
    fn modified_s(&self, path: &str) -> Option<u64> {
        match self.find(path) {
            Ok(Some(Node::File { modified_s, .. })) => Some(modified_s),
            _ => None,
        }
    }

    /// What is in the directory at `path`.
    fn list(&self, path: &str) -> Result<Entries, FindError>;
}

/// Why a path cannot be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is a file, and no memory for it now.
    #[error("no memory for the file")]
    NoMemory,
    /// The file, or a directory on the way to it, cannot be read.
    #[error("the file cannot be read")]
    Unreadable,
}

/// A file or a directory.
#[derive(Clone, Debug)]
pub enum Node {
    /// A regular file.
    File {
        /// Its content.
        bytes: Content,
        /// Time of its last change, seconds since 1970.
        modified_s: u64,
    },
    /// A directory.
    Directory,
}

/// A file ready to be sent: content and the part of the head that depends on
/// nothing else.
#[derive(Debug)]
pub struct Asset {
    /// The content.
    pub bytes: Content,
    /// Status line and fields of a complete answer, up to Content-Length.
    head: Box<[u8]>,
    modified_s: u64,
    etag: Range<usize>,
    last_modified: Range<usize>,
    /// Content-Type to Accept-Ranges, as whole lines.
    described: Range<usize>,
    /// Added fields, Last-Modified, ETag and Vary, as whole lines.
    validated: Range<usize>,
    /// The same in other codings.
    encoded: Option<Box<Encoded>>,
}

/// The forms of a file in other codings: which there are, each loaded when a client first
/// wants it.
#[derive(Debug)]
pub(crate) struct Encoded {
    path: Box<str>,
    forms: [Option<Mutex<Option<Arc<Asset>>>>; Encoding::ALL.len()],
}

impl Encoded {
    /// Those that `is_there` says of the file at `path`; `None` for none.
    pub(crate) fn of(path: &str, is_there: impl Fn(Encoding) -> bool) -> Option<Box<Self>> {
        let forms = Encoding::ALL.map(|it| is_there(it).then(Mutex::default));
        let path = Box::from(path);
        let any = forms.iter().any(Option::is_some);
        any.then(|| Box::new(Self { path, forms }))
    }

    /// The form that is wanted at least as much as the plain one, and most.
    #[cold]
    fn wanted(
        &self,
        accepted: &Lines<'_>,
        load: impl Fn(&str, Encoding) -> Option<Arc<Asset>>,
    ) -> Option<Arc<Asset>> {
        let least = encoding::identity_weight(accepted).max(1);
        let mut weights = Encoding::ALL.map(|it| it.weight(accepted));
        loop {
            // Of equals the first.
            let places = (0..weights.len()).rev();
            let most = places.max_by_key(|&place| weights[place])?;
            if weights[most] < least {
                return None;
            }
            weights[most] = 0;
            let Some(form) = &self.forms[most] else {
                continue;
            };
            let mut form = form.lock();
            if form.is_none() {
                *form = load(&self.path, Encoding::ALL[most]);
            }
            if form.is_some() {
                return form.clone();
            }
        }
    }
}

/// Which of its forms an asset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The only one.
    Only,
    /// The plain one of several.
    Plain,
    /// One of several, in this coding.
    Encoded(Encoding),
}

impl Asset {
    /// Prepares the head of a file's answers. A file from the future counts as
    /// changed `now_s`, seconds since 1970 (RFC 9110, 8.8.2.1).
    pub fn new(path: &str, bytes: Content, modified_s: u64, now_s: u64) -> Self {
        Self::in_form(Form::Only, path, b"", bytes, modified_s, now_s)
    }

    /// The same for one of several forms of the file at `path`, with `added` fields, which
    /// are whole lines.
    pub(crate) fn in_form(
        form: Form,
        path: &str,
        added: &[u8],
        bytes: Content,
        modified_s: u64,
        now_s: u64,
    ) -> Self {
        let shown_s = modified_s.min(now_s);
        let mut head = Vec::with_capacity(256);
        let mut field = |name: &[u8], value: &dyn Fn(&mut Vec<u8>)| -> Range<usize> {
            head.extend_from_slice(name);
            let start = head.len();
            value(&mut head);
            let value = start..head.len();
            head.extend_from_slice(b"\r\n");
            value
        };
        field(b"HTTP/1.1 200 OK", &|_| {});
        let kind = field(b"Content-Type: ", &|out| {
            out.extend_from_slice(content_type::of(path).as_bytes());
        });
        if let Form::Encoded(encoding) = form {
            field(b"Content-Encoding: ", &|out| {
                out.extend_from_slice(encoding.name().as_bytes());
            });
        }
        // Cache-Control must be in a 304 too, so that the added fields are beside the validators.
        if let Some(lines) = added.strip_suffix(b"\r\n") {
            field(lines, &|_| {});
        }
        let last_modified = field(b"Last-Modified: ", &|out| {
            out.extend_from_slice(&http_date::format(shown_s));
        });
        let etag = field(b"ETag: ", &|out| {
            push_etag(out, modified_s, bytes.len() as u64, form);
        });
        let varies = match form {
            Form::Only => etag.clone(),
            Form::Plain | Form::Encoded(_) => field(b"Vary: ", &|out| {
                out.extend_from_slice(b"Accept-Encoding");
            }),
        };
        let ranges = field(b"Accept-Ranges: ", &|out| out.extend_from_slice(b"bytes"));
        field(b"Content-Length: ", &|out| {
            decimal::push(out, bytes.len() as u64)
        });
        Self {
            bytes,
            head: head.into_boxed_slice(),
            modified_s: shown_s,
            described: kind.start - b"Content-Type: ".len()..ranges.end + 2,
            validated: last_modified.start - b"Last-Modified: ".len() - added.len()..varies.end + 2,
            etag,
            last_modified,
            encoded: None,
        }
    }

    /// With the same file in other codings.
    pub(crate) fn with_encoded(self, encoded: Option<Box<Encoded>>) -> Self {
        Self { encoded, ..self }
    }

    /// The form that a client wants most, by its `Accept-Encoding`. `load` gives the file at
    /// a path in a coding; a form that it cannot give counts as not there.
    #[inline]
    pub(crate) fn accepted(
        self: Arc<Self>,
        accepted: &Lines<'_>,
        load: impl Fn(&str, Encoding) -> Option<Arc<Self>>,
    ) -> Arc<Self> {
        match &self.encoded {
            Some(encoded) if !accepted.is_empty() => encoded.wanted(accepted, load).unwrap_or(self),
            _ => self,
        }
    }

    /// Status line and fields of a complete answer.
    pub(crate) fn ok_head(&self) -> &[u8] {
        &self.head
    }

    /// The fields that describe the file, for an answer with a part of it.
    pub fn described(&self) -> &[u8] {
        &self.head[self.described.clone()]
    }

    /// The fields that identify its version and those that were added, for an answer without
    /// content.
    pub(crate) fn validated(&self) -> &[u8] {
        &self.head[self.validated.clone()]
    }

    /// What preconditions are compared with.
    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators {
            etag: &self.head[self.etag.clone()],
            last_modified: &self.head[self.last_modified.clone()],
            modified_s: self.modified_s,
        }
    }
}

fn push_etag(out: &mut Vec<u8>, modified_s: u64, len: u64, form: Form) {
    out.push(b'"');
    decimal::push_hex(out, modified_s);
    out.push(b'-');
    decimal::push_hex(out, len);
    if let Form::Encoded(encoding) = form {
        out.push(b'-');
        out.extend_from_slice(encoding.name().as_bytes());
    }
    out.push(b'"');
}

/// Slots of [`Assets`], a power of two.
const SLOTS: usize = 128;
/// Longer targets are looked up each time.
const LONGEST_KEY: usize = 128;

/// The assets asked for lately, by target as sent: a hit costs a hash and a
/// compare instead of resolving, looking up and building a head. Each slot
/// holds what came last, so a client can waste time but no memory.
pub(crate) struct Assets(Mutex<Latest>);

struct Latest {
    slots: Vec<Option<Slot>>,
    /// The root that they are of.
    generation: u64,
}

/// A target as sent, and what it named.
type Slot = (Box<str>, Arc<Asset>);

impl Assets {
    /// None yet, of the root of that generation.
    pub(crate) fn of(generation: u64) -> Self {
        Self(Mutex::new(Latest {
            slots: (0..SLOTS).map(|_| None).collect(),
            generation,
        }))
    }

    // A part of each request.
    #[inline(always)]
    pub(crate) fn get(&self, target: &str) -> Option<Arc<Asset>> {
        let latest = self.0.lock();
        let (key, asset) = latest.slots[slot(target)].as_ref()?;
        (**key == *target).then(|| Arc::clone(asset))
    }

    /// Forgets all, so that unused memory is freed.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Forgets all, and keeps assets of the root of that generation from now on.
    pub(crate) fn begin(&self, generation: u64) {
        let mut latest = self.0.lock();
        latest.clear();
        latest.generation = generation;
    }

    /// Keeps an asset, unless its root, of that generation, has been replaced meanwhile.
    pub(crate) fn put(&self, target: &str, asset: &Arc<Asset>, generation: u64) {
        if target.len() > LONGEST_KEY {
            return;
        }
        let entry = (Box::from(target), Arc::clone(asset));
        let mut latest = self.0.lock();
        if latest.generation != generation {
            return;
        }
        // The old entry is freed after the lock is released.
        let old = latest.slots[slot(target)].replace(entry);
        drop(latest);
        drop(old);
    }
}

impl Latest {
    fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = None);
    }
}

/// FNV-1a.
fn slot(target: &str) -> usize {
    let hash = target.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ (hash >> 16)) as usize & (SLOTS - 1)
}

/// Appends the fields of an answer with a part of the asset.
pub(crate) fn push_part_head(out: &mut Vec<u8>, asset: &Asset, part: Part) {
    put(out, Status::PartialContent.line());
    put(out, asset.described());
    push_content_range(out, asset, part);
    put(out, b"Content-Length: ");
    decimal::push(out, part.last - part.first + 1);
    put(out, b"\r\n");
}

/// Appends `Content-Range`.
pub(crate) fn push_content_range(out: &mut Vec<u8>, asset: &Asset, part: Part) {
    put(out, b"Content-Range: bytes ");
    decimal::push(out, part.first);
    out.push(b'-');
    decimal::push(out, part.last);
    out.push(b'/');
    decimal::push(out, asset.bytes.len() as u64);
    put(out, b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_an_asset_is_complete_and_short() {
        let asset = Asset::new(
            "a/b.html",
            Content::archived(b"hello"),
            784_111_777,
            u64::MAX,
        );
        let expected = "HTTP/1.1 200 OK\r\n\
            Content-Type: text/html; charset=utf-8\r\n\
            Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
            ETag: \"2ebc98a1-5\"\r\n\
            Accept-Ranges: bytes\r\n\
            Content-Length: 5\r\n";
        assert_eq!(asset.ok_head(), expected.as_bytes());
        assert_eq!(asset.validators().etag, b"\"2ebc98a1-5\"");
        assert!(asset.described().starts_with(b"Content-Type"));
        assert!(asset.described().ends_with(b"bytes\r\n"));
        assert!(asset.validated().starts_with(b"Last-Modified: "));
        assert!(asset.validated().ends_with(b"\"2ebc98a1-5\"\r\n"));
    }

    #[test]
    fn added_fields_are_in_each_answer_with_the_file() {
        let added = b"Cache-Control: no-cache\r\nX-A: 1\r\n";
        let bytes = Content::archived(b"hello");
        let asset = Asset::in_form(Form::Plain, "a.html", added, bytes, 0, 0);
        let with_added = |part: &[u8]| {
            let text = core::str::from_utf8(part).unwrap_or_default();
            text.contains("\r\nCache-Control: no-cache\r\nX-A: 1\r\nLast-Modified: ")
        };
        assert!(with_added(asset.ok_head()) && with_added(asset.described()));
        let validated = core::str::from_utf8(asset.validated()).unwrap_or_default();
        assert!(validated.starts_with("Cache-Control: no-cache\r\nX-A: 1\r\nLast-Modified: "));
        assert!(validated.ends_with("\r\nVary: Accept-Encoding\r\n"));
    }

    #[test]
    fn a_file_from_the_future_is_dated_now_and_keeps_its_tag() {
        let asset = Asset::new("a", Content::archived(b""), 2_000_000_000, 1_000);
        assert_eq!(asset.validators().modified_s, 1_000);
        assert_eq!(asset.validators().etag, b"\"77359400-0\"");
    }

    #[test]
    fn a_slot_never_answers_for_another_target() {
        let assets = Assets::of(7);
        let asset = Arc::new(Asset::new("a", Content::archived(b""), 0, 0));
        for i in 0..1_000 {
            let target = alloc::format!("/{i}");
            assert!(assets.get(&target).is_none());
            assets.put(&target, &asset, 7);
            assert!(assets.get(&target).is_some());
        }
        let long = "/".repeat(LONGEST_KEY + 1);
        assets.put(&long, &asset, 7);
        assert!(assets.get(&long).is_none());
    }

    #[test]
    fn an_asset_of_an_earlier_root_is_not_kept() {
        let assets = Assets::of(0);
        let asset = Arc::new(Asset::new("a", Content::archived(b""), 0, 0));
        assets.put("/a", &asset, 0);
        assets.begin(1);
        assert!(assets.get("/a").is_none());
        // Looked up before the change, put after it.
        assets.put("/a", &asset, 0);
        assert!(assets.get("/a").is_none());
        assets.put("/a", &asset, 1);
        assert!(assets.get("/a").is_some());
    }
}
