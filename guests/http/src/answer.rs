//! Answers: status, head and content, put together for one request.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tare_libos::serve::text::put;
use tare_site::push_encoded;

use crate::conditions::{self, PreconditionResult};
use crate::multipart::{self, Multipart};
use crate::range::{self, Selection};
use crate::request::{Method, Request};
use crate::site::{self, Asset};
use crate::status::Status;
use crate::target::Resource;
use crate::{content_type, decimal};

/// An answer without its `Date` and `Connection` fields.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: Status,
    /// What goes with it.
    pub content: Content,
}

/// What is sent behind the head.
#[derive(Debug)]
pub enum Content {
    /// A complete file with its prepared head.
    Whole(Arc<Asset>),
    /// A range of a file; the head is in the connection's scratch.
    Part(Arc<Asset>, Range<usize>),
    /// Several ranges of a file; the head is in the connection's scratch.
    Parts(Box<Multipart>),
    /// Bytes of memory that stays; the head is in the connection's scratch.
    Static(&'static [u8]),
    /// Bytes made for this answer; the head is in the connection's scratch.
    Owned(Vec<u8>),
}

const TEXT_TYPE: &[u8] = b"Content-Type: text/plain; charset=utf-8\r\n";

/// An answer that only states its status; `fields` are whole lines.
pub(crate) fn plain(head: &mut Vec<u8>, status: Status, fields: &[u8]) -> Answer {
    put(head, status.line());
    put(head, TEXT_TYPE);
    push_length(head, status.text().len());
    put(head, fields);
    Answer {
        status,
        content: Content::Static(status.text()),
    }
}

/// An answer whose content is the file at `path`, in its plain form. It has no validators:
/// they would be those of the file, which is not what was requested.
pub(crate) fn page(head: &mut Vec<u8>, status: Status, path: &str, asset: Arc<Asset>) -> Answer {
    put(head, status.line());
    put(head, b"Content-Type: ");
    put(head, content_type::of(path).as_bytes());
    put(head, b"\r\n");
    push_length(head, asset.bytes.len());
    let whole = 0..asset.bytes.len();
    Answer {
        status,
        content: Content::Part(asset, whole),
    }
}

/// An answer with a text that was made for it; `fields` are whole lines.
pub(crate) fn owned(head: &mut Vec<u8>, fields: &[u8], text: Vec<u8>) -> Answer {
    put(head, Status::Ok.line());
    put(head, fields);
    push_length(head, text.len());
    Answer {
        status: Status::Ok,
        content: Content::Owned(text),
    }
}

/// What may be done with a resource of this server.
pub(crate) const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

/// The answer to OPTIONS.
pub(crate) fn options(head: &mut Vec<u8>) -> Answer {
    put(head, Status::Ok.line());
    put(head, ALLOW);
    push_length(head, 0);
    Answer {
        status: Status::Ok,
        content: Content::Static(b""),
    }
}

/// The answer with a file, as far as conditions and range allow.
pub(crate) fn answer_file(request: &Request<'_>, asset: Arc<Asset>, head: &mut Vec<u8>) -> Answer {
    let file = asset.validators();
    match conditions::evaluate(&request.conditions, &file) {
        PreconditionResult::Failed => return plain(head, Status::PreconditionFailed, b""),
        PreconditionResult::NotModified => {
            put(head, Status::NotModified.line());
            put(head, asset.validated());
            return Answer {
                status: Status::NotModified,
                content: Content::Static(b""),
            };
        }
        PreconditionResult::Proceed => {}
    }
    // Ranges are defined for GET only (RFC 9110, 14.2).
    let range = request.range.filter(|_| {
        request.method == Method::Get && conditions::range_applies(request.if_range, &file)
    });
    match range.map(|field| range::select(field, asset.bytes.len() as u64)) {
        None | Some(Selection::Whole) => Answer {
            status: Status::Ok,
            content: Content::Whole(asset),
        },
        Some(Selection::Part(part)) => {
            site::push_part_head(head, &asset, part);
            Answer {
                status: Status::PartialContent,
                content: Content::Part(asset, multipart::bytes_of(part)),
            }
        }
        Some(Selection::Parts(parts)) => {
            let parts = Multipart::new(asset, &parts);
            parts.push_head(head);
            Answer {
                status: Status::PartialContent,
                content: Content::Parts(Box::new(parts)),
            }
        }
        Some(Selection::Unsatisfiable) => {
            let mut field = b"Content-Range: bytes */".to_vec();
            decimal::push(&mut field, asset.bytes.len() as u64);
            put(&mut field, b"\r\n");
            plain(head, Status::RangeNotSatisfiable, &field)
        }
    }
}

/// 301 to the same directory with its slash. The path is written anew from the
/// resolved one: what the client sent could name another host (`//host/`).
pub(crate) fn redirect(head: &mut Vec<u8>, resource: &Resource<'_>) -> Answer {
    let mut field = b"Location: /".to_vec();
    for &byte in resource.path.as_bytes() {
        push_encoded(&mut field, byte);
    }
    field.push(b'/');
    if let Some(query) = resource.query {
        field.push(b'?');
        put(&mut field, query.as_bytes());
    }
    put(&mut field, b"\r\n");
    plain(head, Status::MovedPermanently, &field)
}

/// Appends `Content-Length`.
pub(crate) fn push_length(head: &mut Vec<u8>, len: usize) {
    put(head, b"Content-Length: ");
    decimal::push(head, len as u64);
    put(head, b"\r\n");
}
