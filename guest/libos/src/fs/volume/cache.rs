//! [`Cache`]: the files of a disk that are in memory.
//!
//! Whoever serves a file holds a handle of its content. A file without such a
//! handle makes room for another one, the least recently
//! used first.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use crate::fs::attributes::Metadata;
use crate::fs::content::Content;

/// Contents by path without links, so that no file is held twice.
#[derive(Default)]
pub(super) struct Cache {
    files: BTreeMap<String, Cached>,
    clock: u64,
}

struct Cached {
    content: Content,
    metadata: Metadata,
    asked: u64,
}

impl Cache {
    pub(super) fn get(&mut self, path: &str) -> Option<(Content, Metadata)> {
        self.clock += 1;
        let cached = self.files.get_mut(path)?;
        cached.asked = self.clock;
        Some((cached.content.clone(), cached.metadata))
    }

    pub(super) fn put(&mut self, path: &str, content: &Content, metadata: Metadata) {
        self.clock += 1;
        let cached = Cached {
            content: content.clone(),
            metadata,
            asked: self.clock,
        };
        self.files.insert(path.to_string(), cached);
    }

    /// Drops the least recently used content without another handle; `false` if
    /// there is none.
    pub(super) fn evict(&mut self) -> bool {
        let unheld = self
            .files
            .iter()
            .filter(|(_, cached)| cached.content.is_only_handle());
        let Some((path, _)) = unheld.min_by_key(|(_, cached)| cached.asked) else {
            return false;
        };
        let path = path.clone();
        self.files.remove(&path);
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::fs::cpio::EntryKind;

    const METADATA: Metadata = Metadata {
        len: 1,
        modified_s: 0,
        kind: EntryKind::File,
    };

    #[test]
    fn the_file_asked_for_least_recently_goes_first_unless_it_is_held() {
        let mut cache = Cache::default();
        for path in ["/a", "/b", "/c"] {
            cache.put(path, &Content::loaded(vec![1]), METADATA);
        }
        let held = cache.get("/b").map(|(content, _)| content);
        assert!(cache.get("/a").is_some());
        assert!(cache.evict());
        assert!(cache.get("/c").is_none());
        assert!(cache.evict());
        assert!(cache.get("/a").is_none());
        assert!(!cache.evict(), "/b is held");
        drop(held);
        assert!(cache.evict());
        assert!(!cache.evict());
    }
}
