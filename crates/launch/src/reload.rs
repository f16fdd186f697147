//! `tare reload`: another root for a running machine (`docs/adr/0052-reload-of-a-site.md`).
//!
//! A machine that was started with `--reload` has one disk more, whose file is in its
//! run directory. The root is packed and checked as for a start, written to that file, and
//! announced by a disk that becomes longer, as by `tare set`; in QEMU by QMP. The guest answers in a sector of the
//! disk ([`tare_site::reload`]), which is read here as what a hostile guest wrote.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use serde_json::json;
use tare_abi::cmdline;
use tare_abi::layout::MIB;
use tare_control::client::{Client, ClientError};
use tare_control::config::{DiskCache, DiskCoalesce, MachineConfig};
use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDir, RunRoot};
use tare_control::settings::{DiskChange, SettingsChange};
use tare_devices::blk::Access;
use tare_policy::limit::DiskLimits;
use tare_qemu::qmp::{Qmp, REPLY_TIMEOUT};
use tare_rootfs::Tree;
use tare_rootfs::cpio::{self, PackError};
use tare_rootfs::walk::{Links, walk};
use tare_site::reload::{
    ARCHIVE_SECTOR, Answer, REPLY_SECTOR, REQUEST_SECTOR, Refusal, Reply, Request, SECTOR_BYTES,
    SERIAL, Sector,
};

use crate::disk::OpenDisk;
use crate::failure::{Explain, Failure};
use crate::interruption::Interruption;
use crate::machine::RunFileError;
use crate::record::Record;
use crate::{Terminal, site};

const SECTOR: u64 = SECTOR_BYTES as u64;
const ARCHIVE: u64 = ARCHIVE_SECTOR * SECTOR;
/// How often to check for the guest's answer.
const LOOK: Duration = Duration::from_millis(5);

/// A request for another root.
#[derive(Clone, Debug)]
pub struct ReloadRequest {
    /// The machine.
    pub name: String,
    /// The directory.
    pub root: PathBuf,
    /// The site's file, if there is one.
    pub site: Option<PathBuf>,
    /// How long to wait until the machine serves it.
    pub limit: Duration,
}

/// Why a machine does not serve the new root.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The machine has no disk for it.
    #[error("{0:?} was started without --reload")]
    NotReloadable(String),
    /// The site's rules would be lost.
    #[error("{0:?} was started with --site, and the new root has no rules")]
    NoSite(String),
    /// Another `tare reload` is at work.
    #[error("another reload of {0:?} is in progress")]
    Busy(String),
    /// The disk's file cannot be used.
    #[error("cannot write the root to {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The machine did not answer on its control socket.
    #[error("cannot query the machine {name:?}")]
    Ask {
        /// The machine.
        name: String,
        /// Why.
        source: ClientError,
    },
    /// QEMU did not answer, or refused.
    #[error("cannot pass the new root of {name:?} to QEMU")]
    AskQemu {
        /// The machine.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The guest did not answer.
    #[error("{name:?} did not load the new root within {} s and keeps the old one", limit.as_secs())]
    TimedOut {
        /// The machine.
        name: String,
        /// The time limit.
        limit: Duration,
    },
    /// The machine has ended.
    #[error("{0:?} ended before it loaded the new root")]
    Ended(String),
    /// The guest refused.
    #[error("{name:?} keeps its old root")]
    Refused {
        /// The machine.
        name: String,
        /// Why.
        source: Refusal,
    },
}

impl Explain for ReloadError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NotReloadable(_) | Self::NoSite(_) => ExitCode::Usage,
            Self::Write { .. } => ExitCode::Output,
            Self::Ended(_) => ExitCode::NoSuchMachine,
            Self::Busy(_) | Self::Ask { .. } | Self::AskQemu { .. } | Self::TimedOut { .. } => {
                ExitCode::ControlFailed
            }
            Self::Refused { source, .. } => match source {
                Refusal::Memory { .. } => ExitCode::RootTooLarge,
                Refusal::Archive | Refusal::Disk => ExitCode::ControlFailed,
                Refusal::Table | Refusal::Tables | Refusal::Log | Refusal::Named => {
                    ExitCode::SiteUnusable
                }
            },
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NotReloadable(_) => Some("start it with tare run http --reload".to_owned()),
            Self::NoSite(_) => Some("name its file with --site".to_owned()),
            Self::Refused { source, .. } => match source {
                Refusal::Memory { .. } => {
                    Some("start it again with more --memory for both".to_owned())
                }
                Refusal::Tables | Refusal::Log | Refusal::Table => {
                    Some("start it again with the new file".to_owned())
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// The disk of a machine that can get another root: empty so far.
pub(crate) fn disk(dir: &RunDir) -> Result<OpenDisk, RunFileError> {
    let path = dir.reload_disk();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).and_then(|file| {
        file.set_len(ARCHIVE)?;
        Ok(file)
    });
    Ok(OpenDisk {
        path: path.to_string_lossy().into_owned(),
        file: file.map_err(RunFileError::of("the disk for reloads", dir))?,
        access: Access::ReadWrite,
        cache: DiskCache::default(),
        serial: SERIAL.to_owned(),
        queues: 1,
        coalesce: DiskCoalesce::default(),
        latency_us: 0,
        limits: DiskLimits::default(),
    })
}

/// Gives the machine another root; returns the number of files that it then serves. A signal
/// withdraws the request.
pub fn reload(request: &ReloadRequest, terminal: &dyn Terminal) -> Result<u32, Failure> {
    let name = || request.name.clone();
    let dir = RunRoot::open_default()?.find(&request.name)?;
    let mut machine = Machine::find(&dir, name())?;
    let has_site = request.site.is_some();
    if machine.has_site && !has_site {
        return Err(ReloadError::NoSite(name()).into());
    }
    let tree = tree(request, machine.memory_mib, terminal)?;
    let interruption = Interruption::watch().map_err(Interruption::failed)?;
    let slot = Slot::open(&dir, &request.name)?;
    let offer = slot.write(&tree, has_site)?;
    interruption.check()?;
    let size = slot.extend(machine.disk_bytes(&slot)?)?;
    machine.set_disk_bytes(size)?;
    let begin = Instant::now();
    let goes_on = || {
        let is_in_time = begin.elapsed() < request.limit;
        is_in_time && dir.is_alive() && interruption.check().is_ok()
    };
    match slot.wait(offer.generation, goes_on)? {
        Some(Answer::Taken { files }) => Ok(files),
        Some(Answer::Refused(source)) => Err(ReloadError::Refused {
            name: name(),
            source,
        }
        .into()),
        None => Err(unanswered(request, &dir, &interruption)),
    }
}

/// Why a machine gave no answer.
fn unanswered(request: &ReloadRequest, dir: &RunDir, interruption: &Interruption) -> Failure {
    let name = request.name.clone();
    if let Err(interrupted) = interruption.check() {
        return interrupted.into();
    }
    if !dir.is_alive() {
        return ReloadError::Ended(name).into();
    }
    let limit = request.limit;
    ReloadError::TimedOut { name, limit }.into()
}

/// A machine that can get another root.
struct Machine {
    name: String,
    /// The disk for it, as the engine calls it.
    disk: String,
    has_site: bool,
    memory_mib: u32,
    control: Control,
}

/// How to report to the engine that the disk has become longer.
enum Control {
    /// Tare's monitor, by HTTP.
    Monitor(Client),
    /// QEMU, by QMP.
    Qemu(PathBuf),
}

impl Machine {
    fn find(dir: &RunDir, name: String) -> Result<Self, ReloadError> {
        match Record::read(dir) {
            Ok(record) if !record.engine.answers() => {
                let Some(reloadable) = record.reload else {
                    return Err(ReloadError::NotReloadable(name));
                };
                Ok(Self {
                    name,
                    disk: tare_daemon::disk::name(reloadable.disk as usize),
                    has_site: reloadable.has_site,
                    memory_mib: record.memory_mib,
                    control: Control::Qemu(dir.control_socket()),
                })
            }
            _ => Self::of_monitor(dir, name),
        }
    }

    fn of_monitor(dir: &RunDir, name: String) -> Result<Self, ReloadError> {
        let mut client = Client::new(dir.control_socket());
        let machine = client.machine();
        let config = match machine {
            Ok(machine) => machine.config,
            Err(source) => return Err(ReloadError::Ask { name, source }),
        };
        let Some(disk) = disk_of(&config) else {
            return Err(ReloadError::NotReloadable(name));
        };
        Ok(Self {
            name,
            disk,
            has_site: cmdline::value(&config.cmdline, tare_site::PARAMETER).is_some(),
            memory_mib: config.memory_mib,
            control: Control::Monitor(client),
        })
    }

    /// The longest length of the disk that the guest may have seen.
    fn disk_bytes(&mut self, slot: &Slot) -> Result<u64, ReloadError> {
        match &mut self.control {
            Control::Monitor(client) => match client.settings() {
                Ok(settings) => Ok(settings.disks.get(&self.disk).map_or(0, |disk| disk.size)),
                Err(source) => Err(ReloadError::Ask {
                    name: self.name.clone(),
                    source,
                }),
            },
            // Its file never becomes shorter.
            Control::Qemu(_) => slot.bytes(),
        }
    }

    fn set_disk_bytes(&mut self, size: u64) -> Result<(), ReloadError> {
        let name = self.name.clone();
        match &mut self.control {
            Control::Monitor(client) => {
                let mut change = SettingsChange::default();
                let grown = DiskChange {
                    size: Some(size),
                    ..DiskChange::default()
                };
                change.disks.insert(self.disk.clone(), grown);
                let set = client.set(&change);
                set.map(drop)
                    .map_err(|source| ReloadError::Ask { name, source })
            }
            Control::Qemu(socket) => match resize(socket, &self.disk, size) {
                Ok(true) => Ok(()),
                Ok(false) => Err(ReloadError::Ended(name)),
                Err(source) => Err(ReloadError::AskQemu { name, source }),
            },
        }
    }
}

/// Makes QEMU report the disk's length to the guest (`block_resize`, QEMU `qapi/block-core.json`).
/// The file already has that length. False if QEMU has ended.
fn resize(socket: &Path, disk: &str, bytes: u64) -> io::Result<bool> {
    let mut qmp = Qmp::connect(socket, REPLY_TIMEOUT)?;
    let arguments = json!({ "device": disk, "size": bytes });
    Ok(qmp.begin()? && qmp.execute("block_resize", &arguments)?.is_some())
}

/// The name of the disk for reloads in settings.
fn disk_of(config: &MachineConfig) -> Option<String> {
    let mut disks = config.disks.iter();
    disks
        .position(|disk| disk.serial == SERIAL)
        .map(tare_daemon::disk::name)
}

/// The files, checked as for a start. The guest itself reports whether it has memory for them; more
/// than the machine's memory is refused here.
fn tree(
    request: &ReloadRequest,
    memory_mib: u32,
    terminal: &dyn Terminal,
) -> Result<Tree, Failure> {
    let site = request.site.as_deref().map(site::read).transpose()?;
    let room = u64::from(memory_mib) * MIB;
    let mut listing = walk(&request.root, Links::Followed, room)?;
    listing
        .warnings
        .iter()
        .for_each(|warning| terminal.warn(warning));
    if let Some(site) = site {
        site.pack(&mut listing.tree)?;
    }
    Ok(listing.tree)
}

/// The disk's file, held by this process and the machine alone. When this is dropped, the disk
/// holds no request and no archive.
struct Slot {
    file: File,
    path: PathBuf,
}

impl Slot {
    fn open(dir: &RunDir, machine: &str) -> Result<Self, ReloadError> {
        let path = dir.reload_disk();
        let file = match dir.open_reload_disk() {
            Ok(file) => file,
            Err(source) => return Err(ReloadError::Write { path, source }),
        };
        // The machine holds a lock of another kind (`F_OFD_SETLK`). Create the slot only after this
        // lock: dropping it would withdraw the request of the process that holds the lock.
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, path }),
            Err(Errno::WOULDBLOCK) => Err(ReloadError::Busy(machine.to_owned())),
            Err(errno) => Err(ReloadError::Write {
                path,
                source: errno.into(),
            }),
        }
    }

    fn failed(&self, source: io::Error) -> ReloadError {
        ReloadError::Write {
            path: self.path.clone(),
            source,
        }
    }

    /// Writes the archive, and the request last.
    fn write(&self, tree: &Tree, has_site: bool) -> Result<Request, Failure> {
        let failed = |source| self.failed(source);
        self.withdraw().map_err(failed)?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(ARCHIVE)).map_err(failed)?;
        cpio::archive(tree, file).map_err(|error| match error {
            PackError::Write(source) => failed(source).into(),
            error => Failure::from(error),
        })?;
        let end = file.stream_position().map_err(failed)?;
        self.at_least(end.next_multiple_of(SECTOR))
            .map_err(failed)?;
        let request = Request {
            generation: generation(),
            bytes: end - ARCHIVE,
            entries: u32::try_from(tree.entries().count()).unwrap_or(u32::MAX),
            has_site,
        };
        let written = self.write_sector(REQUEST_SECTOR, &request.to_sector());
        written.map_err(failed)?;
        Ok(request)
    }

    /// Makes the file longer than the disk of `now` bytes, with room for the archive; returns the
    /// new length of the disk.
    fn extend(&self, now: u64) -> Result<u64, ReloadError> {
        let extended = self.file.metadata().and_then(|file| {
            // The machine reports the disk's length, and a guest may control it.
            let size = file
                .len()
                .max(now.saturating_add(SECTOR))
                .checked_next_multiple_of(SECTOR)
                .ok_or(io::ErrorKind::FileTooLarge)?;
            self.at_least(size).map(|()| size)
        });
        extended.map_err(|source| self.failed(source))
    }

    fn bytes(&self) -> Result<u64, ReloadError> {
        let file = self.file.metadata().map_err(|source| self.failed(source))?;
        Ok(file.len())
    }

    fn at_least(&self, bytes: u64) -> io::Result<()> {
        match self.file.metadata()?.len() {
            len if len < bytes => self.file.set_len(bytes),
            _ => Ok(()),
        }
    }

    /// Waits for the guest's answer while `goes_on` is true. Without an answer the request is
    /// withdrawn: a guest that is still reading drops what it has.
    fn wait(
        &self,
        generation: u64,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Answer>, ReloadError> {
        let failed = |source| self.failed(source);
        loop {
            let goes_on = goes_on();
            if !goes_on {
                self.withdraw().map_err(failed)?;
            }
            let reply = self.reply().map_err(failed)?;
            let answer = reply.filter(|reply| reply.generation == generation);
            match answer {
                Some(reply) => return Ok(Some(reply.answer)),
                None if !goes_on => return Ok(None),
                None => std::thread::sleep(LOOK),
            }
        }
    }

    fn reply(&self) -> io::Result<Option<Reply>> {
        let mut sector: Sector = [0; SECTOR_BYTES];
        self.file
            .read_exact_at(&mut sector, REPLY_SECTOR * SECTOR)?;
        Ok(Reply::parse(&sector))
    }

    fn withdraw(&self) -> io::Result<()> {
        self.write_sector(REQUEST_SECTOR, &[0; SECTOR_BYTES])
    }

    fn write_sector(&self, sector: u64, content: &Sector) -> io::Result<()> {
        self.file.write_all_at(content, sector * SECTOR)
    }
}

impl Drop for Slot {
    /// A run root is often in memory. The file stays as long as the disk.
    fn drop(&mut self) {
        let _ = self.withdraw();
        if let Ok(file) = self.file.metadata() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Whole pages only: a partial page is not given back.
            let archive = file.len().saturating_sub(ARCHIVE).next_multiple_of(4096);
            let _ = fallocate(&self.file, flags, ARCHIVE, archive);
        }
    }
}

/// A number that no request has used.
fn generation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| (since.as_nanos() as u64).max(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tare_rootfs::tree::Node;

    use super::*;

    #[test]
    fn a_disk_that_a_machine_says_has_no_end_is_an_error() {
        let (_keep, dir) = dir();
        let slot = Slot::open(&dir, "web").unwrap();
        for now in [u64::MAX, u64::MAX - SECTOR, 1 << 62] {
            let error = slot.extend(now).unwrap_err();
            assert!(matches!(error, ReloadError::Write { .. }), "{error}");
        }
        assert!(slot.extend(0).unwrap() < 1 << 20);
    }

    fn dir() -> (tempfile::TempDir, RunDir) {
        let keep = tempfile::tempdir().unwrap();
        let dir = RunDir::at(keep.path());
        let made = disk(&dir).unwrap();
        assert_eq!(Path::new(&made.path), dir.reload_disk());
        (keep, dir)
    }

    fn tree() -> Tree {
        let mut tree = Tree::new();
        for name in ["a-b", "a/b", "z"] {
            tree.insert(name, Node::bytes(vec![1; 3000], 0o644))
                .unwrap();
        }
        tree
    }

    fn sector(path: &Path, at: u64) -> Sector {
        let mut sector = [0; SECTOR_BYTES];
        let file = File::open(path).unwrap();
        file.read_exact_at(&mut sector, at * SECTOR).unwrap();
        sector
    }

    #[test]
    fn a_root_is_on_the_disk_as_the_guest_reads_it_and_goes_with_its_request() {
        let (_keep, dir) = dir();
        let slot = Slot::open(&dir, "web").unwrap();
        let offer = slot.write(&tree(), true).unwrap();
        assert_eq!(
            Request::parse(&sector(&dir.reload_disk(), REQUEST_SECTOR)),
            Some(offer)
        );
        // The directory of a/b as well.
        assert_eq!((offer.entries, offer.has_site), (4, true));
        assert!(sector(&dir.reload_disk(), ARCHIVE_SECTOR).starts_with(b"070701"));
        let bytes = std::fs::read(dir.reload_disk()).unwrap();
        let end = (ARCHIVE + offer.bytes) as usize;
        let archive = &bytes[ARCHIVE as usize..end];
        assert!(archive.windows(10).any(|it| it == b"TRAILER!!!"));
        assert!(bytes[end..].iter().all(|byte| *byte == 0) && bytes.len() - end < SECTOR_BYTES);
        // The disk becomes longer each time, since that notifies the guest.
        let len = bytes.len() as u64;
        assert_eq!(slot.extend(ARCHIVE).unwrap(), len);
        assert_eq!(slot.extend(len).unwrap(), len + SECTOR);
        assert_eq!(slot.extend(len + SECTOR).unwrap(), len + 2 * SECTOR);
        drop(slot);
        assert_eq!(
            sector(&dir.reload_disk(), REQUEST_SECTOR),
            [0; SECTOR_BYTES]
        );
        let file = std::fs::metadata(dir.reload_disk()).unwrap();
        assert_eq!(file.len(), len + 2 * SECTOR);
        assert!(file.blocks() * 512 <= ARCHIVE, "{} blocks", file.blocks());
    }

    #[test]
    fn one_reload_at_a_time() {
        let (_keep, dir) = dir();
        let slot = Slot::open(&dir, "web").unwrap();
        let offer = slot.write(&tree(), false).unwrap();
        let second = Slot::open(&dir, "web");
        assert!(matches!(second, Err(ReloadError::Busy(name)) if name == "web"));
        let request = Request::parse(&sector(&dir.reload_disk(), REQUEST_SECTOR));
        assert_eq!(request, Some(offer), "the first one's");
        drop(slot);
        assert!(Slot::open(&dir, "web").is_ok());
    }

    #[test]
    fn only_a_reply_to_this_request_counts() {
        let (_keep, dir) = dir();
        let slot = Slot::open(&dir, "web").unwrap();
        let offer = slot.write(&tree(), false).unwrap();
        let reply = |generation| Reply {
            generation,
            answer: Answer::Taken { files: 3 },
        };
        let write = |sector: &Sector| slot.write_sector(REPLY_SECTOR, sector).unwrap();
        let mut torn = reply(offer.generation).to_sector();
        torn[30] ^= 1;
        for wrong in [[0; SECTOR_BYTES], [0xff; SECTOR_BYTES], torn] {
            write(&wrong);
            assert_eq!(slot.wait(offer.generation, || false).unwrap(), None);
        }
        write(&reply(offer.generation - 1).to_sector());
        assert_eq!(slot.wait(offer.generation, || false).unwrap(), None);
        // The request was withdrawn.
        assert_eq!(
            sector(&dir.reload_disk(), REQUEST_SECTOR),
            [0; SECTOR_BYTES]
        );
        write(&reply(offer.generation).to_sector());
        let answer = slot.wait(offer.generation, || true).unwrap();
        assert_eq!(answer, Some(Answer::Taken { files: 3 }));
    }

    #[test]
    fn what_the_guest_lacks_is_said_with_its_exit_code() {
        let refused = |source| ReloadError::Refused {
            name: "web".to_owned(),
            source,
        };
        let missing_bytes = 3 * 1024 + 1;
        let memory = Failure::from(refused(Refusal::Memory { missing_bytes }));
        assert_eq!(memory.code(), ExitCode::RootTooLarge);
        assert_eq!(
            memory.sentence(),
            "\"web\" keeps its old root: not enough memory for a second root: 4 KiB more are needed: \
             start it again with more --memory for both"
        );
        for site in [
            Refusal::Table,
            Refusal::Tables,
            Refusal::Log,
            Refusal::Named,
        ] {
            assert_eq!(refused(site).code(), ExitCode::SiteUnusable);
        }
    }
}
