//! Hosts by name: the files and rules that a request gets by the host that it names
//! (RFC 9110, 7.2).
//!
//! Each has its own assets, so that a server without named hosts looks at none of this. A
//! host's paths are named from its directory, which no path leaves (`target`).

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;

use tare_site::Table;

use crate::request::Request;
use crate::request::authority;
use crate::site::Assets;
use crate::target;

/// A host's files and rules.
pub(crate) struct VirtualHost {
    /// Its name; empty for the one of all hosts without a name here.
    name: &'static str,
    /// The table of the site's file.
    pub(crate) site: Option<Box<Table<'static>>>,
    pub(crate) missing: Missing,
    /// Its latest assets; the server has those of the host without a name.
    pub(crate) assets: Option<Assets>,
}

/// What a path without a file gets. Files are named from the host's directory.
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

impl VirtualHost {
    /// The host of all names, without rules.
    pub(crate) fn any() -> Self {
        Self {
            name: "",
            site: None,
            missing: Missing::Line,
            assets: None,
        }
    }

    /// A host of the root of that generation.
    pub(crate) fn named(host: tare_site::Host<'static>, generation: u64) -> Self {
        Self {
            name: host.name,
            missing: host.table.missing.into(),
            site: Some(Box::new(host.table)),
            assets: Some(Assets::of(generation)),
        }
    }

    /// Whether `request` names this host.
    pub(crate) fn is_named_by(&self, request: &Request<'_>) -> bool {
        // An absolute target counts, whatever `Host` says (RFC 9112, 3.2.2).
        let host = target::authority(request.target).or(request.host);
        host.is_some_and(|host| authority::name(host).eq_ignore_ascii_case(self.name.as_bytes()))
    }

    /// Where `path` of the host is.
    pub(crate) fn locate<'p>(&self, path: &'p str) -> Location<'p> {
        match self.site.as_deref() {
            Some(site) => Location {
                from_root: site.path_in_root(path),
                host: site.root.len(),
            },
            None => Location {
                from_root: Cow::Borrowed(path),
                host: 0,
            },
        }
    }
}

/// A path of a host, worked out once.
pub(crate) struct Location<'p> {
    from_root: Cow<'p, str>,
    /// Length of the host's directory.
    host: usize,
}

impl Location<'_> {
    /// Its path from the root of the files.
    pub(crate) fn in_root(&self) -> &str {
        &self.from_root
    }

    /// Its path from the host's directory.
    pub(crate) fn in_host(&self) -> &str {
        let inside = self.from_root.get(self.host..).unwrap_or_default();
        inside.strip_prefix('/').unwrap_or(inside)
    }

    /// `name` in this directory.
    pub(crate) fn join(&self, name: &str) -> Location<'static> {
        let slash = if self.from_root.is_empty() { "" } else { "/" };
        Location {
            from_root: [&*self.from_root, slash, name].concat().into(),
            host: self.host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_to_its_hosts_directory_once() {
        for (root, path, from_root, index) in [
            ("", "", "", "index.html"),
            ("", "docs", "docs", "docs/index.html"),
            ("site", "", "site", "site/index.html"),
            ("site", "docs", "site/docs", "site/docs/index.html"),
        ] {
            let table = Table {
                root,
                ..Table::default()
            };
            let host = VirtualHost {
                site: Some(Box::new(table)),
                ..VirtualHost::any()
            };
            let at = host.locate(path);
            assert_eq!((at.in_root(), at.in_host()), (from_root, path));
            let joined = at.join("index.html");
            assert_eq!(joined.in_root(), index);
            let inside = index.strip_prefix(root).unwrap_or(index);
            assert_eq!(joined.in_host(), inside.trim_start_matches('/'));
        }
    }
}
