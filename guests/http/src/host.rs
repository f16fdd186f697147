//! The same server on a host's sockets and files, for tests and measurements.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tare_libos::fs::Content;
use tare_libos::serve::host;

use crate::connection;
use crate::listing::{Entries, EntryKind};
use crate::server::{Platform, Server};
use crate::site::{Files, FindError, Node};

/// Files held in memory for good, as on the appliance.
#[derive(Debug, Default)]
pub struct MemoryFiles(HashMap<String, Node>);

impl MemoryFiles {
    /// No files but the root directory.
    pub fn new() -> Self {
        Self(HashMap::from([(String::new(), Node::Directory)]))
    }

    /// Adds a file and the directories above it.
    pub fn with(mut self, path: &str, bytes: &'static [u8], modified_s: u64) -> Self {
        for (at, _) in path.match_indices('/') {
            self.0.insert(path[..at].into(), Node::Directory);
        }
        let bytes = bytes.into();
        self.0.insert(path.into(), Node::File { bytes, modified_s });
        self
    }

    /// Adds an empty directory.
    pub fn with_directory(mut self, path: &str) -> Self {
        self.0.insert(path.into(), Node::Directory);
        self
    }

    /// Reads everything below `root`, never to be freed; names that are not
    /// UTF-8 are left out.
    pub fn read(root: &Path) -> std::io::Result<Self> {
        let mut files = Self::new();
        files.read_below(root, "")?;
        Ok(files)
    }

    fn read_below(&mut self, directory: &Path, prefix: &str) -> std::io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                self.read_below(&entry.path(), &format!("{path}/"))?;
                self.0.insert(path, Node::Directory);
            } else if entry.file_type()?.is_file() {
                let modified = entry.metadata()?.modified()?;
                let bytes = Content::loaded(std::fs::read(entry.path())?);
                let modified_s = seconds(modified);
                self.0.insert(path, Node::File { bytes, modified_s });
            }
        }
        Ok(())
    }
}

impl Files for MemoryFiles {
    fn find(&self, path: &str) -> Result<Option<Node>, FindError> {
        Ok(self.0.get(path).cloned())
    }

    fn list(&self, path: &str) -> Result<Entries, FindError> {
        let mut entries = Entries::default();
        for (at, node) in &self.0 {
            let (parent, name) = at.rsplit_once('/').unwrap_or(("", at));
            if parent != path || name.is_empty() {
                continue;
            }
            match node {
                Node::Directory => entries.add(name, EntryKind::Directory, 0),
                Node::File { bytes, .. } => {
                    entries.add(name, EntryKind::File, bytes.len() as u64);
                }
            }
        }
        Ok(entries)
    }
}

impl Platform for MemoryFiles {
    fn unix_s(&self) -> u64 {
        seconds(SystemTime::now())
    }

    fn expose(&self, _out: &mut Vec<u8>) {}
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Serves every connection of `listener` on its own thread, until the
/// listener fails.
pub fn serve<P: Platform + Send + Sync + 'static>(listener: &TcpListener, server: &Arc<Server<P>>) {
    let server = Arc::clone(server);
    host::serve(listener, move |stream| connection::serve(stream, &server));
}
