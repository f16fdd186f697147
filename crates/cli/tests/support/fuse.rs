//! A file system with one file, `disk`, served by the test over /dev/fuse: a disk that can
//! hang, and that can lose what was not made durable, as when power fails.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::needs::skip;

/// The protocol's version (`linux/fuse.h`): old enough for every kernel that is in use.
const VERSION: [u32; 2] = [7, 31];
/// Longest write, in bytes.
const MOST_WRITTEN: u32 = 128 << 10;
const ROOT: u64 = 1;
const DISK: u64 = 2;
const BLOCK: u64 = 512;

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// They are served.
    Serves,
    /// Reads, writes and fsync(2) are taken and never answered.
    Hangs,
    /// This request is taken and never answered.
    HangsAt(Call),
}

/// A request of the kernel's, by its number (`linux/fuse.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Lookup = 1,
    /// fstat(2), statx(2), and lseek(2) to the end.
    GetAttr = 3,
    SetAttr = 4,
    Open = 14,
    Read = 15,
    Write = 16,
    StatFs = 17,
    Fsync = 20,
    /// close(2).
    Flush = 25,
    Ioctl = 39,
    Allocate = 43,
    Lseek = 46,
}

impl Call {
    pub(crate) const ALL: [Self; 12] = [
        Self::Lookup,
        Self::GetAttr,
        Self::SetAttr,
        Self::Open,
        Self::Read,
        Self::Write,
        Self::StatFs,
        Self::Fsync,
        Self::Flush,
        Self::Ioctl,
        Self::Allocate,
        Self::Lseek,
    ];
}

impl Mood {
    /// Whether a request of that number is never answered.
    fn hangs(self, opcode: u32) -> bool {
        match self {
            Self::Serves => false,
            Self::Hangs => [Call::Read, Call::Write, Call::Fsync]
                .iter()
                .any(|call| *call as u32 == opcode),
            Self::HangsAt(call) => call as u32 == opcode,
        }
    }
}

/// Whether the host keeps the disk's bytes in its page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostCache {
    /// Reads wait for a page, and a signal that ends the process ends the wait.
    Yes,
    /// Each read and write is a request, and nothing ends the wait for its answer.
    No,
}

/// The disk's bytes, and what would survive without power.
struct Store {
    mood: Mood,
    cache: HostCache,
    bytes: Vec<u8>,
    /// The durable content of blocks that were written since the last fsync(2).
    lost: BTreeMap<u64, Vec<u8>>,
    taken: u64,
}

/// The mounted file system; unmounted when dropped, and what hangs in it fails.
pub(crate) struct FuseDisk {
    store: Arc<Mutex<Store>>,
    device: Option<Arc<File>>,
    server: Option<JoinHandle<()>>,
    place: PathBuf,
}

impl FuseDisk {
    /// Mounts a disk of `bytes` zeros at the new directory `place`. Where that is not
    /// possible, prints SKIP and gives `None`.
    pub(crate) fn mount(place: &Path, bytes: usize, cache: HostCache) -> Option<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let Ok(device) = device else {
            skip("/dev/fuse cannot be opened");
            return None;
        };
        std::fs::create_dir(place).unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        if let Err(error) = mount("tare-test", place, "fuse", flags, &*options) {
            skip(format!("a FUSE file system cannot be mounted: {error}"));
            return None;
        }
        let store = Arc::new(Mutex::new(Store {
            mood: Mood::Serves,
            cache,
            bytes: vec![0; bytes],
            lost: BTreeMap::new(),
            taken: 0,
        }));
        let device = Arc::new(device);
        let (served, kept) = (Arc::clone(&device), Arc::clone(&store));
        let server = std::thread::spawn(move || serve(&served, &kept));
        Some(Self {
            store,
            device: Some(device),
            server: Some(server),
            place: place.to_owned(),
        })
    }

    /// The disk's path.
    pub(crate) fn path(&self) -> String {
        self.place.join("disk").to_str().unwrap().to_owned()
    }

    /// From now on requests are treated so; those that were taken stay unanswered.
    pub(crate) fn set(&self, mood: Mood) {
        self.store.lock().unwrap().mood = mood;
    }

    /// Its owner makes it `bytes` bytes long, where the kernel does not see it.
    pub(crate) fn extend(&self, bytes: usize) {
        self.store.lock().unwrap().bytes.resize(bytes, 0);
    }

    /// Requests that were taken and not answered.
    pub(crate) fn hanging(&self) -> u64 {
        self.store.lock().unwrap().taken
    }

    /// The power fails: what is there is what was made durable. The host's cache still has
    /// the rest until the file system is unmounted.
    pub(crate) fn durable(&self) -> Vec<u8> {
        let store = self.store.lock().unwrap();
        let mut bytes = store.bytes.clone();
        for (block, before) in &store.lost {
            let at = (block * BLOCK) as usize;
            bytes[at..at + before.len()].copy_from_slice(before);
        }
        bytes
    }

    /// Lets everything that hangs fail, for good.
    pub(crate) fn abort(&mut self) {
        let _ = unmount(&self.place, UnmountFlags::DETACH | UnmountFlags::FORCE);
        // Aborts the connection when the server has let go of it too.
        self.device = None;
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

impl Drop for FuseDisk {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Answers requests until the file system is unmounted.
fn serve(device: &File, store: &Mutex<Store>) {
    let mut buffer = vec![0; MOST_WRITTEN as usize + 4096];
    loop {
        let mut device = device;
        match device.read(&mut buffer) {
            Ok(40..) => {}
            Err(error) if error.raw_os_error() == Some(EINTR) => continue,
            // ENOENT: a request was interrupted before it was read.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            _ => return,
        }
        let Some(answer) = answer(&buffer, &mut store.lock().unwrap()) else {
            continue;
        };
        let unique = word64(&buffer, 8);
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut reply = (16 + body.len() as u32).to_le_bytes().to_vec();
        reply.extend(i32::to_le_bytes(error));
        reply.extend(unique.to_le_bytes());
        reply.extend(body);
        // The request may be gone by now.
        let _ = device.write_all(&reply);
    }
}

const O_DSYNC: u32 = 0o10_000;
const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const ENOSYS: i32 = 38;

/// The body of the answer, or an error number; `None`: there is no answer.
fn answer(request: &[u8], store: &mut Store) -> Option<Result<Vec<u8>, i32>> {
    let (opcode, node) = (word32(request, 4), word64(request, 16));
    let arguments = &request[40..];
    if store.mood.hangs(opcode) {
        store.taken += 1;
        return None;
    }
    Some(match opcode {
        // FORGET, INTERRUPT, BATCH_FORGET.
        2 | 36 | 42 => return None,
        // LOOKUP.
        1 if node == ROOT && arguments.starts_with(b"disk\0") => {
            let mut entry = words64(&[DISK, 0, 0, 0, 0]);
            entry.extend(attributes(DISK, store));
            Ok(entry)
        }
        1 => Err(ENOENT),
        // GETATTR, SETATTR.
        3 | 4 => {
            let mut found = words64(&[0, 0]);
            found.extend(attributes(node, store));
            Ok(found)
        }
        // INIT.
        26 => {
            let mut init = words32(&VERSION);
            init.extend(words32(&[0, 0, 16 | 16 << 16, MOST_WRITTEN, 1]));
            init.resize(64, 0);
            Ok(init)
        }
        // OPEN, OPENDIR; FOPEN_DIRECT_IO is 1.
        14 | 27 => {
            let flags = u32::from(store.cache == HostCache::No);
            Ok([words64(&[0]), words32(&[flags, 0])].concat())
        }
        // READ.
        15 => {
            let at = word64(arguments, 8) as usize;
            let end = at + word32(arguments, 16) as usize;
            let len = store.bytes.len();
            Ok(store.bytes[at.min(len)..end.min(len)].to_vec())
        }
        // WRITE.
        16 => {
            let size = word32(arguments, 16);
            let data = &arguments[40..40 + size as usize];
            let at = word64(arguments, 8) as usize;
            store.write(at, data);
            // FOPEN_DIRECT_IO leaves it to the server to make the write durable.
            if word32(arguments, 32) & O_DSYNC != 0 {
                store
                    .lost
                    .retain(|block, _| !covers(at, data.len(), *block));
            }
            Ok(words32(&[size, 0]))
        }
        // FSYNC.
        20 => {
            store.lost.clear();
            Ok(Vec::new())
        }
        // RELEASE, FLUSH, RELEASEDIR.
        18 | 25 | 29 => Ok(Vec::new()),
        _ => Err(ENOSYS),
    })
}

/// Whether the block lies in the `len` bytes from `at` on.
fn covers(at: usize, len: usize, block: u64) -> bool {
    let begin = (block * BLOCK) as usize;
    at <= begin && begin + BLOCK as usize <= at + len
}

impl Store {
    fn write(&mut self, at: usize, data: &[u8]) {
        let blocks = at as u64 / BLOCK..(at + data.len()).div_ceil(BLOCK as usize) as u64;
        for block in blocks {
            let begin = (block * BLOCK) as usize;
            let before = &self.bytes[begin..begin + BLOCK as usize];
            self.lost.entry(block).or_insert_with(|| before.to_vec());
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }
}

/// `struct fuse_attr`: a directory or the disk.
fn attributes(node: u64, store: &Store) -> Vec<u8> {
    let (mode, bytes) = match node {
        ROOT => (0o040_755, 0),
        _ => (0o100_600, store.bytes.len() as u64),
    };
    let mut found = words64(&[node, bytes, bytes / 512, 0, 0, 0]);
    found.extend(words32(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    found
}

fn words64(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
