//! Which file uses which: a crate's paths, followed to the files that define their names.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Binding, Import};
use super::tree::Tree;

/// Uses among a crate's files, by index, with the names used.
pub(super) type Uses = BTreeMap<(usize, usize), BTreeSet<String>>;

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Module(usize),
    /// An item that this file defines.
    ItemOf(usize),
}

/// Every use of a file by another. A re-export does not count, its users use the file behind it.
pub(super) fn uses(tree: &Tree) -> Uses {
    let mut uses = Uses::new();
    for (index, module) in tree.modules.iter().enumerate() {
        let imports = module.source.imports.iter();
        let imported = imports
            .filter(|import| !import.is_re_export)
            .map(|import| &import.path);
        for path in imported.chain(&module.source.paths) {
            for target in Lookup::new(tree).path(index, path) {
                let Target::ItemOf(file) = target else {
                    continue;
                };
                if file != module.file {
                    let names = uses.entry((module.file, file)).or_default();
                    names.extend(path.iter().rfind(|name| !is_keyword(name)).cloned());
                }
            }
        }
    }
    uses
}

fn is_keyword(name: &str) -> bool {
    matches!(name, "crate" | "self" | "super" | "Self")
}

/// One path followed. Imports of imports may lead back; each name of each module is looked up
/// once.
struct Lookup<'a> {
    tree: &'a Tree,
    seen: BTreeSet<(usize, String)>,
}

impl<'a> Lookup<'a> {
    fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            seen: BTreeSet::new(),
        }
    }

    /// What `path` names in module `from`. Nothing for another crate's names.
    fn path(&mut self, from: usize, path: &[String]) -> BTreeSet<Target> {
        let mut path = path;
        let mut found = BTreeSet::new();
        while let [first, rest @ ..] = path {
            let module = match found.first() {
                Some(Target::Module(module)) => *module,
                _ => from,
            };
            let start = match first.as_str() {
                "crate" => 0,
                "self" => module,
                "super" => self.tree.modules[module].parent.unwrap_or(0),
                _ => break,
            };
            found = BTreeSet::from([Target::Module(start)]);
            path = rest;
        }
        if let ([first, rest @ ..], true) = (path, found.is_empty()) {
            found = self.name(from, first);
            path = rest;
        }
        for name in path {
            found = found
                .into_iter()
                .flat_map(|target| self.member(target, name))
                .collect();
        }
        found
    }

    /// What `name` is within `target`. A macro may define what the module's text does not.
    fn member(&mut self, target: Target, name: &str) -> BTreeSet<Target> {
        let Target::Module(module) = target else {
            return BTreeSet::from([target]);
        };
        let found = self.name(module, name);
        if found.is_empty() {
            return BTreeSet::from([Target::ItemOf(self.tree.modules[module].file)]);
        }
        found
    }

    /// What `name` is in `module`: an item, a child, an import, or behind a glob.
    fn name(&mut self, module: usize, name: &str) -> BTreeSet<Target> {
        let own = &self.tree.modules[module];
        let mut found = BTreeSet::new();
        if own.source.items.contains(name) {
            found.insert(Target::ItemOf(own.file));
        }
        if let Some(child) = own.children.get(name) {
            found.insert(Target::Module(*child));
        }
        if !self.seen.insert((module, name.to_owned())) {
            return found;
        }
        for import in own.source.imports.iter().filter(|have| binds(have, name)) {
            found.extend(self.path(module, &import.path));
        }
        if !found.is_empty() {
            return found;
        }
        for import in &own.source.imports {
            if import.binds != Binding::All {
                continue;
            }
            for target in self.path(module, &import.path) {
                if let Target::Module(target) = target {
                    found.extend(self.name(target, name));
                }
            }
        }
        found
    }
}

fn binds(import: &Import, name: &str) -> bool {
    matches!(&import.binds, Binding::Name(have) if have == name)
}
