//! One server: its files, counters and clock, and what it answers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::fs;
use tare_libos::sync::Mutex;
use tare_site::{RedirectStatus, Table};

use crate::answer::{ALLOW, Answer, answer_file, options, owned, page, plain, redirect};
use crate::counters::Counters;
use crate::encoding::Encoding;
use crate::http_date;
use crate::listing;
use crate::request::{Method, Request};
use crate::site::{self, Asset, Assets, Encoded, Files, FindError, Node};
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
    metrics: Metrics,
    precompressed: Precompressed,
    missing: Missing,
    /// The table of the site's file.
    site: Option<Box<Table<'static>>>,
    /// What has been counted.
    pub counters: Counters,
}

/// Whether the server's figures are served at `/metrics`, to everybody who can reach
/// its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metrics {
    /// `/metrics` is a path like any other.
    #[default]
    Off,
    /// In the place of a file of that name.
    On,
}

/// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are sent in the place of `FILE` to clients
/// that take them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precompressed {
    /// They are files like any others.
    #[default]
    Off,
    /// Unless they are older than the file.
    On,
}

/// What a path without a file gets. Files are named from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// 404 and a line of text.
    #[default]
    Line,
    /// 404 and this file.
    Page(String),
    /// 200 and this file, as applications that read the path in the browser want it.
    Fallback(String),
}

impl From<tare_site::Missing<'_>> for Missing {
    fn from(missing: tare_site::Missing<'_>) -> Self {
        match missing {
            tare_site::Missing::Line => Self::Line,
            tare_site::Missing::Page(page) => Self::Page(page.into()),
            tare_site::Missing::Fallback(page) => Self::Fallback(page.into()),
        }
    }
}

/// Path of the server's figures from the root.
const METRICS: &str = "metrics";
const METRICS_FIELDS: &[u8] = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
    Cache-Control: no-store\r\n";
/// A listing has no validators, so that it is not kept.
const LISTING_TYPE: &[u8] = b"Content-Type: text/html; charset=utf-8\r\n";

impl<P: Platform> Server<P> {
    /// A server of the platform's files.
    pub fn new(platform: P) -> Self {
        Self {
            platform,
            assets: Assets::new(),
            date: Mutex::new(DateLine::at(u64::MAX)),
            metrics: Metrics::Off,
            precompressed: Precompressed::Off,
            missing: Missing::Line,
            site: None,
            counters: Counters::default(),
        }
    }

    /// The same server with or without its figures at `/metrics`.
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// The same server with or without compressed forms of its files.
    pub fn with_precompressed(self, precompressed: Precompressed) -> Self {
        Self {
            precompressed,
            ..self
        }
    }

    /// The same server with what a path without a file gets.
    pub fn with_missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    /// The same server with the headers and redirects of `site`. What a path without a file
    /// gets is [`Self::with_missing`]'s, since the command line may name it too.
    pub fn with_site(self, site: Table<'static>) -> Self {
        let site = Some(Box::new(site));
        Self { site, ..self }
    }

    /// The machine below.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// `Date` as a line, worked out once a second.
    pub(crate) fn date_line(&self) -> [u8; DATE_LINE] {
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
        if !matches!(request.method, Method::Get | Method::Head) {
            return answer_other(request, head);
        }
        if let Some(asset) = self.assets.get(request.target) {
            return self.answer_asset(request, asset, head);
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
        let is_metrics = resource.path == METRICS && resource.form == Form::Name;
        if is_metrics && self.metrics == Metrics::On {
            return self.answer_metrics(head);
        }
        if let Some(site) = &self.site
            && let Some(answer) = moved(site, &resource, head)
        {
            return answer;
        }
        match self.find_with_room(&resource) {
            Ok(Found::Asset(asset)) => {
                self.assets.put(request.target, &asset);
                self.answer_asset(request, asset, head)
            }
            Ok(Found::DirectoryWithoutSlash) => redirect(head, &resource),
            Ok(Found::DirectoryWithoutIndex) => self.answer_directory(request, &resource, head),
            Ok(Found::Nothing) => self.answer_missing(request, head),
            Err(error) => unavailable(head, error),
        }
    }

    /// The answer with the form of a file that the client wants.
    fn answer_asset(&self, request: &Request<'_>, asset: Arc<Asset>, head: &mut Vec<u8>) -> Answer {
        let load = |path: &str, encoding| self.load(path, encoding);
        answer_file(
            request,
            asset.accepted(&request.accept_encoding, load),
            head,
        )
    }

    /// A directory without an index: its entries, if the site lists it.
    #[cold]
    fn answer_directory(
        &self,
        request: &Request<'_>,
        resource: &Resource<'_>,
        head: &mut Vec<u8>,
    ) -> Answer {
        let site = self.site.as_deref();
        if !site.is_some_and(|site| site.lists(resource.path)) {
            return self.answer_missing(request, head);
        }
        let mut entries = self.platform.list(resource.path);
        if matches!(entries, Err(FindError::NoMemory)) {
            self.assets.clear();
            entries = self.platform.list(resource.path);
        }
        match entries {
            Ok(entries) => owned(head, LISTING_TYPE, listing::page(resource.path, entries)),
            Err(error) => unavailable(head, error),
        }
    }

    /// A path without a file. What it gets is looked up each time, so that asking for
    /// paths that do not exist moves nothing out of the latest assets.
    #[cold]
    fn answer_missing(&self, request: &Request<'_>, head: &mut Vec<u8>) -> Answer {
        let (Missing::Page(path) | Missing::Fallback(path)) = &self.missing else {
            return plain(head, Status::NotFound, b"");
        };
        let resource = Resource {
            path,
            form: Form::Name,
            query: None,
        };
        match (self.find_with_room(&resource), &self.missing) {
            (Ok(Found::Asset(asset)), Missing::Fallback(_)) => {
                self.answer_asset(request, asset, head)
            }
            (Ok(Found::Asset(asset)), _) => page(head, Status::NotFound, path, asset),
            (Ok(_), _) => plain(head, Status::NotFound, b""),
            (Err(error), _) => unavailable(head, error),
        }
    }

    fn find_with_room(&self, resource: &Resource<'_>) -> Result<Found, FindError> {
        let mut found = self.find(resource);
        if matches!(found, Err(FindError::NoMemory)) {
            // The latest files are held; let go of, they make room for this one.
            self.assets.clear();
            found = self.find(resource);
        }
        found
    }

    fn find(&self, resource: &Resource<'_>) -> Result<Found, FindError> {
        Ok(match (self.platform.find(resource.path)?, resource.form) {
            (Some(Node::File { bytes, modified_s }), Form::Name) => {
                self.prepare(resource.path, bytes, modified_s)
            }
            (Some(Node::Directory), Form::Name) => Found::DirectoryWithoutSlash,
            (Some(Node::Directory), Form::Directory) => self.find_index(resource.path)?,
            _ => Found::Nothing,
        })
    }

    fn find_index(&self, directory: &str) -> Result<Found, FindError> {
        let parts = if directory.is_empty() {
            ["", ""]
        } else {
            [directory, "/"]
        };
        let path = [parts[0], parts[1], "index.html"].concat();
        Ok(match self.platform.find(&path)? {
            Some(Node::File { bytes, modified_s }) => self.prepare(&path, bytes, modified_s),
            _ => Found::DirectoryWithoutIndex,
        })
    }

    fn prepare(&self, path: &str, bytes: fs::Content, modified_s: u64) -> Found {
        let encoded = match self.precompressed {
            Precompressed::Off => None,
            Precompressed::On => self.encoded(path, modified_s),
        };
        let form = match encoded {
            None => site::Form::Only,
            Some(_) => site::Form::Plain,
        };
        let added = self.added(path);
        let now_s = self.platform.unix_s();
        let asset = Asset::in_form(form, path, &added, bytes, modified_s, now_s);
        Found::Asset(Arc::new(asset.with_encoded(encoded)))
    }

    /// The compressed forms of the file at `path`, except those that are older.
    #[cold]
    fn encoded(&self, path: &str, plain_s: u64) -> Option<Box<Encoded>> {
        Encoded::of(path, |encoding| {
            let modified_s = self.platform.modified_s(&sibling(path, encoding));
            modified_s.is_some_and(|modified_s| modified_s >= plain_s)
        })
    }

    /// A compressed form. What is wrong with it takes nothing away but this form.
    #[cold]
    fn load(&self, path: &str, encoding: Encoding) -> Option<Arc<Asset>> {
        let Ok(Some(Node::File { bytes, modified_s })) =
            self.platform.find(&sibling(path, encoding))
        else {
            return None;
        };
        let form = site::Form::Encoded(encoding);
        let now_s = self.platform.unix_s();
        let added = self.added(path);
        let asset = Asset::in_form(form, path, &added, bytes, modified_s, now_s);
        Some(Arc::new(asset))
    }

    /// The fields that the site adds to the file at `path`, as whole lines.
    fn added(&self, path: &str) -> Vec<u8> {
        match &self.site {
            None => Vec::new(),
            Some(site) => added_lines(site, path),
        }
    }

    fn answer_metrics(&self, head: &mut Vec<u8>) -> Answer {
        let mut text = Vec::with_capacity(4096);
        self.counters.expose(&mut text);
        self.platform.expose(&mut text);
        owned(head, METRICS_FIELDS, text)
    }
}

#[cold]
fn added_lines(site: &Table<'_>, path: &str) -> Vec<u8> {
    let mut lines = Vec::new();
    for field in site.fields_of(path) {
        for part in [field.name(), ": ", field.value(), "\r\n"] {
            lines.extend_from_slice(part.as_bytes());
        }
    }
    lines
}

/// The answer to a path that the site redirects, whether there is a file or not.
#[cold]
fn moved(site: &Table<'_>, resource: &Resource<'_>, head: &mut Vec<u8>) -> Option<Answer> {
    if site.redirects.is_empty() {
        return None;
    }
    let slash = match resource.form {
        Form::Directory if !resource.path.is_empty() => "/",
        _ => "",
    };
    let path = [resource.path, slash].concat();
    let mut field = b"Location: ".to_vec();
    let mut redirects = site.redirects.iter();
    let redirect = redirects.find(|it| it.write(&path, resource.query, &mut field))?;
    field.extend_from_slice(b"\r\n");
    let status = match redirect.status() {
        RedirectStatus::MovedPermanently => Status::MovedPermanently,
        RedirectStatus::Found => Status::Found,
        RedirectStatus::Temporary => Status::TemporaryRedirect,
        RedirectStatus::Permanent => Status::PermanentRedirect,
    };
    Some(plain(head, status, &field))
}

/// The name of a file's form in a coding.
fn sibling(path: &str, encoding: Encoding) -> String {
    [path, encoding.suffix()].concat()
}

/// The answer for a file that is there and cannot be given.
#[cold]
fn unavailable(head: &mut Vec<u8>, error: FindError) -> Answer {
    match error {
        FindError::NoMemory => plain(head, Status::ServiceUnavailable, b"Retry-After: 1\r\n"),
        FindError::Unreadable => plain(head, Status::InternalServerError, b""),
    }
}

/// The answer to a method that gives no representation.
#[cold]
fn answer_other(request: &Request<'_>, head: &mut Vec<u8>) -> Answer {
    if request.method != Method::Options {
        return plain(head, Status::MethodNotAllowed, ALLOW);
    }
    // `*` is the server as a whole (RFC 9110, 9.3.7).
    if request.target != "*" && target::resolve(request.target, &mut Vec::new()).is_err() {
        return plain(head, Status::BadRequest, b"");
    }
    options(head)
}

enum Found {
    Asset(Arc<Asset>),
    DirectoryWithoutSlash,
    DirectoryWithoutIndex,
    Nothing,
}

/// Length of the `Date` line with its end.
pub(crate) const DATE_LINE: usize = 6 + http_date::LEN + 2;

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
