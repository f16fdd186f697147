//! One server: its files, counters and clock, and what it answers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::sync::Mutex;

use crate::answer::{Answer, Content, answer_file, plain, push_length, redirect};
use crate::counters::Counters;
use crate::http_date;
use crate::request::{Method, Request};
use crate::site::{Asset, Assets, Files, Node};
use crate::status::Status;
use crate::target::{self, Form, Resource, TargetError};

/// The machine below a server: files, wall clock, figures of its own.
pub trait Platform: Files {
    /// Seconds since 1970.
    fn unix_s(&self) -> u64;

    /// Appends the machine's figures in Prometheus' text format.
    fn expose(&self, out: &mut Vec<u8>);
}

/// What all connections of a server share.
pub struct Server<P> {
    platform: P,
    assets: Assets,
    date: Mutex<DateLine>,
    /// What has been counted.
    pub counters: Counters,
}

/// Path of the server's figures from the root.
const METRICS: &str = "metrics";
const METRICS_TYPE: &[u8] = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";

impl<P: Platform> Server<P> {
    /// A server of the platform's files.
    pub fn new(platform: P) -> Self {
        Self {
            platform,
            assets: Assets::new(),
            date: Mutex::new(DateLine::at(u64::MAX)),
            counters: Counters::default(),
        }
    }

    /// The machine below.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// `Date` as a line, worked out once a second.
    pub fn date_line(&self) -> [u8; DATE_LINE] {
        let unix_s = self.platform.unix_s();
        let mut cached = self.date.lock();
        if cached.unix_s != unix_s {
            *cached = DateLine::at(unix_s);
        }
        cached.line
    }

    /// The answer to `request`. Unless it is a whole file, its status line and
    /// fields are put into `head`.
    pub fn answer(&self, request: &Request<'_>, head: &mut Vec<u8>) -> Answer {
        if request.method == Method::NotAllowed {
            return plain(head, Status::MethodNotAllowed, b"Allow: GET, HEAD\r\n");
        }
        if let Some(asset) = self.assets.get(request.target) {
            return answer_file(request, asset, head);
        }
        self.answer_unknown(request, head)
    }

    /// The way of a target that is not among the latest ones.
    fn answer_unknown(&self, request: &Request<'_>, head: &mut Vec<u8>) -> Answer {
        let mut scratch = Vec::new();
        let resource = match target::resolve(request.target, &mut scratch) {
            Ok(resource) => resource,
            Err(TargetError::NotUtf8) => return plain(head, Status::NotFound, b""),
            Err(_) => return plain(head, Status::BadRequest, b""),
        };
        if resource.path == METRICS && resource.form == Form::Name {
            return self.answer_metrics(head);
        }
        match self.find(&resource) {
            Found::Asset(asset) => {
                self.assets.put(request.target, &asset);
                answer_file(request, asset, head)
            }
            Found::DirectoryWithoutSlash => redirect(head, &resource),
            Found::Nothing => plain(head, Status::NotFound, b""),
        }
    }

    fn find(&self, resource: &Resource<'_>) -> Found {
        match (self.platform.find(resource.path), resource.form) {
            (Some(Node::File { bytes, modified_s }), Form::Name) => {
                self.prepare(resource.path, bytes, modified_s)
            }
            (Some(Node::Directory), Form::Name) => Found::DirectoryWithoutSlash,
            (Some(Node::Directory), Form::Directory) => self.find_index(resource.path),
            _ => Found::Nothing,
        }
    }

    fn find_index(&self, directory: &str) -> Found {
        let parts = if directory.is_empty() {
            ["", ""]
        } else {
            [directory, "/"]
        };
        let path = [parts[0], parts[1], "index.html"].concat();
        match self.platform.find(&path) {
            Some(Node::File { bytes, modified_s }) => self.prepare(&path, bytes, modified_s),
            _ => Found::Nothing,
        }
    }

    fn prepare(&self, path: &str, bytes: &'static [u8], modified_s: u64) -> Found {
        let now_s = self.platform.unix_s();
        Found::Asset(Arc::new(Asset::new(path, bytes, modified_s, now_s)))
    }

    fn answer_metrics(&self, head: &mut Vec<u8>) -> Answer {
        let mut text = Vec::with_capacity(4096);
        self.counters.expose(&mut text);
        self.platform.expose(&mut text);
        head.extend_from_slice(Status::Ok.line());
        head.extend_from_slice(METRICS_TYPE);
        head.extend_from_slice(b"Cache-Control: no-store\r\n");
        push_length(head, text.len());
        Answer {
            status: Status::Ok,
            content: Content::Owned(text),
        }
    }
}

enum Found {
    Asset(Arc<Asset>),
    DirectoryWithoutSlash,
    Nothing,
}

/// Length of the `Date` line with its end.
pub const DATE_LINE: usize = 6 + http_date::LEN + 2;

struct DateLine {
    unix_s: u64,
    line: [u8; DATE_LINE],
}

impl DateLine {
    fn at(unix_s: u64) -> Self {
        let mut line = [0; DATE_LINE];
        line[..6].copy_from_slice(b"Date: ");
        line[6..DATE_LINE - 2].copy_from_slice(&http_date::format(unix_s));
        line[DATE_LINE - 2..].copy_from_slice(b"\r\n");
        Self { unix_s, line }
    }
}
