//! Names of a volume that change between a look and a call.

use super::*;
use crate::volume::{Attributes, Sought, Space};

const ROOT: u64 = 2;

/// A volume of names alone: inodes without a name stay until they are forgotten.
#[derive(Default)]
struct Names {
    entries: SpinLock<BTreeMap<String, u64>>,
    forgotten: SpinLock<Vec<u64>>,
}

impl Names {
    fn put(&self, name: &str, inode: u64) {
        self.entries.lock().insert(name.into(), inode);
    }

    fn take_forgotten(&self) -> Vec<u64> {
        core::mem::take(&mut self.forgotten.lock())
    }
}

impl Volume for Names {
    fn root(&self) -> u64 {
        ROOT
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn look_up(&self, _: u64, name: &str) -> Result<Option<Found>> {
        let inode = self.entries.lock().get(name).copied();
        let kind = Kind::File;
        Ok(inode.map(|inode| Found { inode, kind }))
    }

    fn unlink(&self, _: u64, name: &str) -> Result<()> {
        self.entries
            .lock()
            .remove(name)
            .map(drop)
            .ok_or(Errno::ENOENT)
    }

    fn rename(&self, from: (u64, &str), to: (u64, &str)) -> Result<()> {
        let mut entries = self.entries.lock();
        let inode = entries.remove(from.1).ok_or(Errno::ENOENT)?;
        entries.insert(to.1.into(), inode);
        Ok(())
    }

    fn forget(&self, inode: u64) {
        self.forgotten.lock().push(inode);
    }

    fn end(&self) {}

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn attributes(&self, _: u64) -> Result<Attributes> {
        Err(Errno::EIO)
    }

    fn target(&self, _: u64) -> Result<String> {
        Err(Errno::EIO)
    }

    fn list(&self, _: u64) -> Result<Vec<(String, Found)>> {
        Err(Errno::EIO)
    }

    fn make(&self, _: u64, _: &str, _: New<'_>) -> Result<Found> {
        Err(Errno::EIO)
    }

    fn link(&self, _: u64, _: u64, _: &str) -> Result<()> {
        Err(Errno::EIO)
    }

    fn remove_directory(&self, _: u64, _: &str) -> Result<()> {
        Err(Errno::EIO)
    }

    fn read(&self, _: u64, _: u64, _: &mut [u8]) -> Result<usize> {
        Err(Errno::EIO)
    }

    fn write(&self, _: u64, _: u64, _: &[u8]) -> Result<usize> {
        Err(Errno::EIO)
    }

    fn append(&self, _: u64, _: &[u8]) -> Result<(u64, usize)> {
        Err(Errno::EIO)
    }

    fn set_len(&self, _: u64, _: u64) -> Result<()> {
        Err(Errno::EIO)
    }

    fn allocate(&self, _: u64, _: u64, _: u64) -> Result<()> {
        Err(Errno::EIO)
    }

    fn seek(&self, _: u64, _: u64, _: Sought) -> Result<Option<u64>> {
        Err(Errno::EIO)
    }

    fn set_permissions(&self, _: u64, _: u32) -> Result<()> {
        Err(Errno::EIO)
    }

    fn set_owner(&self, _: u64, _: (u32, u32)) -> Result<()> {
        Err(Errno::EIO)
    }

    fn set_times(&self, _: u64, _: Option<u64>, _: Option<u64>) -> Result<()> {
        Err(Errno::EIO)
    }

    fn space(&self) -> Result<Space> {
        Err(Errno::EIO)
    }
}

fn mount() -> (Arc<Names>, Arc<Node>) {
    let names = Arc::new(Names::default());
    let root = Mount::new(names.clone()).root().unwrap();
    (names, root)
}

/// Another thread puts its file under a name after this one has found another there.
#[test]
fn an_inode_that_loses_its_last_name_is_forgotten_whoever_has_found_it() {
    let (names, root) = mount();
    let stored = root.stored().unwrap();
    names.put("a", 5);
    let found = root.child("a").unwrap().unwrap();
    names.put("a", 6);
    stored.unlink("a", false, |_| Ok(())).unwrap();
    assert_eq!(names.take_forgotten(), [6]);
    names.put("b", 7);
    names.put("c", 8);
    stored.rename("b", stored, "c", |_| Ok(true)).unwrap();
    assert_eq!(names.take_forgotten(), [8]);
    drop(found);
    assert_eq!(names.take_forgotten(), [5]);
}

#[test]
fn a_rename_that_keeps_replaces_nothing_that_came_meanwhile() {
    let (names, root) = mount();
    let stored = root.stored().unwrap();
    names.put("a", 5);
    names.put("b", 6);
    let keeps = |there: Option<&Arc<Node>>| match there {
        Some(_) => Err(Errno::EEXIST),
        None => Ok(true),
    };
    let refused = stored.rename("a", stored, "b", keeps);
    assert_eq!(refused, Err(Errno::EEXIST));
    assert_eq!(names.look_up(ROOT, "b").unwrap().unwrap().inode, 6);
    stored.rename("a", stored, "c", keeps).unwrap();
}
