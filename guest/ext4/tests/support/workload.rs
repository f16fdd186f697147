//! Random calls on a volume, beside a model of what they must leave.

use std::collections::{BTreeMap, BTreeSet};

use tare_linux::volume::{Errno, Kind, New, Result, Volume};

use super::Random;

/// Directories, and names in them.
const DIRECTORIES: [&str; 3] = ["", "one", "two"];
const NAMES: u64 = 12;

/// What files have, by path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Calls, and what they must have left.
pub struct Workload<'a> {
    pub volume: &'a dyn Volume,
    random: Random,
    /// What the files have now.
    pub now: Files,
    /// What they had when a sync returned last.
    pub durable: Files,
    /// Paths that were changed since.
    pub touched: BTreeSet<String>,
}

impl<'a> Workload<'a> {
    pub fn new(volume: &'a dyn Volume, seed: u64) -> Result<Self> {
        for name in &DIRECTORIES[1..] {
            volume.make(volume.root(), name, New::Directory(0o755))?;
        }
        volume.sync()?;
        Ok(Self {
            volume,
            random: Random(seed),
            now: Files::new(),
            durable: Files::new(),
            touched: BTreeSet::new(),
        })
    }

    /// Goes on with files that are there.
    pub fn continued(volume: &'a dyn Volume, seed: u64, now: Files) -> Self {
        Self {
            volume,
            random: Random(seed),
            durable: now.clone(),
            now,
            touched: BTreeSet::new(),
        }
    }

    fn directory(&self, name: &str) -> Result<u64> {
        match name {
            "" => Ok(self.volume.root()),
            name => inode(self.volume, self.volume.root(), name),
        }
    }

    /// A place for a file: its path, its directory's inode, its name.
    fn place(&mut self) -> Result<(String, u64, String)> {
        let directory = DIRECTORIES[self.random.below(3) as usize];
        let name = format!("a name that is not short {}", self.random.below(NAMES));
        Ok((
            format!("{directory}/{name}"),
            self.directory(directory)?,
            name,
        ))
    }

    fn touch(&mut self, path: &str) {
        self.touched.insert(path.to_owned());
    }

    /// Makes a call; the model follows if it is carried out.
    pub fn step(&mut self) -> Result<()> {
        let (path, directory, name) = self.place()?;
        let choice = self.random.below(12);
        if choice == 0 {
            self.volume.sync()?;
            self.durable = self.now.clone();
            self.touched.clear();
            return Ok(());
        }
        let Some(found) = self.volume.look_up(directory, &name)? else {
            assert!(!self.now.contains_key(&path), "{path} is gone");
            self.touch(&path);
            self.volume.make(directory, &name, New::File(0o644))?;
            self.now.insert(path, Vec::new());
            return Ok(());
        };
        assert_eq!(found.kind, Kind::File);
        self.touch(&path);
        match choice {
            1 => {
                self.volume.unlink(directory, &name)?;
                self.volume.forget(found.inode);
                self.now.remove(&path);
            }
            2 | 3 => {
                let (new_path, new_directory, new_name) = self.place()?;
                self.touch(&new_path);
                let replaced = self.volume.look_up(new_directory, &new_name)?;
                self.volume
                    .rename((directory, &name), (new_directory, &new_name))?;
                if let Some(replaced) = replaced.filter(|it| it.inode != found.inode) {
                    self.volume.forget(replaced.inode);
                }
                let content = self.now.remove(&path).ok_or(Errno::ENOENT)?;
                self.now.insert(new_path, content);
            }
            4 => {
                let length = self.random.below(60_000);
                self.volume.set_len(found.inode, length)?;
                let content = self.now.get_mut(&path).ok_or(Errno::ENOENT)?;
                content.resize(length as usize, 0);
            }
            _ => {
                let at = self.random.below(60_000) as usize;
                let bytes =
                    vec![self.random.below(255) as u8 + 1; self.random.below(9000) as usize];
                let written = self.volume.write(found.inode, at as u64, &bytes)?;
                assert_eq!(written, bytes.len(), "the disk has room");
                if !bytes.is_empty() {
                    let content = self.now.get_mut(&path).ok_or(Errno::ENOENT)?;
                    content.resize(content.len().max(at + bytes.len()), 0);
                    content[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
        Ok(())
    }
}

fn inode(volume: &dyn Volume, directory: u64, name: &str) -> Result<u64> {
    let found = volume.look_up(directory, name)?.ok_or(Errno::ENOENT)?;
    Ok(found.inode)
}

/// What the files of a volume have.
pub fn files(volume: &dyn Volume) -> Result<Files> {
    let mut files = Files::new();
    for directory in DIRECTORIES {
        let parent = match directory {
            "" => volume.root(),
            name => inode(volume, volume.root(), name)?,
        };
        for (name, found) in volume.list(parent)? {
            if found.kind == Kind::File {
                let mut bytes = vec![0; volume.attributes(found.inode)?.bytes as usize];
                let read = volume.read(found.inode, 0, &mut bytes)?;
                assert_eq!(read, bytes.len());
                files.insert(format!("{directory}/{name}"), bytes);
            }
        }
    }
    Ok(files)
}
