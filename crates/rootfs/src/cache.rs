//! Where what was obtained once is kept: `$TARE_CACHE`, else
//! `$XDG_CACHE_HOME/tare`, else `~/.cache/tare`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory whose entries appear whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache(PathBuf);

/// A cache that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// No place for it.
    #[error("no directory for the cache: set TARE_CACHE to one")]
    NoPlace,
    /// It cannot be written.
    #[error("cannot write the cache {}; set TARE_CACHE to another directory", path.display())]
    Write {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Cache {
    /// The user's cache.
    pub fn open_default() -> Result<Self, CacheError> {
        let set = |name| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        set("TARE_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("tare")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/tare")))
            .map(Self)
            .ok_or(CacheError::NoPlace)
    }

    /// A cache in this directory.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The directory of entry `name`, if it is there.
    pub fn get(&self, name: &str) -> Option<PathBuf> {
        Some(self.0.join(name)).filter(|path| path.is_dir())
    }

    /// The directory of entry `name`, which `fill` makes if it is missing. Of
    /// two that fill at once, the first wins.
    pub fn get_or_fill<E: From<CacheError>>(
        &self,
        name: &str,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        if let Some(path) = self.get(name) {
            return Ok(path);
        }
        let path = self.0.join(name);
        let write = |source| {
            E::from(CacheError::Write {
                path: self.0.clone(),
                source,
            })
        };
        let parent = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(parent).map_err(write)?;
        let making = tempfile::Builder::new()
            .prefix(".making-")
            .tempdir_in(parent)
            .map_err(write)?;
        let filled = making.path().join("entry");
        fs::create_dir(&filled).map_err(write)?;
        fill(&filled)?;
        match fs::rename(&filled, &path) {
            Err(error) if !path.is_dir() => Err(write(error)),
            _ => Ok(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_filled_once() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let fill = |text: &'static str| {
            move |path: &Path| {
                fs::write(path.join("file"), text).unwrap();
                Ok::<_, CacheError>(())
            }
        };
        let first = cache.get_or_fill("kernels/a", fill("one")).unwrap();
        let second = cache.get_or_fill("kernels/a", fill("two")).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(first.join("file")).unwrap(), "one");
    }

    #[test]
    fn a_failed_filling_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let failed = cache.get_or_fill("a", |path| {
            fs::write(path.join("half"), "x").unwrap();
            Err(CacheError::NoPlace)
        });
        assert!(matches!(failed, Err(CacheError::NoPlace)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
