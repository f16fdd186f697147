//! Circles of files: no more than two files of a crate may depend on each other.
//!
//! A file depends on the files that define what its `use` lines and paths name. A re-export, a
//! `mod` line and code for tests are not dependencies.

mod source;
#[cfg(test)]
mod tests;
mod tree;
mod uses;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use self::tree::Tree;
use self::uses::Uses;
use crate::shell::root;
use crate::workspace::Package;

/// Most files in a circle: two may be halves of one thing.
const MAX_FILES: usize = 2;
/// Crates that still have larger circles. A clean crate leaves this list.
const UNDONE: &[&str] = &[];

/// Circles in the crates of one package.
pub(crate) fn violations(package: &Package) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in package.roots() {
        found.extend(circles(Path::new(file), root())?);
    }
    Ok(judge(&package.name, found, UNDONE))
}

/// What `found` means for a package, given the packages that may still have circles.
fn judge(package: &str, found: Vec<String>, undone: &[&str]) -> Vec<String> {
    if !undone.contains(&package) {
        return found;
    }
    if found.is_empty() {
        return vec![format!(
            "{package}: no circle of files: take it out of UNDONE in xtask/src/circles/mod.rs"
        )];
    }
    Vec::new()
}

/// Circles that are too large in the crate with this root file, each as a text with the uses in
/// it. Files are named from `base`.
fn circles(root: &Path, base: &Path) -> Result<Vec<String>> {
    let tree = Tree::read(root)?;
    let uses = uses::uses(&tree);
    let name = |file: usize| {
        let path = &tree.files[file];
        path.strip_prefix(base).unwrap_or(path).display()
    };
    let mut found = Vec::new();
    for circle in components(tree.files.len(), &uses) {
        if circle.len() <= MAX_FILES {
            continue;
        }
        let mut text = format!("circle of {} files:", circle.len());
        for ((from, to), names) in &uses {
            if circle.contains(from) && circle.contains(to) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                text += &format!(
                    "\n    {} -> {}: {}",
                    name(*from),
                    name(*to),
                    names.join(", ")
                );
            }
        }
        found.push(text);
    }
    Ok(found)
}

/// Strongly connected components: files that reach each other.
fn components(files: usize, uses: &Uses) -> BTreeSet<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..files).map(|file| reach(file, uses)).collect();
    (0..files)
        .map(|file| {
            let back = reached[file].iter().copied();
            back.filter(|other| reached[*other].contains(&file))
                .chain([file])
                .collect()
        })
        .collect()
}

/// The files that `from` depends on, directly or not.
fn reach(from: usize, uses: &Uses) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        for (_, to) in uses
            .range((file, 0)..=(file, usize::MAX))
            .map(|(edge, _)| edge)
        {
            if reached.insert(*to) {
                next.push(*to);
            }
        }
    }
    reached
}
