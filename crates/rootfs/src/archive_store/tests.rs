use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use rustix::fs::fcntl_getfl;

use super::*;
use crate::walk::{Links, walk};

/// A root directory and a cache beside it.
struct Place(tempfile::TempDir);

impl Place {
    /// The root has a file. `None` where temporary files are on a file system that keeps no archives.
    fn new() -> Option<Self> {
        let place = Self(tempfile::tempdir().unwrap());
        let directory = File::open(place.0.path()).unwrap();
        if !is_local(&directory).unwrap() {
            tare_vmtest::lacks("the file system of temporary files is none that keeps archives");
            return None;
        }
        fs::create_dir(place.root()).unwrap();
        fs::write(place.root().join("server"), vec![7; 9000]).unwrap();
        Some(place)
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }

    fn roots(&self) -> PathBuf {
        self.0.path().join("cache/roots")
    }

    fn store(&self) -> ArchiveStore {
        ArchiveStore::open(&Cache::at(self.0.path().join("cache"))).unwrap()
    }

    fn tree(&self) -> Tree {
        walk(&self.root(), Links::Kept, 1 << 30).unwrap().tree
    }

    /// An archive of the root as it is, once what was written last may count as settled.
    fn archive(&self) -> File {
        let start = SystemTime::now();
        loop {
            if let Some(archive) = self.store().archive(&self.tree(), Layout::Pages).unwrap() {
                return archive;
            }
            assert!(start.elapsed().unwrap() < 10 * SETTLED, "it never settles");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn names(&self) -> Vec<String> {
        self.store().names()
    }
}

fn inode(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}

fn content(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_root_that_is_as_it_was_has_one_archive() {
    let Some(place) = Place::new() else {
        return;
    };
    let first = place.archive();
    let second = place.archive();
    assert_eq!(inode(&first), inode(&second));
    assert_eq!(place.names().len(), 1);
    let mut packed = Vec::new();
    archive_as(&place.tree(), Layout::Pages, &mut packed).unwrap();
    assert!(content(second) == packed);
    // In another layout it is another one.
    let compact = place.store().archive(&place.tree(), Layout::Compact);
    assert_ne!(inode(&compact.unwrap().unwrap()), inode(&first));
    assert_eq!(place.names().len(), 2);
}

#[test]
fn each_change_of_a_root_makes_another_archive() {
    let Some(place) = Place::new() else {
        return;
    };
    let server = place.root().join("server");
    let keep_times = |change: &dyn Fn()| {
        let times = fs::metadata(&server).unwrap();
        change();
        let file = File::options().write(true).open(&server).unwrap();
        file.set_modified(times.modified().unwrap()).unwrap();
    };
    type Change<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let changes: [Change<'_>; 6] = [
        ("nothing", Box::new(|| ())),
        // As many bytes, and the same modification time.
        (
            "content",
            Box::new(|| keep_times(&|| fs::write(&server, vec![8; 9000]).unwrap())),
        ),
        (
            "permissions",
            Box::new(|| fs::set_permissions(&server, fs::Permissions::from_mode(0o600)).unwrap()),
        ),
        (
            "another file of the same content",
            Box::new(|| {
                fs::copy(&server, place.root().join("new")).unwrap();
                fs::rename(place.root().join("new"), &server).unwrap();
            }),
        ),
        (
            "a link",
            Box::new(|| symlink("a", place.root().join("l")).unwrap()),
        ),
        (
            "its target",
            Box::new(|| {
                fs::remove_file(place.root().join("l")).unwrap();
                symlink("b", place.root().join("l")).unwrap();
            }),
        ),
    ];
    let mut seen = Vec::new();
    for (what, change) in changes {
        change();
        let archive = place.archive();
        let inode = inode(&archive);
        assert!(!seen.contains(&inode), "{what}");
        seen.push(inode);
        let mut packed = Vec::new();
        archive_as(&place.tree(), Layout::Pages, &mut packed).unwrap();
        assert!(content(archive) == packed, "{what}");
    }
}

#[test]
fn a_file_that_has_just_changed_is_not_trusted_to_stay() {
    let Some(place) = Place::new() else {
        return;
    };
    let future = SystemTime::now() + Duration::from_secs(3600);
    let (_, last_change) = key(&place.tree(), Layout::Pages).unwrap().unwrap();
    assert!(last_change < future);
    let settled = last_change + SETTLED;
    assert!(is_settled(last_change, settled));
    for early in [settled - Duration::from_nanos(1), last_change - SETTLED] {
        assert!(!is_settled(last_change, early));
    }
    // Written a moment ago, or so it was: a machine that stops here for two seconds sees an archive.
    if place
        .store()
        .archive(&place.tree(), Layout::Pages)
        .unwrap()
        .is_none()
    {
        assert_eq!(place.names(), Vec::<String>::new());
    }
    assert!(is_unchanged(&place.tree(), last_change));
    assert!(!is_unchanged(
        &place.tree(),
        last_change - Duration::from_nanos(1)
    ));
}

#[test]
fn content_without_a_path_counts_by_its_bytes() {
    let tree = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut tree = Tree::new();
        let node = Node::open_file(file, bytes.len() as u64, 0o755);
        tree.insert("a", node).unwrap();
        tree
    };
    let Some(place) = Place::new() else {
        return;
    };
    let archive = |bytes| {
        place
            .store()
            .archive(&tree(bytes), Layout::Pages)
            .unwrap()
            .unwrap()
    };
    let first = inode(&archive(b"one"));
    assert_eq!(first, inode(&archive(b"one")));
    assert_ne!(first, inode(&archive(b"two")));
}

#[test]
fn no_one_else_writes_to_an_archive() {
    let Some(place) = Place::new() else {
        return;
    };
    let archive = place.archive();
    let flags = fcntl_getfl(&archive).unwrap();
    assert_eq!(flags & OFlags::ACCMODE, OFlags::RDONLY);
    let mode = archive.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o400);
    let roots = place.roots();
    assert_eq!(
        fs::metadata(&roots).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let name = place.names().remove(0);

    // A file that others may write to, a link, and a named pipe of that name are not used.
    let path = roots.join(&name);
    let packed = content(place.archive());
    type Plant<'a> = Box<dyn Fn() + 'a>;
    let plants: [Plant<'_>; 3] = [
        Box::new(|| {
            fs::write(&path, "planted").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        Box::new(|| symlink("/etc/passwd", &path).unwrap()),
        Box::new(|| rustix::fs::mkfifoat(CWD, &path, Mode::RUSR).unwrap()),
    ];
    for plant in plants {
        fs::remove_file(&path).unwrap();
        plant();
        assert!(content(place.archive()) == packed);
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    fs::set_permissions(&roots, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = ArchiveStore::open(&Cache::at(place.0.path().join("cache")));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn what_was_used_last_is_kept_within_the_room() {
    let Some(place) = Place::new() else {
        return;
    };
    let store = place.store();
    let hour = Duration::from_secs(3600);
    let of_boot = |name: &str| format!("{}-{name}", boot_id());
    let add = |name: &str, bytes, hours: u32| {
        let file = File::create(place.roots().join(name)).unwrap();
        file.set_len(bytes).unwrap();
        file.set_modified(SystemTime::now() - hour * hours).unwrap();
    };
    add(&of_boot("old"), MOST_BYTES / 2, 3);
    add(&of_boot("new"), MOST_BYTES / 2, 1);
    add(&of_boot("small"), 1, 2);
    add("of another boot", 1, 0);
    add(".making-1", 1, 2);
    add(".making-2", 1, 0);
    store.tidy("kept");
    let mut names = place.names();
    names.sort_unstable();
    let kept = [".making-2".to_owned(), of_boot("new"), of_boot("small")];
    assert_eq!(names, kept);
    // Used again, it is not the oldest any longer.
    let small = of_boot("small");
    assert!(store.stored(&small).is_some());
    let used = FileVersion::of(&statat(&store.0, &small, AtFlags::empty()).unwrap());
    assert!(used.modified() > SystemTime::now() - hour);
}

#[test]
fn a_cache_that_cannot_be_made_is_an_error_and_a_root_that_goes_is_another() {
    let Some(place) = Place::new() else {
        return;
    };
    let file = place.root().join("server");
    assert!(ArchiveStore::open(&Cache::at(&file)).is_err());
    let tree = place.tree();
    place.archive();
    let store = place.store();
    // Listed before: as it was, its archive is there without a look at it.
    fs::remove_file(&file).unwrap();
    assert!(store.archive(&tree, Layout::Pages).unwrap().is_some());
    fs::remove_file(place.roots().join(&place.names()[0])).unwrap();
    let failed = store.archive(&tree, Layout::Pages);
    assert!(matches!(failed, Err(PackError::Read { .. })), "{failed:?}");
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn a_directory_that_is_a_link_is_not_used() {
    let Some(place) = Place::new() else {
        return;
    };
    fs::create_dir(place.0.path().join("cache")).unwrap();
    symlink(place.root(), place.roots()).unwrap();
    let opened = ArchiveStore::open(&Cache::at(place.0.path().join("cache")));
    assert!(opened.is_err());
}
