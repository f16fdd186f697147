//! What the command line and a site's table say of paths without a file, and whether what they
//! name is there: at the start, and for each root that comes later.

use alloc::string::String;

use tare_site::Table;

use crate::server::Missing;
use crate::site::{Files, Node};

/// What the command line names for paths without a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `not_found=`: the file that is sent with 404.
    pub not_found: Option<&'static str>,
    /// `fallback=`: the file that is sent with 200.
    pub fallback: Option<&'static str>,
}

/// Rules that cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RulesError(pub &'static str);

impl Given {
    /// What a path without a file gets where no host is named. What the rules name must be among
    /// `files`, so that a wrong name is not found out by the first client.
    #[cold]
    #[inline(never)]
    pub fn missing(
        &self,
        site: Option<&Table<'_>>,
        files: &dyn Files,
    ) -> Result<Missing, RulesError> {
        let of = |word: &str| String::from(word.trim_start_matches('/'));
        let bare = Table::default();
        let site = site.unwrap_or(&bare);
        let missing = match (self.not_found, self.fallback, site.missing.into()) {
            (None, None, by_site) => by_site,
            (Some(page), None, Missing::Line) => Missing::Page(of(page)),
            (None, Some(file), Missing::Line) => Missing::Fallback(of(file)),
            _ => {
                let reason = "not_found=, fallback= and [errors] of the site: want one of them";
                return Err(RulesError(reason));
            }
        };
        check_named(files, site, &missing)?;
        for host in &site.hosts {
            check_named(files, &host.table, &host.table.missing.into())?;
        }
        Ok(missing)
    }
}

#[cold]
#[inline(never)]
fn check_named(files: &dyn Files, site: &Table<'_>, missing: &Missing) -> Result<(), RulesError> {
    if !matches!(files.find(site.root), Ok(Some(Node::Directory))) {
        let reason = "root of the site or of a host: no such directory in the root";
        return Err(RulesError(reason));
    }
    let (Missing::Page(name) | Missing::Fallback(name)) = missing else {
        return Ok(());
    };
    match files.find(&site.path_in_root(name)) {
        Ok(Some(Node::File { .. })) => Ok(()),
        _ => {
            let reason = "not_found=, fallback= or [errors] of the site: no such file in the root";
            Err(RulesError(reason))
        }
    }
}
