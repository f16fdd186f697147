//! A copy of a tree with patches: hard links for all but the files that they
//! change, so that it costs names and no bytes. Kept in the cache, one for each
//! set of patches, or one whose patches are put on and taken off.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_host::owned_directory;
use tare_rootfs::cache::{Cache, CacheError};

use super::{SourceError, Sources, Tree};
use crate::cut::Cut;
use crate::lock::{LockError, Patch};
use crate::{lock, objects};

/// The cache's directory of trees with patches.
const ENTRIES: &str = "linux-patched";
/// The hash of such a tree, beside it.
const HASH: &str = "tree.sha256";

/// A patch that does not apply, or a copy that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// It is for other sources.
    #[error("the patch {name} does not apply to {}: {said} Leave it out by --keep {name}, or take Debian's sources (no --source)", tree.display())]
    DoesNotApply {
        /// The patch.
        name: String,
        /// The tree.
        tree: PathBuf,
        /// What patch said.
        said: String,
    },
    /// No patch program.
    #[error("cannot run {program}: install patch")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The copy.
    #[error("cannot copy the sources to {}: {said}", dir.display())]
    Copy {
        /// The copy.
        dir: PathBuf,
        /// What cp said.
        said: String,
    },
    /// A file of the copy.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The copy's hash.
    #[error(transparent)]
    Hash(#[from] LockError),
    /// The copy is not a tree of kernel sources.
    #[error(transparent)]
    Tree(#[from] SourceError),
}

/// The tree with patches, by name and text; the tree itself for none.
pub fn patched(
    sources: &Sources,
    patches: &[(&str, &str)],
    cache: &Cache,
) -> Result<(Tree, Vec<Patch>), PatchError> {
    let listed = listed(patches);
    if patches.is_empty() {
        return Ok((sources.tree.clone(), listed));
    }
    let hashes: String = listed.iter().map(|patch| patch.sha256.as_str()).collect();
    let key = lock::sha256(format!("{} {hashes}", sources.sha256).as_bytes());
    let name = format!("{ENTRIES}/{}", &key[..16]);
    let fill = |entry: &Path| -> Result<(), PatchError> {
        let copy = entry.join("linux");
        link(sources.tree.dir(), &copy)?;
        let mut all = patches.iter();
        all.try_for_each(|(name, text)| apply(&copy, sources.tree.dir(), name, text))?;
        let hash = lock::sha256_of_tree(&Tree::open(&copy)?)?;
        let path = entry.join(HASH);
        fs::write(&path, hash).map_err(unwritten(&path))
    };
    let mut entry = cache.get_or_fill(&name, fill)?;
    // A tree of the user's may have been edited in place: its files are the copy's.
    let own = cache.dir().canonicalize();
    let is_ours = own.is_ok_and(|own| sources.tree.dir().starts_with(own));
    if !is_ours {
        let found = lock::sha256_of_tree(&Tree::open(&entry.join("linux"))?)?;
        let known = fs::read_to_string(entry.join(HASH));
        if known.ok() != Some(found) {
            fs::remove_dir_all(&entry).map_err(unwritten(&entry))?;
            entry = cache.get_or_fill(&name, fill)?;
        }
    }
    Ok((Tree::open(&entry.join("linux"))?, listed))
}

/// The tree in `dir` with just these patches: a copy is made once, and then only
/// files that other patches change are written, so that a build of another set
/// compiles those again and no others.
pub fn switched(
    sources: &Sources,
    patches: &[(&str, &str)],
    dir: &Path,
) -> Result<(Tree, Vec<Patch>), PatchError> {
    let copy = dir.join(format!("linux-{:.16}", sources.sha256));
    if !copy.is_dir() {
        let making = dir.join(".linux");
        let removed = owned_directory::remove(&making).map_err(io::Error::other);
        removed
            .and_then(|()| owned_directory::create(&making))
            .map_err(unwritten(&making))?;
        let whole = making.join("linux");
        link(sources.tree.dir(), &whole)?;
        fs::rename(&whole, &copy).map_err(unwritten(&copy))?;
        let _ = owned_directory::remove(&making);
    }
    let scratch = tempfile::tempdir_in(dir).map_err(unwritten(dir))?;
    let asked = patches.iter().map(|(_, text)| *text);
    let known = Cut::ALL
        .iter()
        .filter_map(|cut| -> Option<&str> { cut.patch(sources.tree.series()) });
    let changed: BTreeSet<&str> = asked.chain(known).flat_map(files).collect();
    for file in &changed {
        let to = scratch.path().join(file);
        let parent = to.parent().unwrap_or(dir);
        fs::create_dir_all(parent).map_err(unwritten(parent))?;
        // Untrusted sources may have a link there.
        match objects::open(sources.tree.dir(), file) {
            Ok(mut from) => fs::File::create(&to)
                .and_then(|mut to| io::copy(&mut from, &mut to))
                .map(drop)
                .map_err(unwritten(&to))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unwritten(&to)(error)),
        }
    }
    for (name, text) in patches {
        apply(scratch.path(), sources.tree.dir(), name, text)?;
    }
    for file in changed {
        let (from, to) = (scratch.path().join(file), copy.join(file));
        let wanted = fs::read(&from).ok();
        if wanted.is_some() && wanted != fs::read(&to).ok() {
            // In place of the link, whose other end is the original.
            fs::rename(&from, &to).map_err(unwritten(&to))?;
        }
    }
    Ok((Tree::open(&copy)?, listed(patches)))
}

/// The files that a patch changes.
fn files(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().filter_map(|line| line.strip_prefix("+++ b/"))
}

fn listed(patches: &[(&str, &str)]) -> Vec<Patch> {
    let all = patches.iter();
    all.map(|(name, text)| Patch {
        name: (*name).to_owned(),
        sha256: lock::sha256(text.as_bytes()),
    })
    .collect()
}

fn unwritten(path: &Path) -> impl FnOnce(io::Error) -> PatchError {
    let path = path.to_owned();
    move |source| PatchError::Write { path, source }
}

/// Hard links, or a copy where the cache lies on another file system. What is left of a
/// failure is in a directory that its maker removes.
fn link(tree: &Path, copy: &Path) -> Result<(), PatchError> {
    let parent = copy.parent().unwrap_or(Path::new("."));
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    let same_device = device(tree) == device(parent);
    let mut cp = Command::new("cp");
    cp.arg(if same_device { "-al" } else { "-a" });
    cp.arg(tree).arg(copy).env("LC_ALL", "C");
    let output = cp
        .stdin(Stdio::null())
        .output()
        .map_err(|source| PatchError::NoProgram {
            program: "cp",
            source,
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(PatchError::Copy {
        dir: copy.to_owned(),
        said: said.lines().next().unwrap_or("it said nothing").to_owned(),
    })
}

/// `patch` replaces a file that it changes and so leaves the other link alone.
/// `tree` is a copy of what the user knows as `original`.
fn apply(tree: &Path, original: &Path, name: &str, text: &str) -> Result<(), PatchError> {
    let no_patch = |source| PatchError::NoProgram {
        program: "patch",
        source,
    };
    let mut patch = Command::new("patch")
        .args(["-p1", "--batch", "--fuzz=0", "--no-backup-if-mismatch"])
        .args(["--reject-file=-", "--directory"])
        .arg(tree)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_patch)?;
    if let Some(mut input) = patch.stdin.take() {
        // A program that ended says itself why.
        let _ = input.write_all(text.as_bytes());
    }
    let output = patch.wait_with_output().map_err(no_patch)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let telling = |line: &&str| line.contains("FAILED") || line.contains("can't find");
    Err(PatchError::DoesNotApply {
        name: name.to_owned(),
        tree: original.to_owned(),
        said: said
            .lines()
            .find(telling)
            .unwrap_or("it said nothing")
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::Cut;

    const PATCH: &str = "--- a/fs/a.c\n+++ b/fs/a.c\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";

    fn sources(dir: &Path) -> Sources {
        fs::create_dir_all(dir.join("scripts/kconfig")).unwrap();
        fs::create_dir_all(dir.join("fs")).unwrap();
        fs::write(dir.join("Kconfig"), "").unwrap();
        fs::write(
            dir.join("Makefile"),
            "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\n",
        )
        .unwrap();
        fs::write(dir.join("fs/a.c"), "one\ntwo\n").unwrap();
        let tree = Tree::open(dir).unwrap();
        let sha256 = lock::sha256_of_tree(&tree).unwrap();
        Sources { tree, sha256 }
    }

    #[test]
    fn a_patch_changes_the_copy_and_not_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        let sources = sources(&dir.path().join("tree"));
        let cache = Cache::at(dir.path().join("cache"));
        let (tree, patches) = patched(&sources, &[("three", PATCH)], &cache).unwrap();
        let text = |tree: &Tree| fs::read_to_string(tree.dir().join("fs/a.c")).unwrap();
        assert_eq!(text(&tree), "one\nthree\n");
        assert_eq!(text(&sources.tree), "one\ntwo\n");
        assert_eq!(patches[0].name, "three");
        assert_eq!(lock::sha256_of_tree(&sources.tree).unwrap(), sources.sha256);
    }

    #[test]
    fn patches_are_put_on_and_taken_off_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        fs::create_dir_all(root.join("fs")).unwrap();
        // A file that one of our patches changes, so it is known when none is on.
        fs::write(root.join("fs/namei.c"), "one\ntwo\n").unwrap();
        let sources = sources(&root);
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        let with = |patches: &[(&str, &str)]| {
            let (tree, _) = switched(&sources, patches, &own).unwrap();
            let text = |file: &str| fs::read_to_string(tree.dir().join(file)).unwrap();
            assert_eq!(text("fs/a.c"), "one\ntwo\n");
            text("fs/namei.c")
        };
        let three = PATCH.replace("a.c", "namei.c");
        let four = three.replace("three", "four");
        assert_eq!(with(&[("three", &three)]), "one\nthree\n");
        assert_eq!(with(&[("four", &four)]), "one\nfour\n");
        assert_eq!(with(&[]), "one\ntwo\n");
        assert_eq!(lock::sha256_of_tree(&sources.tree).unwrap(), sources.sha256);
        assert_eq!(fs::read_dir(own).unwrap().count(), 1, "one tree, no rest");
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let sources = sources(&dir.path().join("tree"));
        let cache = Cache::at(dir.path().join("cache"));
        let other = PATCH.replace("-two", "-four");
        let error = patched(&sources, &[("other", &other)], &cache).unwrap_err();
        let said = error.to_string();
        let tree = sources.tree.dir().display();
        let what = format!("the patch other does not apply to {tree}: ");
        assert!(said.starts_with(&what), "{said}");
        assert!(said.contains("FAILED"), "{said}");
        let entries = fs::read_dir(cache.dir().join(ENTRIES)).unwrap();
        assert_eq!(entries.count(), 0);
    }

    /// An editor that writes a file in place writes the copy's too, which is the same inode.
    #[test]
    fn an_edit_in_place_that_was_taken_back_is_not_built() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        fs::create_dir_all(&root).unwrap();
        let file = root.join("b.c");
        fs::write(&file, "good\n").unwrap();
        let sources = sources(&root);
        let cache = Cache::at(dir.path().join("cache"));
        let built = || {
            let (tree, _) = patched(&sources, &[("three", PATCH)], &cache).unwrap();
            fs::read_to_string(tree.dir().join("b.c")).unwrap()
        };
        assert_eq!(built(), "good\n");
        fs::write(&file, "edited\n").unwrap();
        // As git checkout puts it back: another inode.
        fs::remove_file(&file).unwrap();
        fs::write(&file, "good\n").unwrap();
        assert_eq!(lock::sha256_of_tree(&sources.tree).unwrap(), sources.sha256);
        assert_eq!(built(), "good\n");
    }

    #[test]
    fn our_patches_apply_to_debians_sources() {
        let Some(tree) = crate::testing::tree() else {
            return;
        };
        let copy = tempfile::tempdir().unwrap();
        for file in ["fs/namei.c", "fs/exec.c"] {
            let to = copy.path().join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(tree.dir().join(file), to).unwrap();
        }
        for cut in Cut::ALL {
            if let Some(text) = cut.patch(tree.series()) {
                apply(copy.path(), tree.dir(), cut.name(), text).unwrap();
            }
        }
    }
}
