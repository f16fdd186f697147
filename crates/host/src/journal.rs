//! A file of JSON lines. Each line is on the disk before the change that it describes is
//! made, and the file is locked (flock) while its writer lives. A file whose lock is free
//! says what a killed process had changed. `tare pin`'s placements and what the lab changes
//! on a host are kept in such files; each has its own entries and undoes them itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A journal that this process writes, and its lock.
#[derive(Debug)]
pub struct JournalFile<E> {
    file: File,
    path: PathBuf,
    of: PhantomData<E>,
}

/// A journal that no process writes any more.
#[derive(Debug)]
pub struct Left<E> {
    /// Held until this is dropped, so that no other process takes it up.
    pub lock: File,
    /// Its whole lines.
    pub entries: Vec<E>,
}

impl<E: Serialize> JournalFile<E> {
    /// A new file, locked. It has its name once it is locked, so that no other process takes it for
    /// one that was left.
    pub fn create(path: &Path) -> io::Result<Self> {
        let unnamed = path.with_extension(format!("{}.new", std::process::id()));
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&unnamed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let named = fs::hard_link(&unnamed, path);
        fs::remove_file(&unnamed)?;
        named?;
        Ok(Self {
            file,
            path: path.to_owned(),
            of: PhantomData,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down what is about to be done; on the disk when this returns.
    pub fn write(&mut self, entries: &[E]) -> io::Result<()> {
        let mut text = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut text, entry)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        self.file.sync_data()
    }
}

/// The journal at `path`, unless its writer lives.
pub fn left<E: DeserializeOwned>(path: &Path) -> Option<Left<E>> {
    let lock = File::open(path).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    let entries = read(path)?;
    Some(Left { lock, entries })
}

/// The entries at `path`, also while they are being written.
pub fn read<E: DeserializeOwned>(path: &Path) -> Option<Vec<E>> {
    Some(parse(&String::from_utf8_lossy(&fs::read(path).ok()?)))
}

/// The entries of a text. A line that was cut off was never acted upon: it and what
/// follows is left out.
pub fn parse<E: DeserializeOwned>(text: &str) -> Vec<E> {
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let lines = whole.lines();
    lines
        .map_while(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The name of this boot: numbers of processes mean nothing in another.
pub fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_journal_is_left_when_its_writer_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        let mut journal = JournalFile::create(&path).unwrap();
        journal.write(&[1, 2]).unwrap();
        assert!(left::<u32>(&path).is_none());
        assert_eq!(read::<u32>(&path), Some(vec![1, 2]));
        assert!(JournalFile::<u32>::create(&path).is_err());
        drop(journal);
        // A process that another test starts has the lock too until it executes its program.
        let gone = (0..3000).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            left::<u32>(&path)
        });
        assert_eq!(gone.unwrap().entries, [1, 2]);
    }

    #[test]
    fn a_torn_line_and_what_follows_it_is_left_out() {
        assert_eq!(parse::<u32>("1\n2\n3"), [1, 2]);
        assert_eq!(parse::<u32>("1\nx\n3\n"), [1]);
        assert!(parse::<u32>("").is_empty());
    }
}
