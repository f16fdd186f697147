//! Links of documents to files of the repository, and paths that the architecture names.

use std::path::{Component, Path, PathBuf};

use crate::shell::root;

/// Where the paths of `docs/architecture.md` begin.
const BASES: &[&str] = &["", "crates", "guest", "docs"];

/// Relative links to files that do not exist; in `docs/architecture.md` also named paths.
pub(crate) fn violations(file: &str, text: &str) -> Vec<String> {
    if !file.ends_with(".md") || file.starts_with("lab/runs/") || file.contains("/templates/") {
        return Vec::new();
    }
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = || format!("{file}:{}", index + 1);
        let broken = |target: &&str| !root().join(resolved(directory, target)).exists();
        for target in targets(line).filter(broken) {
            found.push(format!(
                "{}: link to {target}, which does not exist",
                place()
            ));
        }
        if file == "docs/architecture.md" {
            for path in named_paths(line).filter(|path| !exists(path)) {
                found.push(format!("{}: {path} does not exist", place()));
            }
        }
    }
    found
}

/// Targets of `[text](target)` within the repository, without anchors.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', ' ']).next()?;
        let path = target.split('#').next()?;
        let outside = path.is_empty() || path.contains("://") || path.contains('`');
        (!outside).then_some(path)
    })
}

/// Paths in back quotes with a slash in them; patterns are left out.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|name| {
        let plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
        name.contains('/') && !name.starts_with('/') && name.chars().all(plain)
    })
}

fn exists(path: &str) -> bool {
    BASES
        .iter()
        .any(|base| root().join(base).join(path).exists())
}

/// `target` seen from `directory`, without `..`.
fn resolved(directory: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in directory.join(target).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            other => path.push(other),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_file_that_does_not_exist_is_found() {
        let text = "[a](SPEC.md) [b](adr/) [c](gone.md#part)\n[d](https://e.org) [e](#here)\n";
        let found = violations("docs/page.md", text);
        assert_eq!(
            found,
            ["docs/page.md:1: link to gone.md, which does not exist"]
        );
    }

    #[test]
    fn links_climb_from_their_own_directory() {
        assert!(violations("docs/adr/page.md", "[a](../SPEC.md), [b](../../README.md)").is_empty());
        assert_eq!(violations("docs/page.md", "[a](../SPEC.md)").len(), 1);
    }

    #[test]
    fn the_architecture_names_paths_that_exist() {
        let text = "`devices/src/blk` `lab/gone` `crates/<crate>/src` `/dev/kvm` `sti; hlt`\n";
        let found = violations("docs/architecture.md", text);
        assert_eq!(found, ["docs/architecture.md:1: lab/gone does not exist"]);
    }
}
