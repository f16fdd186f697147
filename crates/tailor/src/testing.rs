//! Kernel sources for tests: the tree that `TARE_LINUX_SOURCE` names, else the
//! one in the cache, which is filled where `TARE_REQUIRE_LINUX` is set.

use std::path::PathBuf;
use std::sync::OnceLock;

use tare_rootfs::Cache;

use crate::source::{Source, Tree};

/// The tree, or a line that says why a test does nothing.
pub(crate) fn tree() -> Option<Tree> {
    static TREE: OnceLock<Result<Tree, String>> = OnceLock::new();
    tare_vmtest::or_lacks(TREE.get_or_init(find).as_ref()).cloned()
}

fn find() -> Result<Tree, String> {
    if let Some(dir) = std::env::var_os("TARE_LINUX_SOURCE") {
        return Tree::open(&PathBuf::from(dir)).map_err(|error| error.to_string());
    }
    let cache = Cache::open_default().map_err(|error| error.to_string())?;
    let is_there = cache.get("linux-source").is_some();
    if !is_there && std::env::var_os("TARE_REQUIRE_LINUX").is_none() {
        return Err("TARE_LINUX_SOURCE names no kernel source tree".to_owned());
    }
    let sources = Source::Debian.obtain(&cache);
    sources
        .map(|sources| sources.tree)
        .map_err(|error| error.to_string())
}
