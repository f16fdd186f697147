//! One server: its files, counters and clock, and what it answers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use tare_libos::fs;
use tare_libos::sync::Mutex;
use tare_site::{RedirectStatus, Table};

use crate::access_log::AccessLog;
use crate::answer::{ALLOW, Answer, answer_file, options, owned, page, plain, redirect};
use crate::counters::Counters;
use crate::encoding::Encoding;
use crate::http_date;
use crate::listing;
use crate::request::{Method, Request};
use crate::root::{Loaded, Root};
use crate::site::{self, Asset, Assets, Encoded, Files, FindError, Node};
use crate::status::Status;
use crate::target::{self, Form, Resource, TargetError};
pub use crate::virtual_host::Missing;
use crate::virtual_host::{Location, VirtualHost};

/// The machine below a server: files, wall clock, its figures.
pub trait Platform: Files {
    /// Seconds since 1970.
    fn unix_s(&self) -> u64;

    /// Appends the machine's figures in Prometheus' text format.
    fn expose(&self, out: &mut Vec<u8>);
}

/// What all connections of a server share.
pub struct Server<P> {
    platform: P,
    /// What is served now.
    root: Mutex<Arc<Root>>,
    /// The latest assets of its host without a name: a target among them costs no look at the root.
    latest: Assets,
    /// Whether it has hosts by name.
    has_hosts: AtomicBool,
    date: Mutex<DateLine>,
    metrics: Metrics,
    precompressed: Precompressed,
    log: Option<Arc<AccessLog>>,
    /// What has been counted.
    pub counters: Counters,
}

/// Whether the server's figures are served at `/metrics`, to all clients that can reach
/// its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metrics {
    /// `/metrics` is a path like any other.
    #[default]
    Off,
    /// Instead of a file of that name.
    On,
}

/// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are sent instead of `FILE` to clients
/// that take them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precompressed {
    /// They are files like any others.
    #[default]
    Off,
    /// Unless they are older than the file.
    On,
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
            root: Mutex::new(Arc::new(Root::of_platform())),
            latest: Assets::of(0),
            has_hosts: AtomicBool::new(false),
            date: Mutex::new(DateLine::at(u64::MAX)),
            metrics: Metrics::Off,
            precompressed: Precompressed::Off,
            log: None,
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

    /// The same server with `files` instead of the platform's.
    pub fn with_files(self, files: Loaded) -> Self {
        self.with_root(|root| root.files = Some(files))
    }

    /// The same server with what a path without a file gets, if no host is named.
    pub fn with_missing(self, missing: Missing) -> Self {
        self.with_root(|root| root.any.missing = missing)
    }

    /// The same server with the headers, redirects and hosts of `site`. What a path without a
    /// file gets is [`Self::with_missing`]'s, since the command line may name it too.
    pub fn with_site(self, site: Table<'static>) -> Self {
        self.with_root(|root| root.set_site(site))
    }

    /// Changes the root before it is served.
    fn with_root(mut self, change: impl FnOnce(&mut Root)) -> Self {
        if let Some(root) = Arc::get_mut(self.root.get_mut()) {
            change(root);
            *self.has_hosts.get_mut() = !root.hosts.is_empty();
        }
        self
    }

    /// Serves `files` by the rules of `site` from the next request on. Answers that are being sent
    /// go on with the files that they have, whose memory goes with them.
    #[cold]
    #[inline(never)]
    pub fn replace(&self, files: Loaded, missing: Missing, site: Option<Table<'static>>) {
        let mut current = self.root.lock();
        let mut root = Root {
            generation: current.generation + 1,
            files: Some(files),
            ..Root::of_platform()
        };
        root.any.missing = missing;
        if let Some(site) = site {
            root.set_site(site);
        }
        let (generation, has_hosts) = (root.generation, !root.hosts.is_empty());
        // While there may be hosts, no answer comes from the latest assets alone: they are those
        // of no host.
        if has_hosts {
            self.has_hosts.store(true, Ordering::SeqCst);
        }
        let old = core::mem::replace(&mut *current, Arc::new(root));
        self.latest.begin(generation);
        if !has_hosts {
            self.has_hosts.store(false, Ordering::SeqCst);
        }
        drop(current);
        drop(old);
    }

    /// The same server with a log of its answers.
    pub fn with_log(mut self, log: Arc<AccessLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// The log of its answers.
    #[inline]
    pub(crate) fn log(&self) -> Option<&AccessLog> {
        self.log.as_deref()
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
        if !self.has_hosts.load(Ordering::Relaxed)
            && let Some(asset) = self.latest.get(request.target)
        {
            return self.answer_asset(None, request, asset, head);
        }
        self.answer_from_root(request, head)
    }

    /// The way of a target that is not among the latest ones of a server without hosts.
    fn answer_from_root(&self, request: &Request<'_>, head: &mut Vec<u8>) -> Answer {
        let root = self.root();
        let at = At {
            root: &root,
            host: root.host(request),
        };
        let known = match &*root.hosts {
            [] => None,
            _ => self.assets(at.host).get(request.target),
        };
        match known {
            Some(asset) => self.answer_asset(Some(&at), request, asset, head),
            None => self.answer_unknown(&at, request, head),
        }
    }

    fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root.lock())
    }

    fn assets<'a>(&'a self, host: &'a VirtualHost) -> &'a Assets {
        host.assets.as_ref().unwrap_or(&self.latest)
    }

    fn files<'a>(&'a self, root: &'a Root) -> &'a dyn Files {
        match &root.files {
            Some(files) => files,
            None => &self.platform,
        }
    }

    /// The way of a target that is not among the latest ones.
    fn answer_unknown(&self, at: &At<'_>, request: &Request<'_>, head: &mut Vec<u8>) -> Answer {
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
        if let Some(site) = &at.host.site
            && let Some(answer) = moved(site, &resource, head)
        {
            return answer;
        }
        match self.find_with_room(at, &resource) {
            Ok(Found::Asset(asset)) => {
                let assets = self.assets(at.host);
                assets.put(request.target, &asset, at.root.generation);
                self.answer_asset(Some(at), request, asset, head)
            }
            Ok(Found::DirectoryWithoutSlash) => redirect(head, &resource),
            Ok(Found::DirectoryWithoutIndex(directory)) => {
                self.answer_directory(at, &directory, request, head)
            }
            Ok(Found::Nothing) => self.answer_missing(at, request, head),
            Err(error) => unavailable(head, error),
        }
    }

    /// The answer with the form of a file that the client wants; without a place, the file is
    /// among the latest ones of a server without hosts.
    fn answer_asset(
        &self,
        at: Option<&At<'_>>,
        request: &Request<'_>,
        asset: Arc<Asset>,
        head: &mut Vec<u8>,
    ) -> Answer {
        let load = |path: &str, encoding| match at {
            Some(at) => self.load(at, path, encoding),
            None => self.load_by_path(path, encoding),
        };
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
        at: &At<'_>,
        directory: &Location<'_>,
        request: &Request<'_>,
        head: &mut Vec<u8>,
    ) -> Answer {
        let site = at.host.site.as_deref();
        let path = directory.in_host();
        if !site.is_some_and(|site| site.lists(path)) {
            return self.answer_missing(at, request, head);
        }
        let files = self.files(at.root);
        match self.with_room(at, || files.list(directory.in_root())) {
            Ok(entries) => owned(head, LISTING_TYPE, listing::page(path, entries)),
            Err(error) => unavailable(head, error),
        }
    }

    /// A path without a file. What it gets is looked up each time, so that asking for
    /// paths that do not exist moves nothing out of the latest assets.
    #[cold]
    fn answer_missing(&self, at: &At<'_>, request: &Request<'_>, head: &mut Vec<u8>) -> Answer {
        let (Missing::Page(path) | Missing::Fallback(path)) = &at.host.missing else {
            return plain(head, Status::NotFound, b"");
        };
        let resource = Resource {
            path,
            form: Form::Name,
            query: None,
        };
        match (self.find_with_room(at, &resource), &at.host.missing) {
            (Ok(Found::Asset(asset)), Missing::Fallback(_)) => {
                self.answer_asset(Some(at), request, asset, head)
            }
            (Ok(Found::Asset(asset)), _) => page(head, Status::NotFound, path, asset),
            (Ok(_), _) => plain(head, Status::NotFound, b""),
            (Err(error), _) => unavailable(head, error),
        }
    }

    fn find_with_room<'p>(
        &self,
        at: &At<'_>,
        resource: &Resource<'p>,
    ) -> Result<Found<'p>, FindError> {
        self.with_room(at, || self.find(at, resource))
    }

    /// What `find` finds, with the memory of the latest files if need be.
    #[inline]
    fn with_room<T>(
        &self,
        at: &At<'_>,
        find: impl Fn() -> Result<T, FindError>,
    ) -> Result<T, FindError> {
        let found = find();
        if matches!(found, Err(FindError::NoMemory)) {
            // The latest files are held; let go of, they make room.
            self.latest.clear();
            let assets = at.root.hosts.iter().filter_map(|host| host.assets.as_ref());
            assets.for_each(Assets::clear);
            return find();
        }
        found
    }

    fn find<'p>(&self, at: &At<'_>, resource: &Resource<'p>) -> Result<Found<'p>, FindError> {
        let place = at.host.locate(resource.path);
        let found = self.files(at.root).find(place.in_root())?;
        Ok(match (found, resource.form) {
            (Some(Node::File { bytes, modified_s }), Form::Name) => {
                self.prepare(at, &place, bytes, modified_s)
            }
            (Some(Node::Directory), Form::Name) => Found::DirectoryWithoutSlash,
            (Some(Node::Directory), Form::Directory) => self.find_index(at, place)?,
            _ => Found::Nothing,
        })
    }

    fn find_index<'p>(&self, at: &At<'_>, directory: Location<'p>) -> Result<Found<'p>, FindError> {
        let place = directory.join("index.html");
        Ok(match self.files(at.root).find(place.in_root())? {
            Some(Node::File { bytes, modified_s }) => self.prepare(at, &place, bytes, modified_s),
            _ => Found::DirectoryWithoutIndex(directory),
        })
    }

    fn prepare(
        &self,
        at: &At<'_>,
        place: &Location<'_>,
        bytes: fs::Content,
        modified_s: u64,
    ) -> Found<'static> {
        let encoded = match self.precompressed {
            Precompressed::Off => None,
            Precompressed::On => self.encoded(at, place, modified_s),
        };
        let form = match encoded {
            None => site::Form::Only,
            Some(_) => site::Form::Plain,
        };
        let path = place.in_host();
        let added = added(at.host, path);
        let now_s = self.platform.unix_s();
        let asset = Asset::in_form(form, path, &added, bytes, modified_s, now_s);
        Found::Asset(Arc::new(asset.with_encoded(encoded)))
    }

    /// The compressed forms of a file, except those that are older.
    #[cold]
    fn encoded(&self, at: &At<'_>, place: &Location<'_>, plain_s: u64) -> Option<Box<Encoded>> {
        let files = self.files(at.root);
        Encoded::of(place.in_host(), |encoding| {
            let modified_s = files.modified_s(&sibling(place, encoding));
            modified_s.is_some_and(|modified_s| modified_s >= plain_s)
        })
    }

    /// A compressed form. What is wrong with it takes nothing away but this form.
    #[cold]
    fn load(&self, at: &At<'_>, path: &str, encoding: Encoding) -> Option<Arc<Asset>> {
        let place = at.host.locate(path);
        let found = self.files(at.root).find(&sibling(&place, encoding));
        let Ok(Some(Node::File { bytes, modified_s })) = found else {
            return None;
        };
        let form = site::Form::Encoded(encoding);
        let now_s = self.platform.unix_s();
        let added = added(at.host, path);
        let asset = Asset::in_form(form, path, &added, bytes, modified_s, now_s);
        Some(Arc::new(asset))
    }

    /// The same for a file of the host without a name. The form may be of a root that came after
    /// the file's: it has its own head.
    #[cold]
    fn load_by_path(&self, path: &str, encoding: Encoding) -> Option<Arc<Asset>> {
        let root = self.root();
        let at = At {
            root: &root,
            host: &root.any,
        };
        self.load(&at, path, encoding)
    }

    fn answer_metrics(&self, head: &mut Vec<u8>) -> Answer {
        let mut text = Vec::with_capacity(4096);
        self.counters.expose(&mut text);
        self.platform.expose(&mut text);
        owned(head, METRICS_FIELDS, text)
    }
}

/// Where a request is answered from: its root, and its host there.
struct At<'r> {
    root: &'r Root,
    host: &'r VirtualHost,
}

/// The fields that the site adds to the file at `path`, as whole lines.
fn added(host: &VirtualHost, path: &str) -> Vec<u8> {
    match &host.site {
        None => Vec::new(),
        Some(site) => added_lines(site, path),
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

/// The path from the root of a file's form in a coding.
fn sibling(at: &Location<'_>, encoding: Encoding) -> String {
    [at.in_root(), encoding.suffix()].concat()
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

enum Found<'p> {
    Asset(Arc<Asset>),
    DirectoryWithoutSlash,
    DirectoryWithoutIndex(Location<'p>),
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
