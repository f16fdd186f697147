//! Which modules a driver needs, in the order of loading.
//!
//! Read from the modules themselves (section `.modinfo`: `depends=`, `softdep=`),
//! since a package that is not installed has no `modules.dep`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};

/// Larger than any module of Debian's.
const MAX_MODULE_BYTES: u64 = 64 << 20;

/// The modules of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// A module to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, with `_`.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
}

/// Modules that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The directory cannot be read.
    #[error("cannot read the modules in {}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No such module, in a file or in the kernel.
    #[error("the kernel has no module {0}")]
    Unknown(String),
    /// The file cannot be read.
    #[error("cannot read the module {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a module, or is compressed.
    #[error("{} is not a kernel module that can be read (compressed ones cannot)", .0.display())]
    Form(PathBuf),
}

impl Modules {
    /// Lists the modules in `lib/modules/RELEASE`.
    pub fn open(dir: &Path) -> Result<Self, ModuleError> {
        let failed = |source| ModuleError::Directory {
            dir: dir.to_owned(),
            source,
        };
        let mut files = BTreeMap::new();
        let mut open = vec![dir.join("kernel")];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(next).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let path = entry.path();
                if entry.file_type().map_err(failed)?.is_dir() {
                    open.push(path);
                } else if let Some(name) = module_name(&path) {
                    files.insert(name, path);
                }
            }
        }
        let builtin = fs::read_to_string(dir.join("modules.builtin")).unwrap_or_default();
        Ok(Self {
            files,
            builtin: builtin
                .lines()
                .filter_map(|line| module_name(Path::new(line)))
                .collect(),
        })
    }

    /// `wanted` and all that they need, in the order of loading. What is built
    /// into the kernel is left out.
    pub fn closure(&self, wanted: &[&str]) -> Result<Vec<Module>, ModuleError> {
        let mut closure = Closure {
            modules: self,
            seen: BTreeSet::new(),
            order: Vec::new(),
        };
        for name in wanted {
            closure.add(&name.replace('-', "_"), Need::Hard)?;
        }
        Ok(closure.order)
    }

    /// Whether the kernel has it, in a file or built in.
    pub fn has(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        self.builtin.contains(&name) || self.files.contains_key(&name)
    }
}

/// What becomes of a module that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Hard,
    /// It would only be of use.
    Soft,
}

struct Closure<'a> {
    modules: &'a Modules,
    seen: BTreeSet<String>,
    order: Vec<Module>,
}

impl Closure<'_> {
    fn add(&mut self, name: &str, need: Need) -> Result<(), ModuleError> {
        if self.modules.builtin.contains(name) || !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.modules.files.get(name) else {
            return match need {
                Need::Hard => Err(ModuleError::Unknown(name.to_owned())),
                Need::Soft => Ok(()),
            };
        };
        let needs = needs(path)?;
        for before in &needs.before {
            self.add(before, Need::Soft)?;
        }
        for hard in &needs.hard {
            self.add(hard, Need::Hard)?;
        }
        self.order.push(Module {
            name: name.to_owned(),
            path: path.clone(),
        });
        Ok(())
    }
}

/// What a module says that it needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    hard: Vec<String>,
    before: Vec<String>,
}

fn needs(path: &Path) -> Result<Needs, ModuleError> {
    let read = |source| ModuleError::Read {
        path: path.to_owned(),
        source,
    };
    let form = || ModuleError::Form(path.to_owned());
    if fs::metadata(path).map_err(read)?.len() > MAX_MODULE_BYTES {
        return Err(form());
    }
    let bytes = fs::read(path).map_err(read)?;
    let file = object::File::parse(bytes.as_slice()).map_err(|_| form())?;
    let section = file.section_by_name(".modinfo").ok_or_else(form)?;
    Ok(parse(section.data().map_err(|_| form())?))
}

/// Pairs `key=value`, each ended by a NUL.
fn parse(modinfo: &[u8]) -> Needs {
    let mut needs = Needs::default();
    let pairs = modinfo.split(|byte| *byte == 0);
    for pair in pairs.filter_map(|pair| std::str::from_utf8(pair).ok()) {
        match pair.split_once('=') {
            Some(("depends", names)) => needs.hard.extend(normal(names.split(','))),
            Some(("softdep", text)) => needs.before.extend(normal(before(text))),
            _ => {}
        }
    }
    needs
}

/// The names after `pre:` and before `post:`.
fn before(softdep: &str) -> impl Iterator<Item = &str> {
    let pre = softdep.split("post:").next().unwrap_or_default();
    pre.split_ascii_whitespace().filter(|word| *word != "pre:")
}

fn normal<'a>(names: impl Iterator<Item = &'a str>) -> impl Iterator<Item = String> {
    names
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
}

/// The name of the module in a file, whatever it is compressed with.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (stem, end) = file.split_once(".ko")?;
    let known = matches!(end, "" | ".xz" | ".zst" | ".gz");
    known.then(|| stem.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_say_what_they_need() {
        let info = b"license=GPL\0depends=virtio,virtio-ring\0softdep=pre: crc32c post: late\0";
        assert_eq!(
            parse(info),
            Needs {
                hard: vec!["virtio".to_owned(), "virtio_ring".to_owned()],
                before: vec!["crc32c".to_owned()],
            }
        );
        assert_eq!(parse(b"depends=\0"), Needs::default());
    }

    #[test]
    fn names_have_one_spelling() {
        let name = |path: &str| module_name(Path::new(path));
        assert_eq!(name("a/virtio-rng.ko").as_deref(), Some("virtio_rng"));
        assert_eq!(name("a/x.ko.xz").as_deref(), Some("x"));
        assert_eq!(name("a/modules.order"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let builtin = Modules {
            builtin: ["ext4".to_owned()].into(),
            ..Modules::default()
        };
        assert!(
            builtin
                .closure(&["ext4"])
                .is_ok_and(|order| order.is_empty())
        );
        let error = builtin.closure(&["virtio-net"]).expect_err("unknown");
        assert_eq!(error.to_string(), "the kernel has no module virtio_net");
    }
}
