//! How often code of an instrumented kernel ran while its application worked: what gcc optimizes the kernel by
//! (the cut `pgo`, ADR 92).
//!
//! A guest sends them ([`tare_init::counts`]), and the guest is hostile: names, numbers and sizes are bounded, and each
//! file is read (`gcda`) before it is kept. What passes is still only counts: wrong ones make a slower
//! kernel, not another one.

mod gcda;
pub mod port;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use tare_init::counts;

use crate::{lock, objects};

/// The counts that a kernel was optimized by, in its directory.
pub const COUNTS: &str = "kernel.counts";
/// Most files; a kernel with everything has some 20,000, of which a tailored one has 1,000.
const MOST_FILES: usize = 20_000;
/// Longest name of a file, bytes, so that it is the name of one file with `#` for `/`.
const NAME_BYTES: usize = 200;
/// Most bytes of all; those of lighttpd's kernel have 2.7 MB.
pub(crate) const MOST_BYTES: usize = 64 << 20;
/// What files of counts end with.
const SUFFIX: &str = ".gcda";

/// Counts of a kernel's objects, by the object's name without its end: `kernel/fork`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionCounts {
    files: BTreeMap<String, Vec<u8>>,
}

/// Counts that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CountsError {
    /// Nothing was counted.
    #[error("the instrumented kernel counted nothing")]
    Nothing,
    /// Not in the form in which the first process of a guest sends them.
    #[error("invalid execution counts: {0}")]
    Invalid(&'static str),
    /// A file that gcc has not made.
    #[error("invalid execution counts: {0} is not a file of counts that gcc 10 or later reads")]
    NotGccs(String),
    /// A file.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ExecutionCounts {
    /// The counts in a guest's list of files, of a kernel that was built in `objects`.
    pub fn of_guest(list: &[u8], objects: &Path) -> Result<Self, CountsError> {
        let objects = objects.to_string_lossy();
        let below = format!("{}/", objects.trim_matches('/'));
        Self::of_list(list, &below)
    }

    fn of_list(list: &[u8], below: &str) -> Result<Self, CountsError> {
        if list.len() > MOST_BYTES {
            return Err(CountsError::Invalid("more than 64 MiB"));
        }
        let mut found = Self::default();
        let mut rest = list;
        while !rest.is_empty() {
            let damaged = CountsError::Invalid("the list of files is damaged");
            let (name, content, after) = counts::next(rest).ok_or(damaged)?;
            rest = after;
            let name = std::str::from_utf8(name).ok();
            let name = name.and_then(|name| name.strip_prefix(below));
            // One of another directory is not of this kernel.
            let Some(name) = name.and_then(|name| name.strip_suffix(SUFFIX)) else {
                continue;
            };
            if !is_name(name) {
                return Err(CountsError::Invalid("a file has a name that no object has"));
            }
            if gcda::counters(content).is_none() {
                return Err(CountsError::NotGccs(name.to_owned()));
            }
            found.files.insert(name.to_owned(), content.to_vec());
            if found.files.len() > MOST_FILES {
                return Err(CountsError::Invalid("more than 20000 files"));
            }
        }
        if found.files.values().any(|file| gcda::has_run(file)) {
            Ok(found)
        } else {
            Err(CountsError::Nothing)
        }
    }

    /// Adds the counts of another application on the same kernel.
    pub fn add(&mut self, other: &Self) {
        for (name, more) in &other.files {
            match self.files.get_mut(name) {
                // Of another build of this object the first counts stay.
                Some(file) => drop(gcda::add(file, more)),
                None => drop(self.files.insert(name.clone(), more.clone())),
            }
        }
    }

    /// Number of objects that were counted.
    pub fn objects(&self) -> usize {
        self.files.len()
    }

    /// Number of objects of which anything ran.
    pub fn objects_run(&self) -> usize {
        let files = self.files.values();
        files.filter(|file| gcda::has_run(file)).count()
    }

    /// SHA-256 over names and contents, in hexadecimal.
    pub fn sha256(&self) -> String {
        lock::sha256(&self.list())
    }

    fn list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        for (name, content) in &self.files {
            counts::add(&mut list, format!("{name}{SUFFIX}").as_bytes(), content);
        }
        list
    }

    /// Reads what [`Self::write`] has written, or someone else.
    pub fn read(path: &Path) -> Result<Self, CountsError> {
        let mut short = Vec::new();
        let most = MOST_BYTES as u64;
        let opened = fs::File::open(path);
        let read = opened.and_then(|file| file.take(most + 1).read_to_end(&mut short));
        read.map_err(file(path))?;
        Self::of_shortened(&short)
    }

    /// What the bytes of such a file say.
    pub(crate) fn of_shortened(short: &[u8]) -> Result<Self, CountsError> {
        let list = counts::restored(short, MOST_BYTES);
        let list = list.ok_or(CountsError::Invalid("damaged, or more than 64 MiB"))?;
        Self::of_list(&list, "")
    }

    /// Writes them for [`Self::read`].
    pub fn write(&self, path: &Path) -> Result<(), CountsError> {
        fs::write(path, self.shortened()).map_err(file(path))
    }

    pub(crate) fn shortened(&self) -> Vec<u8> {
        counts::shortened(&self.list())
    }

    /// Names of the files in the directory of counts.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn mangled_names(&self) -> Vec<String> {
        self.files.keys().map(|object| mangled(object)).collect()
    }

    /// Puts them where the compilers of a build in `objects` find them, and returns the flags that have
    /// gcc use them there. Other counts have another directory, so that `make` compiles anew.
    pub(crate) fn give(&self, objects: &Path) -> Result<[String; 2], CountsError> {
        let name = format!("counts-{}", &self.sha256()[..16]);
        let dir = objects.join(&name);
        // It may be a link to anywhere: the sources' scripts write here.
        let made = match fs::symlink_metadata(&dir) {
            Ok(there) if there.is_dir() => fs::remove_dir_all(&dir),
            Ok(_) => fs::remove_file(&dir),
            Err(_) => Ok(()),
        };
        made.and_then(|()| fs::create_dir(&dir))
            .map_err(file(&dir))?;
        for (object, content) in &self.files {
            let name = mangled(object);
            let content = gcda::with_summary(content).unwrap_or_default();
            let written = objects::create(&dir, &name);
            written
                .and_then(|mut file| file.write_all(&content))
                .map_err(file(&dir.join(&name)))?;
        }
        Ok([
            format!("-fprofile-use={name}"),
            format!("-fprofile-prefix-path={}", objects.display()),
        ])
    }
}

/// Besides the place of the counts. Some code has other branches in an instrumented kernel (that of debugfs): gcc
/// leaves its counts out. Code that did not run is compiled for size.
pub(crate) const FLAGS: [&str; 1] = ["-Wno-coverage-mismatch"];

/// The name under which gcc looks for an object's counts in a directory.
fn mangled(object: &str) -> String {
    format!("{}{SUFFIX}", object.replace('/', "#"))
}

/// Whether it may be an object below the directory of objects.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,+/".contains(c);
    let mut parts = name.split('/');
    name.len() <= NAME_BYTES
        && name.chars().all(is_plain)
        && parts.all(|part| !part.is_empty() && part != "." && part != "..")
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> CountsError {
    let path = path.to_owned();
    move |source| CountsError::File { path, source }
}

/// Counts of one object, for tests of those who use them.
#[cfg(test)]
pub(crate) fn of_one_object(counts: [u64; 3]) -> ExecutionCounts {
    let mut list = Vec::new();
    counts::add(
        &mut list,
        b"out/build/kernel/fork.gcda",
        &gcda::file(counts),
    );
    ExecutionCounts::of_guest(&list, Path::new("/out/build")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn list(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (name, content) in files {
            counts::add(&mut list, name.as_bytes(), content);
        }
        list
    }

    #[test]
    fn counts_of_this_kernel_are_taken_by_their_objects() {
        let file = gcda::file([1, 0, 0]);
        let list = list(&[
            ("out/build/net/socket.gcda", &file),
            ("elsewhere/net/socket.gcda", b"whatever"),
            ("out/build/net/socket.gcno", b"whatever"),
        ]);
        let found = ExecutionCounts::of_guest(&list, Path::new("/out/build")).unwrap();
        assert_eq!(found.files.keys().collect::<Vec<_>>(), ["net/socket"]);
        assert_eq!((found.objects(), found.objects_run()), (1, 1));
    }

    #[test]
    fn what_a_hostile_guest_sends_is_an_error_that_says_what() {
        let file = gcda::file([1, 0, 0]);
        let none = gcda::file([0; 3]);
        let long = format!("b/{}.gcda", "a".repeat(NAME_BYTES + 1));
        let of = |files: &[(&str, &[u8])]| {
            let list = list(files);
            let found = ExecutionCounts::of_guest(&list, Path::new("/b"));
            found.unwrap_err().to_string()
        };
        for name in ["b/../x.gcda", "b//x.gcda", "b/a#b.gcda", "b/.gcda", &long] {
            assert!(of(&[(name, &file)]).contains("a name that no"), "{name}");
        }
        assert!(of(&[("b/x.gcda", b"adcg")]).contains("x is not a file"));
        assert!(of(&[("b/x.gcda", &none)]).ends_with("counted nothing"));
        assert!(of(&[]).ends_with("counted nothing"));
        let damaged = ExecutionCounts::of_guest(&[1, 0, 7], Path::new("/b"));
        assert!(damaged.unwrap_err().to_string().ends_with("is damaged"));
    }

    #[test]
    fn counts_are_read_as_they_were_written_and_their_sum_is_of_all_applications() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(COUNTS);
        let mut sum = of_one_object([1, 2, 0]);
        sum.write(&path).unwrap();
        assert_eq!(ExecutionCounts::read(&path).unwrap(), sum);
        fs::write(&path, b"\0").unwrap();
        let error = ExecutionCounts::read(&path).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        sum.add(&of_one_object([1, 0, 7]));
        assert_eq!(sum, of_one_object([2, 2, 7]));
        assert_ne!(sum.sha256(), of_one_object([2, 2, 8]).sha256());
    }

    #[test]
    fn a_build_finds_counts_in_a_directory_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let (objects, outside) = (place.path().join("build"), place.path().join("other"));
        fs::create_dir(&objects).unwrap();
        fs::create_dir(&outside).unwrap();
        let counts = of_one_object([1, 2, 3]);
        let dir = format!("counts-{}", &counts.sha256()[..16]);
        symlink(&outside, objects.join(&dir)).unwrap();
        let flags = counts.give(&objects).unwrap();
        assert_eq!(flags[0], format!("-fprofile-use={dir}"));
        assert_eq!(
            flags[1],
            format!("-fprofile-prefix-path={}", objects.display())
        );
        let there = objects.join(&dir).join("kernel#fork.gcda");
        assert_eq!(
            fs::read(there).ok(),
            gcda::with_summary(&gcda::file([1, 2, 3]))
        );
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
        let others = of_one_object([1, 2, 4]).give(&objects).unwrap();
        assert_ne!(others, flags, "other counts compile anew");
        // The same once more.
        assert_eq!(counts.give(&objects).unwrap(), flags);
    }
}
