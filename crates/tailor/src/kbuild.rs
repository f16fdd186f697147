//! Which source files a configuration compiles, by the kernel's Makefiles.
//!
//! Lines of the form `obj-$(CONFIG_X) += a.o dir/` and of composite objects (`ext4-y`,
//! `ext4-$(CONFIG_Y)`, `ext4-objs`) are read; conditions around them (`ifdef`, `ifeq`) and
//! functions of make are not. So it is an estimate, the same one for every configuration. A
//! file that no line names (C code that another file includes) goes with its directory.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;

use crate::kconfig::Config;
use crate::objects;

/// Names of a directory's makefile, the one that counts first.
const MAKEFILES: [&str; 2] = ["Kbuild", "Makefile"];
/// Composite objects in composite objects.
const MOST_NESTED: usize = 4;
/// The processor's directory; those of others are never compiled.
const ARCH: &str = "arch/";
const OURS: &str = "arch/x86";
/// Its makefile beside its `Kbuild`: some of its directories, by their whole paths.
const OURS_BESIDE: &str = "arch/x86/Makefile";
/// The uppermost directory.
const ROOT: &str = "";

/// What a tree of sources compiles.
#[derive(Debug)]
pub struct Kbuild<'a> {
    tree: &'a Path,
    read: RefCell<HashMap<String, Rc<Vec<Rule>>>>,
}

/// A line that lists objects and directories.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    /// `obj` and `lib`, or the composite object without its `.o`.
    target: String,
    /// The option that it depends on; `None` for a line that always counts.
    option: Option<String>,
    parts: Vec<String>,
}

impl<'a> Kbuild<'a> {
    /// Of the sources in a directory.
    pub fn of(tree: &'a Path) -> Self {
        Self {
            tree,
            read: RefCell::default(),
        }
    }

    /// Whether a configuration compiles a file, `net/ipv4/tcp.c`, built in or as a module.
    pub fn compiles(&self, file: &str, config: &Config) -> bool {
        let on: BTreeSet<&str> = config.on().collect();
        self.is_compiled(file, &on)
    }

    /// How many of these lists of files have one that a configuration compiles.
    pub fn count<'f>(
        &self,
        lists: impl IntoIterator<Item = &'f BTreeSet<String>>,
        config: &Config,
    ) -> usize {
        let on: BTreeSet<&str> = config.on().collect();
        let is_in = |files: &&BTreeSet<String>| files.iter().any(|it| self.is_compiled(it, &on));
        lists.into_iter().filter(is_in).count()
    }

    fn is_compiled(&self, file: &str, on: &BTreeSet<&str>) -> bool {
        let stem = file.strip_suffix(".c").or_else(|| file.strip_suffix(".S"));
        let Some((dir, name)) = stem.and_then(|stem| stem.rsplit_once('/')) else {
            return false;
        };
        if dir.starts_with(ARCH) && dir != OURS && !dir.starts_with("arch/x86/") {
            return false;
        }
        let object = format!("{name}.o");
        self.has_dir(dir, on)
            && self
                .has_object(dir, &object, on, MOST_NESTED)
                .unwrap_or(true)
    }

    /// Whether a directory is entered, as its parents' lines say.
    fn has_dir(&self, dir: &str, on: &BTreeSet<&str>) -> bool {
        if dir == OURS {
            return true;
        }
        let whole = format!("{dir}/");
        if !dir.contains('/') {
            // `lib` and `arch` are in the uppermost Makefile, whatever the options.
            return lists(&self.rules(ROOT), &whole, on).unwrap_or(true);
        }
        // As `drivers-$(CONFIG_PCI) += arch/x86/pci/`.
        if lists(&self.rules(OURS_BESIDE), &whole, on) == Some(true) {
            return true;
        }
        dir.match_indices('/').any(|(at, _)| {
            let (parent, rest) = (&dir[..at], format!("{}/", &dir[at + 1..]));
            lists(&self.rules(parent), &rest, on) == Some(true) && self.has_dir(parent, on)
        })
    }

    /// Whether an object of a directory is made; `None` for one that no line names.
    fn has_object(
        &self,
        dir: &str,
        object: &str,
        on: &BTreeSet<&str>,
        nested: usize,
    ) -> Option<bool> {
        let rules = self.rules(dir);
        let mut is_named = None;
        for rule in rules.iter().filter(|rule| rule.names(object)) {
            let counts = rule.counts(on);
            let is_whole = matches!(rule.target.as_str(), "obj" | "lib");
            let is_made = counts
                && (is_whole
                    || nested > 0
                        && self
                            .has_object(dir, &format!("{}.o", rule.target), on, nested - 1)
                            .unwrap_or(true));
            if is_made {
                return Some(true);
            }
            is_named = Some(false);
        }
        is_named
    }

    fn rules(&self, dir: &str) -> Rc<Vec<Rule>> {
        if let Some(known) = self.read.borrow().get(dir) {
            return Rc::clone(known);
        }
        let read = |path: &Path| objects::read_text(self.tree, path).ok();
        let text = if dir == OURS_BESIDE {
            read(Path::new(dir))
        } else {
            let mut names = MAKEFILES.iter();
            names.find_map(|name| read(&Path::new(dir).join(name)))
        };
        let rules = Rc::new(rules(&text.unwrap_or_default()));
        let mut read = self.read.borrow_mut();
        read.insert(dir.to_owned(), Rc::clone(&rules));
        rules
    }
}

/// Whether one of the rules that name a directory counts; `None` where no rule names it.
fn lists(rules: &[Rule], dir: &str, on: &BTreeSet<&str>) -> Option<bool> {
    let naming = || {
        rules
            .iter()
            .filter(|rule| rule.parts.iter().any(|it| it == dir))
    };
    naming().next()?;
    Some(naming().any(|rule| rule.counts(on)))
}

impl Rule {
    fn counts(&self, on: &BTreeSet<&str>) -> bool {
        let option = self.option.as_deref();
        option.is_none_or(|option| on.contains(option))
    }

    fn names(&self, object: &str) -> bool {
        self.parts.iter().any(|part| part == object)
    }
}

/// The lines of a makefile that list something.
fn rules(text: &str) -> Vec<Rule> {
    let joined = text.replace("\\\n", " ");
    joined.lines().filter_map(rule).collect()
}

fn rule(line: &str) -> Option<Rule> {
    let line = line.split('#').next()?;
    let (name, parts) = line.split_once('=')?;
    let name = name.trim_end_matches(['+', ':', '?']).trim();
    let (target, option) = match name.strip_suffix(')') {
        Some(name) => {
            let (target, option) = name.split_once("-$(CONFIG_")?;
            (target, Some(option.to_owned()))
        }
        None => {
            let (target, kind) = name.rsplit_once('-')?;
            matches!(kind, "y" | "m" | "objs").then_some((target, None))?
        }
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if target.is_empty() || !target.chars().all(is_name) {
        return None;
    }
    Some(Rule {
        target: target.to_owned(),
        option,
        parts: parts.split_whitespace().map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            (
                "fs/Makefile",
                "obj-y += open.o \\\n\tread.o # and more\nobj-$(CONFIG_EXT4_FS)\t+= ext4/\n",
            ),
            (
                "fs/ext4/Makefile",
                "obj-$(CONFIG_EXT4_FS) += ext4.o\next4-y\t:= inode.o\n\
                 ext4-$(CONFIG_EXT4_FS_POSIX_ACL) += acl.o\n",
            ),
            ("drivers/Makefile", "obj-$(CONFIG_A) += net/ethernet/a/\n"),
            (
                "drivers/net/ethernet/a/Makefile",
                "obj-m += a.o\na-objs := b.o\n",
            ),
            ("arch/x86/Kbuild", "obj-$(CONFIG_KVM) += kvm/\n"),
            (
                "arch/x86/Makefile",
                "KBUILD_CFLAGS += -O2\ndrivers-$(CONFIG_PCI)            += arch/x86/pci/\n",
            ),
            ("arch/x86/pci/Makefile", "obj-y += early.o\n"),
            (
                "Kbuild",
                "obj-y\t\t\t+= fs/\nobj-$(CONFIG_BLOCK)\t+= block/\nobj-y += drivers/\n",
            ),
            ("block/Makefile", "obj-y := bio.o\n"),
            ("lib/Makefile", "lib-y := ctype.o\n"),
            (
                "arch/x86/kvm/Makefile",
                "kvm-y += x86.o\nobj-$(CONFIG_KVM) += kvm.o\n",
            ),
        ];
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn a_file_is_compiled_as_the_makefiles_on_its_way_say() {
        let dir = tree();
        let kbuild = Kbuild::of(dir.path());
        let compiled = |file: &str, config: &str| kbuild.compiles(file, &Config::read(config));
        let (ext4, acl) = ("CONFIG_EXT4_FS=m\n", "CONFIG_EXT4_FS_POSIX_ACL=y\n");
        let both = format!("{ext4}{acl}");
        for (file, config, right) in [
            ("fs/open.c", "", true),
            ("fs/read.c", "", true),
            ("fs/ext4/inode.c", "", false),
            ("fs/ext4/inode.c", ext4, true),
            ("fs/ext4/acl.c", ext4, false),
            ("fs/ext4/acl.c", &both, true),
            ("fs/ext4/acl.c", acl, false),
            // No line names it: another file includes it.
            ("fs/ext4/included.c", ext4, true),
            ("fs/ext4/included.c", "", false),
            ("fs/ext4/ext4.h", ext4, false),
            ("drivers/net/ethernet/a/b.c", "", false),
            ("drivers/net/ethernet/a/b.c", "CONFIG_A=y\n", true),
            ("arch/x86/kvm/x86.c", "CONFIG_KVM=y\n", true),
            ("arch/x86/kvm/x86.c", "", false),
            ("arch/arm64/kvm/arm.c", "CONFIG_KVM=y\n", false),
            ("arch/x86/pci/early.c", "CONFIG_PCI=y\n", true),
            ("arch/x86/pci/early.c", "", false),
            ("block/bio.c", "", false),
            ("block/bio.c", "CONFIG_BLOCK=y\n", true),
            ("block/included.c", "", false),
            // Not in the uppermost list.
            ("lib/ctype.c", "", true),
        ] {
            assert_eq!(compiled(file, config), right, "{file} with {config:?}");
        }
    }

    #[test]
    fn other_lines_of_makefiles_are_no_lists() {
        for line in [
            "ccflags-y-not = x",
            "# obj-y += a.o",
            "$(obj)-y += a.o",
            "obj-$(CONFIG_A) a.o",
            "-y = a.o",
            "all: vmlinux",
        ] {
            assert_eq!(rule(line), None, "{line}");
        }
    }
}
