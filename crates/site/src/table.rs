//! The table that the guest gets: counts, records and strings.
//!
//! ```text
//! bytes  content, all numbers u32 in little-endian order
//!  0..8  "tareSITE"
//!  8     version: 4
//! 12     bytes of the table
//! 16     number of paths
//! 20     number of fields, of all paths together
//! 24     number of redirects
//! 28     number of listings
//! 32     number of hosts; 0 in the table of a host
//! 36     a path without a file: 0 a line, 1 a page with 404, 2 a page with 200
//! 40     the page's name from the directory below, a string
//! 48     the directory of the files, named from the root, a string; empty for the root
//! 56     the access log: 0 off, 1 combined, 2 JSON; 0 in the table of a host
//! 60     for each path: glob (string), number of its fields
//!        for each field: name (string), value (string)
//!        for each redirect: from (string), to (string), status
//!        for each listing: glob (string)
//!        for each host: name (string), table (string of bytes)
//!        the strings' bytes, UTF-8 but for tables
//! ```
//!
//! A string is an offset from the table's beginning and a length in bytes. The tables of hosts
//! are together no longer than the table that has them.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::{
    Field, Glob, MOST_BYTES, MOST_FIELDS, MOST_HOSTS, MOST_LISTINGS, MOST_PATHS, MOST_REDIRECTS,
    Redirect, RedirectStatus,
};

/// Version of the format.
pub const VERSION: u32 = 4;
const MAGIC: &[u8; 8] = b"tareSITE";
const HEADER: usize = 60;
const PATH: usize = 12;
const FIELD: usize = 16;
const REDIRECT: usize = 20;
const LISTING: usize = 8;
const HOST: usize = 16;
/// Most bytes of a page's or directory's name.
const MOST_NAME: usize = 1024;
/// Most bytes of a host's name (RFC 1035, 2.3.4).
const MOST_HOST_NAME: usize = 253;

/// What a site wants beside its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table<'a> {
    /// Fields by path, in the order of the file.
    pub paths: Vec<PathRule<'a>>,
    /// Redirects, in the order of the file: the first that matches counts.
    pub redirects: Vec<Redirect<'a>>,
    /// The directories whose entries are listed where they have no index, with a slash behind
    /// them.
    pub listings: Vec<Glob<'a>>,
    /// What a path without a file gets.
    pub missing: Missing<'a>,
    /// The directory of the files, named from the root; empty for the root itself. All paths
    /// above are named from there.
    pub root: &'a str,
    /// The access log, of all hosts.
    pub log: Log,
    /// Hosts with their own files and rules.
    pub hosts: Vec<Host<'a>>,
}

/// A host with its own files and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// Its name, without a port; letter case does not matter.
    pub name: &'a str,
    /// Its rules; it has no hosts.
    pub table: Table<'a>,
}

/// Fields of the files that a glob matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule<'a> {
    /// The files.
    pub glob: Glob<'a>,
    /// The fields, each name once.
    pub fields: Vec<Field<'a>>,
}

/// What a path without a file gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing<'a> {
    /// 404 and a line of text.
    #[default]
    Line,
    /// 404 and this file, named from the root.
    Page(&'a str),
    /// 200 and this file, named from the root.
    Fallback(&'a str),
}

/// The access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// No lines.
    #[default]
    Off,
    /// Lines in the combined format.
    Combined,
    /// Lines of JSON.
    Json,
}

/// Why bytes are not a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Another file, or another version.
    #[error("not a site's table of version {VERSION}")]
    Header,
    /// A length, count or offset does not fit.
    #[error("a count or an offset of the site's table is wrong")]
    Bounds,
    /// A rule that the file would be refused for.
    #[error("the site's table has a rule that is invalid")]
    Rule,
}

impl<'a> Table<'a> {
    /// The path from the root of what is at `path` of the directory of the files.
    pub fn path_in_root<'p>(&self, path: &'p str) -> Cow<'p, str>
    where
        'a: 'p,
    {
        match (self.root, path) {
            ("", path) => Cow::Borrowed(path),
            (root, "") => Cow::Borrowed(root),
            (root, path) => Cow::Owned([root, "/", path].concat()),
        }
    }

    /// The fields of the file at `path`, named from the root. Of two with one name that of
    /// the later rule counts.
    pub fn fields_of(&self, path: &str) -> Vec<Field<'a>> {
        let mut found: Vec<Field<'a>> = Vec::new();
        let rules = self.paths.iter().rev();
        for rule in rules.filter(|rule| rule.glob.matches(path)) {
            for &field in &rule.fields {
                if !found.iter().any(|have| have.is_named(field.name())) {
                    found.push(field);
                }
            }
        }
        found
    }

    /// Whether the entries of the directory at `path` are listed, named from the root
    /// without slashes around it.
    pub fn lists(&self, path: &str) -> bool {
        if self.listings.is_empty() {
            return false;
        }
        let slash = if path.is_empty() { "" } else { "/" };
        let path = [path, slash].concat();
        self.listings.iter().any(|glob| glob.matches(&path))
    }

    /// Reads a table.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TableError> {
        Self::parse_with(bytes, MOST_HOSTS)
    }

    // One copy of it in an image, however many callers.
    #[inline(never)]
    fn parse_with(bytes: &'a [u8], most_hosts: usize) -> Result<Self, TableError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.take(MAGIC.len()) != Ok(MAGIC) || reader.number() != Ok(VERSION) {
            return Err(TableError::Header);
        }
        let len = reader.count(MOST_BYTES)?;
        let paths = reader.count(MOST_PATHS)?;
        let mut fields_left = reader.count(MOST_PATHS * MOST_FIELDS)?;
        let redirects = reader.count(MOST_REDIRECTS)?;
        let listings = reader.count(MOST_LISTINGS)?;
        let hosts = reader.count(most_hosts)?;
        let missing = reader.number()?;
        let page = reader.text()?;
        let root = reader.text()?;
        let log = match reader.number()? {
            0 => Log::Off,
            1 if most_hosts > 0 => Log::Combined,
            2 if most_hosts > 0 => Log::Json,
            _ => return Err(TableError::Rule),
        };
        let mut fields = Reader {
            bytes,
            at: HEADER + paths * PATH,
        };
        let redirects_at = fields.at + fields_left * FIELD;
        let behind = redirects * REDIRECT + listings * LISTING + hosts * HOST;
        let strings_at = redirects_at + behind;
        if len != bytes.len() || strings_at > len {
            return Err(TableError::Bounds);
        }
        let missing = missing_of(missing, page)?;
        if !root.is_empty() && !is_name(root) {
            return Err(TableError::Rule);
        }
        let mut rules = Vec::with_capacity(paths);
        for _ in 0..paths {
            let glob = reader.glob()?;
            let count = reader.count(MOST_FIELDS.min(fields_left))?;
            fields_left -= count;
            rules.push(PathRule {
                glob,
                fields: fields.fields(count)?,
            });
        }
        if fields_left != 0 {
            return Err(TableError::Bounds);
        }
        let mut reader = Reader {
            bytes,
            at: redirects_at,
        };
        let redirects = (0..redirects)
            .map(|_| reader.redirect())
            .collect::<Result<_, _>>()?;
        let listings = (0..listings)
            .map(|_| reader.listing())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            paths: rules,
            redirects,
            listings,
            missing,
            root,
            log,
            hosts: reader.hosts(hosts)?,
        })
    }

    /// The table's bytes; `None` if there are more than [`MOST_BYTES`].
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let fields = || self.paths.iter().flat_map(|rule| &rule.fields);
        let sizes = [PATH, FIELD, REDIRECT, LISTING, HOST];
        let counts = [
            self.paths.len(),
            fields().count(),
            self.redirects.len(),
            self.listings.len(),
            self.hosts.len(),
        ];
        let records = counts.iter().zip(sizes);
        let strings_at = HEADER + records.map(|(count, size)| count * size).sum::<usize>();
        let mut writer = Writer {
            records: Vec::new(),
            strings_at,
            strings: Vec::new(),
        };
        for count in counts {
            writer.number(count);
        }
        let (kind, page) = match self.missing {
            Missing::Line => (0, ""),
            Missing::Page(page) => (1, page),
            Missing::Fallback(page) => (2, page),
        };
        writer.number(kind);
        writer.text(page);
        writer.text(self.root);
        writer.number(self.log as usize);
        for rule in &self.paths {
            writer.text(rule.glob.as_str());
            writer.number(rule.fields.len());
        }
        for field in fields() {
            writer.text(field.name());
            writer.text(field.value());
        }
        for redirect in &self.redirects {
            writer.text(redirect.from().as_str());
            writer.text(redirect.to());
            writer.number(redirect.status().code().into());
        }
        for listing in &self.listings {
            writer.text(listing.as_str());
        }
        for host in &self.hosts {
            writer.text(host.name);
            writer.bytes(&host.table.to_bytes()?);
        }
        let len = strings_at + writer.strings.len();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((len as u32).to_le_bytes());
        bytes.extend(writer.records);
        bytes.extend(writer.strings);
        (len <= MOST_BYTES).then_some(bytes)
    }
}

fn missing_of(kind: u32, page: &str) -> Result<Missing<'_>, TableError> {
    match kind {
        0 if page.is_empty() => Ok(Missing::Line),
        1 | 2 if !is_name(page) => Err(TableError::Rule),
        1 => Ok(Missing::Page(page)),
        2 => Ok(Missing::Fallback(page)),
        _ => Err(TableError::Rule),
    }
}

/// Whether a text names a file or a directory from the root.
pub(crate) fn is_name(name: &str) -> bool {
    let is_odd = |part: &str| matches!(part, "" | "." | "..");
    name.len() <= MOST_NAME && !name.contains(char::is_control) && !name.split('/').any(is_odd)
}

/// Whether a text is a host as `Host` names it, without a port: a name, or an address, in
/// brackets for IPv6.
pub(crate) fn is_host(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_of_address = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
    let address = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_host = match address {
        Some(address) => !address.is_empty() && address.bytes().all(is_of_address),
        None => name.bytes().all(is_of_name) && !name.split('.').any(str::is_empty),
    };
    is_host && name.len() <= MOST_HOST_NAME
}

/// Whether a glob can match a directory, which has a slash behind it.
pub(crate) fn is_of_directories(glob: Glob<'_>) -> bool {
    glob.as_str().ends_with('/') || glob.as_str().ends_with("/**")
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], TableError> {
        let end = self.at.checked_add(len).ok_or(TableError::Bounds)?;
        let taken = self.bytes.get(self.at..end).ok_or(TableError::Bounds)?;
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, TableError> {
        let bytes = self.take(4)?.first_chunk().ok_or(TableError::Bounds)?;
        Ok(u32::from_le_bytes(*bytes))
    }

    fn count(&mut self, most: usize) -> Result<usize, TableError> {
        let number = self.number()? as usize;
        (number <= most).then_some(number).ok_or(TableError::Bounds)
    }

    fn string(&mut self) -> Result<&'a [u8], TableError> {
        let (at, len) = (self.number()? as usize, self.number()? as usize);
        let mut string = Reader {
            bytes: self.bytes,
            at,
        };
        string.take(len)
    }

    fn text(&mut self) -> Result<&'a str, TableError> {
        core::str::from_utf8(self.string()?).map_err(|_| TableError::Rule)
    }

    fn hosts(&mut self, count: usize) -> Result<Vec<Host<'a>>, TableError> {
        let mut hosts: Vec<Host<'a>> = Vec::with_capacity(count);
        // Tables that share bytes would take more memory than they have.
        let mut room = self.bytes.len();
        for _ in 0..count {
            let (name, table) = (self.text()?, self.string()?);
            room = room.checked_sub(table.len()).ok_or(TableError::Bounds)?;
            let is_known = |host: &Host<'_>| host.name.eq_ignore_ascii_case(name);
            if !is_host(name) || hosts.iter().any(is_known) {
                return Err(TableError::Rule);
            }
            let table = Table::parse_with(table, 0)?;
            hosts.push(Host { name, table });
        }
        Ok(hosts)
    }

    fn fields(&mut self, count: usize) -> Result<Vec<Field<'a>>, TableError> {
        let mut fields: Vec<Field<'a>> = Vec::with_capacity(count);
        for _ in 0..count {
            let (name, value) = (self.text()?, self.text()?);
            let field = Field::new(name, value).map_err(|_| TableError::Rule)?;
            if fields.iter().any(|have| have.is_named(name)) {
                return Err(TableError::Rule);
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn glob(&mut self) -> Result<Glob<'a>, TableError> {
        Glob::new(self.text()?).map_err(|_| TableError::Rule)
    }

    fn listing(&mut self) -> Result<Glob<'a>, TableError> {
        let glob = self.glob()?;
        is_of_directories(glob)
            .then_some(glob)
            .ok_or(TableError::Rule)
    }

    fn redirect(&mut self) -> Result<Redirect<'a>, TableError> {
        let from = self.glob()?;
        let to = self.text()?;
        let status = RedirectStatus::from_code(self.number()?.into()).ok_or(TableError::Rule)?;
        Redirect::new(from, to, status).map_err(|_| TableError::Rule)
    }
}

struct Writer {
    records: Vec<u8>,
    strings_at: usize,
    strings: Vec<u8>,
}

impl Writer {
    fn number(&mut self, number: usize) {
        self.records.extend((number as u32).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(self.strings_at + self.strings.len());
        self.number(bytes.len());
        self.strings.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Table<'static> {
        let rule = |glob, fields: &[(&'static str, &'static str)]| PathRule {
            glob: Glob::new(glob).unwrap(),
            fields: fields
                .iter()
                .map(|(name, value)| Field::new(name, value).unwrap())
                .collect(),
        };
        let from = Glob::new("/old/*").unwrap();
        Table {
            paths: vec![
                rule("/**", &[("Cache-Control", "no-cache"), ("X-A", "1")]),
                rule("/assets/**", &[("cache-control", "max-age=9")]),
            ],
            redirects: vec![Redirect::new(from, "/new/*", RedirectStatus::Permanent).unwrap()],
            listings: vec![Glob::new("/pub/**").unwrap(), Glob::new("/a/*/").unwrap()],
            missing: Missing::Page("404.html"),
            root: "www",
            log: Log::Json,
            hosts: vec![
                host("b.example", "sites/b"),
                Host {
                    name: "[::1]",
                    table: Table::default(),
                },
            ],
        }
    }

    fn host(name: &'static str, root: &'static str) -> Host<'static> {
        let table = Table {
            root,
            listings: vec![Glob::new("/**").unwrap()],
            missing: Missing::Fallback("index.html"),
            ..Table::default()
        };
        Host { name, table }
    }

    #[test]
    fn what_is_written_is_read() {
        for table in [table(), Table::default()] {
            let bytes = table.to_bytes().unwrap();
            assert_eq!(Table::parse(&bytes), Ok(table));
        }
    }

    #[test]
    fn the_later_rule_of_a_name_counts() {
        let names = |path: &str| {
            let table = table();
            let fields = table.fields_of(path).into_iter();
            fields
                .map(|field| format!("{}: {}", field.name(), field.value()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names("a"), ["Cache-Control: no-cache", "X-A: 1"]);
        assert_eq!(names("assets/a"), ["cache-control: max-age=9", "X-A: 1"]);
    }

    #[test]
    fn only_directories_that_a_listing_matches_are_listed() {
        let table = table();
        for (path, listed) in [
            ("pub", true),
            ("pub/a/b", true),
            ("a/b", true),
            ("a", false),
            ("a/b/c", false),
            ("public", false),
            ("", false),
        ] {
            assert_eq!(table.lists(path), listed, "{path}");
        }
        let all = Table {
            listings: vec![Glob::new("/**").unwrap()],
            ..Table::default()
        };
        assert!(all.lists("") && all.lists("a/b") && !Table::default().lists(""));
    }

    #[test]
    fn a_table_that_lists_a_file_is_refused() {
        let mut bytes = table().to_bytes().unwrap();
        let at = bytes.windows(7).position(|it| it == b"/pub/**").unwrap();
        bytes[at + 4] = b'-';
        assert_eq!(Table::parse(&bytes), Err(TableError::Rule));
    }

    #[test]
    fn other_files_and_versions_are_refused() {
        let good = table().to_bytes().unwrap();
        assert_eq!(Table::parse(b""), Err(TableError::Header));
        let mut other = good.clone();
        other[8] = 1;
        assert_eq!(Table::parse(&other), Err(TableError::Header));
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(Table::parse(&longer), Err(TableError::Bounds));
        for cut in 12..good.len() {
            assert_eq!(Table::parse(&good[..cut]), Err(TableError::Bounds), "{cut}");
        }
    }

    #[test]
    fn hosts_within_hosts_twice_or_without_a_name_are_refused() {
        let of = |hosts: Vec<Host<'static>>| Table {
            hosts,
            ..Table::default()
        };
        let rule = Err(TableError::Rule);
        for name in ["", "a..b", ".a", "a b", "a:80", "[]", "[a/b]", "a\n", "ä"] {
            let bytes = of(vec![host(name, "")]).to_bytes().unwrap();
            assert_eq!(Table::parse(&bytes), rule, "{name:?}");
        }
        let twice = of(vec![host("a.example", ""), host("A.Example", "")]);
        assert_eq!(Table::parse(&twice.to_bytes().unwrap()), rule);
        let within = of(vec![Host {
            name: "a",
            table: of(vec![host("b", "")]),
        }]);
        let logs = of(vec![Host {
            name: "a",
            table: Table {
                log: Log::Json,
                ..Table::default()
            },
        }]);
        assert_eq!(Table::parse(&logs.to_bytes().unwrap()), rule);
        let bounds = Err(TableError::Bounds);
        assert_eq!(Table::parse(&within.to_bytes().unwrap()), bounds);
        for root in ["/a", "a/", "../a", "a//b", "a\0"] {
            let bytes = of(vec![host("a", root)]).to_bytes().unwrap();
            assert_eq!(Table::parse(&bytes), rule, "{root:?}");
        }
    }

    #[test]
    fn tables_of_hosts_that_share_bytes_are_refused() {
        let root = "r".repeat(200);
        let long = Table {
            root: &root,
            ..Table::default()
        };
        let of = |name, table| Host { name, table };
        let table = Table {
            hosts: vec![of("a", long), of("b", Table::default())],
            ..Table::default()
        };
        let mut bytes = table.to_bytes().unwrap();
        assert!(Table::parse(&bytes).is_ok());
        // The second host gets the first one's table.
        bytes.copy_within(HEADER + 8..HEADER + HOST, HEADER + HOST + 8);
        assert_eq!(Table::parse(&bytes), Err(TableError::Bounds));
    }

    #[test]
    fn a_table_with_a_line_end_in_a_value_is_refused() {
        let mut bytes = table().to_bytes().unwrap();
        let at = bytes.windows(8).position(|it| it == b"no-cache").unwrap();
        bytes[at] = b'\n';
        assert_eq!(Table::parse(&bytes), Err(TableError::Rule));
    }

    proptest! {
        #[test]
        fn changed_bytes_are_read_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = table().to_bytes().unwrap();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(table) = Table::parse(&bytes) {
                // Strings may share bytes, so that it may be longer written anew.
                let written = table.to_bytes().unwrap();
                prop_assert_eq!(Table::parse(&written), Ok(table));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), counts in prop::array::uniform8(0..9u32)) {
            let mut with_header = MAGIC.to_vec();
            with_header.extend(VERSION.to_le_bytes());
            with_header.extend((bytes.len() as u32 + 48).to_le_bytes());
            with_header.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
            with_header.extend(&bytes);
            drop(Table::parse(&with_header));
            drop(Table::parse(&bytes));
        }
    }
}
