//! `site.toml`: parsed with places, checked, and compiled to a table.
//!
//! Every key and value is checked, so that one run shows all mistakes; those of
//! TOML's syntax are shown alone, since what follows them is guesswork.

mod circles;
mod mistakes;

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::field::{check_name, check_value};
use crate::table::{is_host, is_name, is_of_directories};
use crate::{
    Field, Glob, Host, Log, MOST_BYTES, MOST_FIELDS, MOST_HOSTS, MOST_LISTINGS, MOST_PATHS,
    MOST_REDIRECTS, Missing, PathRule, Redirect, RedirectStatus, Table,
};
use mistakes::Found;
pub use mistakes::{Mistake, Mistakes, Position};

/// A file without mistakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Its table's bytes.
    pub table: Vec<u8>,
    /// Number of its `[[path]]`, those of hosts among them.
    pub paths: usize,
    /// Number of its `[[redirect]]`, those of hosts among them.
    pub redirects: usize,
    /// Number of its `[host.NAME]`.
    pub hosts: usize,
    /// Whether directories are listed.
    pub lists: bool,
    /// The file that a path without one gets, if no host is named.
    pub page: Option<String>,
    /// What it names of the root, besides globs.
    pub named: Vec<Named>,
}

/// A file or directory of the root that `site.toml` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name from the root.
    pub name: String,
    /// What it must be.
    pub kind: NamedKind,
    /// Where it is named.
    pub at: Position,
}

/// What a name of the root must stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

type Value<'i> = Spanned<DeValue<'i>>;
type Key<'i> = Spanned<DeString<'i>>;

/// Checks and compiles the content of a `site.toml`.
pub fn parse(text: &str) -> Result<Site, Mistakes> {
    let mut found = Found::default();
    if text.len() > MOST_BYTES {
        let limit = format!(
            "the file is too large: the limit is {} KiB",
            MOST_BYTES / 1024
        );
        found.add(&(0..0), limit);
        return found.none_or(text, Site::default());
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let place = error.span().unwrap_or_default();
        found.add(&place, error.message().replace('\n', ", "));
    }
    if !errors.is_empty() {
        return found.none_or(text, Site::default());
    }
    let mut checker = Checker {
        found,
        named: Vec::new(),
    };
    let table = checker.document(document.get_ref());
    let bytes = table.to_bytes().unwrap_or_else(|| {
        let limit = format!(
            "its table is too large: the limit is {} KiB",
            MOST_BYTES / 1024
        );
        checker.found.add(&(0..0), limit);
        Vec::new()
    });
    let named = checker.named.into_iter();
    let site = Site {
        table: bytes,
        page: match table.missing {
            Missing::Line => None,
            Missing::Page(page) | Missing::Fallback(page) => Some(page.to_owned()),
        },
        named: named
            .map(|(name, kind, span)| Named {
                name,
                kind,
                at: Position::of(text, span.start),
            })
            .collect(),
        ..Site::counts(&table)
    };
    checker.found.none_or(text, site)
}

impl Site {
    fn counts(table: &Table<'_>) -> Self {
        let mut site = Self {
            hosts: table.hosts.len(),
            ..Self::default()
        };
        for table in [table]
            .into_iter()
            .chain(table.hosts.iter().map(|it| &it.table))
        {
            site.paths += table.paths.len();
            site.redirects += table.redirects.len();
            site.lists |= !table.listings.is_empty();
        }
        site
    }
}

struct Checker {
    found: Found,
    named: Vec<(String, NamedKind, Range<usize>)>,
}

/// What a page's name is, and its place.
type PageName<'t> = (&'t str, Range<usize>);

impl Checker {
    fn document<'t>(&mut self, document: &'t DeTable<'_>) -> Table<'t> {
        let (mut hosts, mut log) = (Vec::new(), Log::Off);
        let table = self.rules(document, |checker, key, value| {
            match key.get_ref().as_ref() {
                "host" => hosts = checker.hosts(value),
                "log" => log = checker.log(value),
                _ => checker.unknown(key, "path, redirect, errors, listing, root, host or log"),
            }
        });
        Table {
            hosts,
            log,
            ..table
        }
    }

    fn log(&mut self, value: &Value<'_>) -> Log {
        let DeValue::Table(table) = value.get_ref() else {
            self.found.add(&value.span(), "want [log]");
            return Log::Off;
        };
        if !table.contains_key("format") {
            self.found.add(&value.span(), "[log] without format");
        }
        let mut log = Log::Off;
        for (key, value) in table {
            match (key.get_ref().as_ref(), value.get_ref().as_str()) {
                ("format", Some("combined")) => log = Log::Combined,
                ("format", Some("json")) => log = Log::Json,
                ("format", _) => self
                    .found
                    .add(&value.span(), "want \"combined\" or \"json\""),
                _ => self.unknown(key, "format"),
            }
        }
        log
    }

    /// The rules of a host; what else is there goes to `other`.
    fn rules<'t, 'i>(
        &mut self,
        rules: &'t DeTable<'i>,
        mut other: impl FnMut(&mut Self, &'t Key<'i>, &'t Value<'i>),
    ) -> Table<'t> {
        let mut table = Table::default();
        let mut page = None;
        for (key, value) in rules {
            match key.get_ref().as_ref() {
                "path" => table.paths = self.each(value, "path", MOST_PATHS, Self::path),
                "redirect" => table.redirects = self.redirects(value),
                "errors" => (table.missing, page) = self.errors(value),
                "listing" => table.listings = self.listings(value),
                "root" => {
                    if let Some(name) = self.name(value, "directory") {
                        let directory = (name.to_owned(), NamedKind::Directory, value.span());
                        self.named.push(directory);
                        table.root = name;
                    }
                }
                _ => other(self, key, value),
            }
        }
        if let Some((name, span)) = page {
            let name = table.path_in_root(name).into_owned();
            self.named.push((name, NamedKind::File, span));
        }
        table
    }

    fn hosts<'t>(&mut self, value: &'t Value<'_>) -> Vec<Host<'t>> {
        let DeValue::Table(tables) = value.get_ref() else {
            self.found.add(&value.span(), "want [host.\"NAME\"]");
            return Vec::new();
        };
        if tables.len() > MOST_HOSTS {
            let limit = format!("too many [host.NAME]: the limit is {MOST_HOSTS}");
            self.found.add(&value.span(), limit);
        }
        // In the order of the file, so that of two with one name the later is the mistake.
        let mut tables: Vec<_> = tables.iter().collect();
        tables.sort_by_key(|(name, _)| name.span().start);
        let mut hosts: Vec<Host<'t>> = Vec::new();
        for (key, value) in tables {
            let name: &'t str = key.get_ref();
            if !is_host(name) {
                let problem = format!("invalid host {name:?}: want a name without a port");
                self.found.add(&key.span(), problem);
            } else if hosts.iter().any(|it| it.name.eq_ignore_ascii_case(name)) {
                let problem = format!("host {name:?} is there twice: letter case does not count");
                self.found.add(&key.span(), problem);
            }
            let DeValue::Table(rules) = value.get_ref() else {
                self.found
                    .add(&value.span(), format!("want [host.{name:?}]"));
                continue;
            };
            let table = self.rules(rules, |checker, key, _| {
                checker.unknown(key, "path, redirect, errors, listing or root");
            });
            hosts.push(Host { name, table });
        }
        hosts
    }

    /// The elements of an array of tables.
    fn each<'t, 'i, T>(
        &mut self,
        value: &'t Value<'i>,
        name: &str,
        most: usize,
        mut check: impl FnMut(&mut Self, &'t DeTable<'i>, Range<usize>) -> Option<T>,
    ) -> Vec<T> {
        let DeValue::Array(elements) = value.get_ref() else {
            self.found.add(&value.span(), format!("want [[{name}]]"));
            return Vec::new();
        };
        if elements.len() > most {
            let limit = format!("too many [[{name}]]: the limit is {most}");
            self.found.add(&value.span(), limit);
        }
        let mut checked = Vec::new();
        for element in elements.iter() {
            match element.get_ref() {
                DeValue::Table(table) => checked.extend(check(self, table, element.span())),
                _ => self.found.add(&element.span(), format!("want [[{name}]]")),
            }
        }
        checked
    }

    fn path<'t>(&mut self, table: &'t DeTable<'_>, span: Range<usize>) -> Option<PathRule<'t>> {
        let (mut glob, mut fields) = (None, Vec::new());
        let mut has_match = false;
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "match" => {
                    has_match = true;
                    glob = self.glob(value);
                    if glob.is_some_and(|glob| glob.as_str().ends_with('/')) {
                        let hint = "no file ends in \"/\": name the file (index.html) or use /**";
                        self.found.add(&value.span(), hint);
                    }
                }
                "cache_control" => {
                    let field = self.field("Cache-Control", &key.span(), value);
                    self.add_field(&mut fields, field, &key.span());
                }
                "headers" => self.headers(value, &mut fields),
                _ => self.unknown(key, "match, cache_control or headers"),
            }
        }
        if !has_match {
            self.found.add(&span, "[[path]] without match");
        } else if !table.keys().any(|key| key.get_ref() != "match") {
            self.found
                .add(&span, "[[path]] without headers and cache_control");
        }
        Some(PathRule {
            glob: glob?,
            fields,
        })
    }

    fn headers<'t>(&mut self, value: &'t Value<'_>, fields: &mut Vec<Field<'t>>) {
        let DeValue::Table(headers) = value.get_ref() else {
            return self.found.add(&value.span(), "want { Name = \"value\" }");
        };
        let mut headers: Vec<_> = headers.iter().collect();
        headers.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in headers {
            let field = self.field(name.get_ref(), &name.span(), value);
            self.add_field(fields, field, &name.span());
        }
    }

    fn field<'t>(
        &mut self,
        name: &'t str,
        place: &Range<usize>,
        value: &'t Value<'_>,
    ) -> Option<Field<'t>> {
        if let Err(error) = check_name(name) {
            self.found
                .add(place, format!("invalid header {name:?}: {error}"));
        }
        let text = self.text(value)?;
        if let Err(error) = check_value(text) {
            self.found
                .add(&value.span(), format!("invalid value of {name}: {error}"));
        }
        Field::new(name, text).ok()
    }

    fn add_field<'t>(
        &mut self,
        fields: &mut Vec<Field<'t>>,
        field: Option<Field<'t>>,
        place: &Range<usize>,
    ) {
        let Some(field) = field else { return };
        if fields.iter().any(|have| have.is_named(field.name())) {
            self.found
                .add(place, format!("{} is set twice", field.name()));
        } else if fields.len() == MOST_FIELDS {
            self.found.add(
                place,
                format!("too many headers: the limit is {MOST_FIELDS}"),
            );
        } else {
            fields.push(field);
        }
    }

    fn redirects<'t>(&mut self, value: &'t Value<'_>) -> Vec<Redirect<'t>> {
        let found = self.each(value, "redirect", MOST_REDIRECTS, Self::redirect);
        let (redirects, places): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let table = Table {
            redirects,
            ..Table::default()
        };
        for (index, (redirect, place)) in table.redirects.iter().zip(&places).enumerate() {
            let from = redirect.from();
            if table.redirects[..index].iter().any(|it| it.from() == from) {
                let text = format!("an earlier [[redirect]] has from = {:?}", from.as_str());
                self.found.add(place, text);
            } else if circles::leads_to_itself(redirect) {
                let text = format!(
                    "redirects to itself: {:?} matches {:?}; make one of them narrower",
                    redirect.to(),
                    from.as_str()
                );
                self.found.add(place, text);
            } else if circles::goes_on(redirect, &table) {
                self.found.add(place, "redirects in a circle with others");
            }
        }
        table.redirects
    }

    fn redirect<'t>(
        &mut self,
        table: &'t DeTable<'_>,
        span: Range<usize>,
    ) -> Option<(Redirect<'t>, Range<usize>)> {
        let (mut from, mut to) = (None, None);
        let mut status = Some(RedirectStatus::MovedPermanently);
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "from" => from = self.glob(value),
                "to" => to = self.text(value).map(|text| (text, value.span())),
                "status" => status = self.status(value),
                _ => self.unknown(key, "from, to or status"),
            }
        }
        for wanted in ["from", "to"] {
            if !table.contains_key(wanted) {
                self.found
                    .add(&span, format!("[[redirect]] without {wanted}"));
            }
        }
        let (from, (to, place)) = (from?, to?);
        match Redirect::new(from, to, status?) {
            Ok(redirect) => Some((redirect, place)),
            Err(error) => {
                self.found
                    .add(&place, format!("invalid target {to:?}: {error}"));
                None
            }
        }
    }

    fn status(&mut self, value: &Value<'_>) -> Option<RedirectStatus> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let status = number.and_then(RedirectStatus::from_code);
        if status.is_none() {
            self.found
                .add(&value.span(), "want status 301, 302, 307 or 308");
        }
        status
    }

    fn errors<'t>(&mut self, value: &'t Value<'_>) -> (Missing<'t>, Option<PageName<'t>>) {
        let nothing = (Missing::Line, None);
        let DeValue::Table(table) = value.get_ref() else {
            self.found.add(&value.span(), "want [errors]");
            return nothing;
        };
        let (mut missing, mut page) = nothing;
        for (key, value) in table {
            let of: fn(&'t str) -> Missing<'t> = match key.get_ref().as_ref() {
                "404" => Missing::Page,
                "fallback" => Missing::Fallback,
                _ => {
                    self.unknown(key, "404 or fallback");
                    continue;
                }
            };
            if let Some(name) = self.name(value, "file") {
                (missing, page) = (of(name), Some((name, value.span())));
            }
        }
        if table.contains_key("404") && table.contains_key("fallback") {
            let text =
                "404 and fallback exclude each other: a path without a file gets one of them";
            self.found.add(&value.span(), text);
        }
        (missing, page)
    }

    /// `true` for all directories, or an array of their globs.
    fn listings<'t>(&mut self, value: &'t Value<'_>) -> Vec<Glob<'t>> {
        let elements = match value.get_ref() {
            DeValue::Boolean(true) => return Glob::new("/**").into_iter().collect(),
            DeValue::Boolean(false) => return Vec::new(),
            DeValue::Array(elements) => elements,
            _ => {
                self.found
                    .add(&value.span(), "want true, false or [\"/path/**\"]");
                return Vec::new();
            }
        };
        if elements.len() > MOST_LISTINGS {
            let limit = format!("too many paths: the limit is {MOST_LISTINGS}");
            self.found.add(&value.span(), limit);
        }
        let mut listings = Vec::new();
        for element in elements.iter() {
            let Some(glob) = self.glob(element) else {
                continue;
            };
            if !is_of_directories(glob) {
                self.found.add(
                    &element.span(),
                    "a directory ends in \"/\", all below it in \"/**\"",
                );
            }
            listings.push(glob);
        }
        listings
    }

    /// The name of a file or directory, without slashes around it.
    fn name<'t>(&mut self, value: &'t Value<'_>, thing: &str) -> Option<&'t str> {
        let text = self.text(value)?;
        let name = text.strip_prefix('/').unwrap_or(text);
        if !is_name(name) {
            let problem = format!("invalid {thing} {text:?}: want its path from the root");
            self.found.add(&value.span(), problem);
            return None;
        }
        Some(name)
    }

    fn glob<'t>(&mut self, value: &'t Value<'_>) -> Option<Glob<'t>> {
        let text = self.text(value)?;
        match Glob::new(text) {
            Ok(glob) => Some(glob),
            Err(error) => {
                self.found
                    .add(&value.span(), format!("invalid path {text:?}: {error}"));
                None
            }
        }
    }

    fn text<'t>(&mut self, value: &'t Value<'_>) -> Option<&'t str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            let kind = value.get_ref().type_str();
            self.found.add(
                &value.span(),
                format!("want a string, not {}", with_article(kind)),
            );
        }
        text
    }

    fn unknown(&mut self, key: &Key<'_>, known: &str) {
        let text = format!("unknown key {:?}: want {known}", key.get_ref());
        self.found.add(&key.span(), text);
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'i']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {kind}")
}

#[cfg(test)]
mod tests;
