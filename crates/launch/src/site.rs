//! `--site`: checks a site's file and packs its table beside the root's files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_host::printable::printable;
use tare_rootfs::tree::{EntryKind, NameError, Node, Tree};
use tare_site::file::{self, Mistakes, Named, NamedKind};
use tare_site::{FILE, MOST_BYTES};

use crate::failure::Explain;

/// A site's file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It cannot be read.
    #[error("cannot read the website configuration {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It contains mistakes.
    #[error("{}", listed(path, mistakes))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// The mistakes.
        mistakes: Mistakes,
    },
    /// A file or directory that it names is not in the root.
    #[error("{}:{}: the root has no {} {:?}", shown(path), named.at, thing(named.kind), named.name)]
    NotInRoot {
        /// The file.
        path: PathBuf,
        /// What it names.
        named: Named,
    },
    /// The root already has a file with the table's name.
    #[error("the root has a file {FILE:?}, which is the name of the site's table")]
    Taken,
    /// A name that a tree cannot hold.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Explain for SiteError {
    fn code(&self) -> ExitCode {
        ExitCode::SiteUnusable
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NotInRoot { .. } => Some("name it by its path from --root".to_owned()),
            Self::Taken => Some("rename it".to_owned()),
            _ => None,
        }
    }
}

/// One mistake in the same line, several below a heading.
fn listed(path: &Path, mistakes: &Mistakes) -> String {
    let file = shown(path);
    let lines = mistakes.listed(&file);
    match mistakes.iter().count() {
        1 => lines,
        count => format!("{count} mistakes in {file}:\n{lines}"),
    }
}

fn thing(kind: NamedKind) -> &'static str {
    match kind {
        NamedKind::File => "file",
        NamedKind::Directory => "directory",
    }
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// A site's file without mistakes.
#[derive(Debug)]
pub struct Site {
    path: PathBuf,
    site: file::Site,
}

impl Site {
    /// Number of its `[[path]]`.
    pub fn paths(&self) -> usize {
        self.site.paths
    }

    /// Number of its `[[redirect]]`.
    pub fn redirects(&self) -> usize {
        self.site.redirects
    }

    /// Number of its `[host.NAME]`.
    pub fn hosts(&self) -> usize {
        self.site.hosts
    }

    /// Whether directories are listed.
    pub fn lists(&self) -> bool {
        self.site.lists
    }

    /// The page for a path without a file, named from the root.
    pub fn page(&self) -> Option<&str> {
        self.site.page.as_deref()
    }

    /// Bytes of its table in an initramfs, with some room for its header.
    pub(crate) fn archive_bytes(&self) -> u64 {
        self.site.table.len() as u64 + 256
    }

    /// Puts its table beside the files of a root.
    pub(crate) fn pack(self, root: &mut Tree) -> Result<(), SiteError> {
        if root.get(FILE).is_some() {
            return Err(SiteError::Taken);
        }
        let is_there = |named: &Named| match root.get(&named.name).map(|node| &node.kind) {
            Some(EntryKind::File(_)) => named.kind == NamedKind::File,
            Some(EntryKind::Directory) => named.kind == NamedKind::Directory,
            _ => false,
        };
        if let Some(named) = self.site.named.into_iter().find(|it| !is_there(it)) {
            let path = self.path;
            return Err(SiteError::NotInRoot { path, named });
        }
        root.insert(FILE, Node::bytes(self.site.table, 0o600))?;
        Ok(())
    }

    /// Packs its table into a separate initramfs: the files are on a disk.
    pub(crate) fn pack_alone(self) -> Result<Tree, SiteError> {
        let mut tree = Tree::new();
        tree.insert(FILE, Node::bytes(self.site.table, 0o600))?;
        Ok(tree)
    }
}

/// Reads and checks a site's file.
pub fn read(path: &Path) -> Result<Site, SiteError> {
    let path = path.to_owned();
    // A byte more than allowed, so that the check sees an excess.
    let most = MOST_BYTES as u64 + 1;
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(most).read_to_string(&mut text));
    if let Err(source) = read {
        return Err(SiteError::Read { path, source });
    }
    match file::parse(&text) {
        Ok(site) => Ok(Site { path, site }),
        Err(mistakes) => Err(SiteError::Mistakes { path, mistakes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Result<Site, SiteError> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("site.toml");
        std::fs::write(&path, text).expect("a file");
        read(&path)
    }

    #[test]
    fn mistakes_are_listed_with_file_line_and_column() {
        let error = site("[[path]]\nmatch = \"a\"\nx = 1\n").expect_err("mistakes");
        let text = error.to_string();
        assert!(
            text.contains("/site.toml:2:9: invalid path \"a\""),
            "{text}"
        );
        assert!(text.contains("/site.toml:3:1: unknown key \"x\""), "{text}");
        assert_eq!(error.code(), ExitCode::SiteUnusable);
    }

    #[test]
    fn a_page_must_be_in_the_root_and_the_tables_name_must_be_free() {
        let page = || site("errors.404 = \"e/404.html\"").expect("a site");
        let mut root = Tree::new();
        let error = page().pack(&mut root).expect_err("no page");
        let text = error.to_string();
        assert!(
            text.ends_with("site.toml:1:14: the root has no file \"e/404.html\""),
            "{text}"
        );
        root.insert("e/404.html", Node::bytes(*b"x", 0o644))
            .expect("a name");
        page().pack(&mut root).expect("packed");
        assert!(root.get(FILE).is_some());
        let mut with_page = Tree::new();
        with_page
            .insert("e/404.html", Node::bytes(*b"x", 0o644))
            .expect("a name");
        let host = site("host.a.root = \"e/404.html\"").expect("a site");
        let error = host.pack(&mut with_page).expect_err("a file");
        let text = error.to_string();
        assert!(
            text.ends_with("site.toml:1:15: the root has no directory \"e/404.html\""),
            "{text}"
        );
        assert!(matches!(page().pack(&mut root), Err(SiteError::Taken)));
    }

    #[test]
    fn a_file_that_is_too_large_or_not_text_is_refused() {
        let large = "#".repeat(MOST_BYTES + 10);
        assert!(matches!(site(&large), Err(SiteError::Mistakes { .. })));
        let missing = read(Path::new("/nonexistent/site.toml"));
        assert!(matches!(missing, Err(SiteError::Read { .. })));
    }
}
