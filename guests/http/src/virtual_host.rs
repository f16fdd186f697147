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
    pub(crate) assets: Assets,
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
            assets: Assets::new(),
        }
    }

    pub(crate) fn named(host: tare_site::Host<'static>) -> Self {
        Self {
            name: host.name,
            missing: host.table.missing.into(),
            site: Some(Box::new(host.table)),
            assets: Assets::new(),
        }
    }

    /// Whether `request` names this host.
    pub(crate) fn is_named_by(&self, request: &Request<'_>) -> bool {
        // An absolute target counts, whatever `Host` says (RFC 9112, 3.2.2).
        let host = target::authority(request.target).or(request.host);
        host.is_some_and(|host| authority::name(host).eq_ignore_ascii_case(self.name.as_bytes()))
    }

    /// The path from the root of what is at `path` of the host.
    pub(crate) fn path_in_root<'p>(&self, path: &'p str) -> Cow<'p, str> {
        match self.site.as_deref() {
            Some(site) => site.path_in_root(path),
            None => Cow::Borrowed(path),
        }
    }
}
