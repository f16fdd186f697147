//! The modules of one crate, read from its root file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::source::{Child, Source};

/// A crate's modules; the first is its root.
#[derive(Default)]
pub(super) struct Tree {
    pub files: Vec<PathBuf>,
    pub modules: Vec<Module>,
}

/// One module of the crate, in its own file or in its parent's.
pub(super) struct Module {
    /// Index into the tree's files.
    pub file: usize,
    pub parent: Option<usize>,
    /// Modules in it: indices into the tree's modules.
    pub children: BTreeMap<String, usize>,
    /// What it says, without its children.
    pub source: Source,
}

impl Tree {
    /// Reads `root`, such as `src/lib.rs`, and every file that it declares.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let directory = root.parent().unwrap_or(Path::new(""));
        tree.add_file(root, None, directory)?;
        Ok(tree)
    }

    /// Adds the module in `file`, whose children's files stand in `directory`.
    fn add_file(&mut self, file: &Path, parent: Option<usize>, directory: &Path) -> Result<usize> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let source =
            Source::parse(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        self.files.push(file.to_owned());
        self.add(source, self.files.len() - 1, parent, directory)
    }

    fn add(
        &mut self,
        mut source: Source,
        file: usize,
        parent: Option<usize>,
        directory: &Path,
    ) -> Result<usize> {
        let children = std::mem::take(&mut source.modules);
        let own = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            source,
        });
        for child in children {
            let name = child.name.clone();
            let index = self.add_child(child, own, directory)?;
            self.modules[own].children.insert(name, index);
        }
        Ok(own)
    }

    fn add_child(&mut self, child: Child, parent: usize, directory: &Path) -> Result<usize> {
        let file = self.modules[parent].file;
        let own = directory.join(&child.name);
        if let Some(source) = child.inline {
            return self.add(source, file, Some(parent), &own);
        }
        if let Some(path) = child.path {
            let path = self.files[file].with_file_name(path);
            let beside = path.parent().unwrap_or(Path::new("")).to_owned();
            return self.add_file(&path, Some(parent), &beside);
        }
        let candidates = [own.with_extension("rs"), own.join("mod.rs")];
        match candidates.iter().find(|path| path.is_file()) {
            Some(path) => self.add_file(path, Some(parent), &own),
            None => bail!("{}: no file for it", own.display()),
        }
    }
}
