//! File systems for tests, made and checked by the programs of e2fsprogs.

#![allow(dead_code, unreachable_pub)] // each test file uses a part
#![allow(clippy::unwrap_used)]

pub mod workload;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use tare_ext4::Sectors;
use tare_libos::block::{BlockError, SECTOR_BYTES};

/// Bytes of an image with an empty file system, made with further options.
pub fn formatted(mib: usize, options: &[&str]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len((mib << 20) as u64).unwrap();
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4"]).args(options);
    let output = command.arg(file.path()).output().expect("mke2fs");
    assert!(output.status.success(), "{}", text(&output));
    std::fs::read(file.path()).unwrap()
}

/// What `e2fsck -fn` finds; none where all is well. A journal that waits is replayed before,
/// as a kernel does that mounts it.
pub fn faults(image: &[u8]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let replayed = checked(file.path(), &["-E", "journal_only", "-y"]);
    if !matches!(replayed.status.code(), Some(0 | 1)) {
        return Some(text(&replayed));
    }
    let output = checked(file.path(), &["-f", "-n"]);
    (!output.status.success()).then(|| text(&output))
}

fn checked(path: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("e2fsck");
    command.args(options).arg(path).output().expect("e2fsck")
}

/// What debugfs says to a request.
pub fn debugfs(image: &[u8], request: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let mut command = Command::new("debugfs");
    let output = command.args(["-R", request]).arg(file.path()).output();
    String::from_utf8_lossy(&output.expect("debugfs").stdout).into_owned()
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(&[out.as_slice(), err].concat()).into_owned()
}

/// A disk whose write cache can be lost. Clones are the same disk.
#[derive(Clone)]
pub struct LossyDisk(Arc<Mutex<State>>);

struct State {
    /// What is durable.
    durable: Vec<u8>,
    /// Sectors written since the last flush, in order.
    written: Vec<(u64, Vec<u8>)>,
    /// The newest of them by number.
    newest: BTreeMap<u64, Vec<u8>>,
    /// Writes and flushes that are left before all fail; none is without end.
    left: Option<u64>,
    /// Writes and flushes so far.
    done: u64,
}

impl LossyDisk {
    pub fn new(durable: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State {
            durable,
            written: Vec::new(),
            newest: BTreeMap::new(),
            left: None,
            done: 0,
        })))
    }

    /// Lets the device fail after this many writes and flushes, as the power does.
    pub fn fail_after(&self, count: u64) {
        self.0.lock().unwrap().left = Some(count);
    }

    pub fn done(&self) -> u64 {
        self.0.lock().unwrap().done
    }

    /// What a reader finds after the monitor was killed: all that was written.
    pub fn after_a_kill(&self) -> Vec<u8> {
        self.after_power_loss(|_| true)
    }

    /// What a reader finds after a loss of power: what was flushed, and those of the later writes
    /// that `survives` takes, block by block of 4 KiB. That a block is torn is not emulated: ext4
    /// of Linux too depends on it that the sectors of its superblock are written together.
    pub fn after_power_loss(&self, mut survives: impl FnMut(u64) -> bool) -> Vec<u8> {
        let state = self.0.lock().unwrap();
        let mut bytes = state.durable.clone();
        for block in state
            .written
            .chunk_by(|one, next| next.0 == one.0 + 1 && next.0 % 8 != 0)
        {
            if survives(block[0].0) {
                for (sector, content) in block {
                    let at = *sector as usize * SECTOR_BYTES;
                    bytes[at..at + SECTOR_BYTES].copy_from_slice(content);
                }
            }
        }
        bytes
    }
}

impl State {
    fn spend(&mut self) -> Result<(), BlockError> {
        match &mut self.left {
            Some(0) => return Err(BlockError::Io),
            Some(left) => *left -= 1,
            None => {}
        }
        self.done += 1;
        Ok(())
    }
}

impl Sectors for LossyDisk {
    fn sectors(&self) -> u64 {
        (self.0.lock().unwrap().durable.len() / SECTOR_BYTES) as u64
    }

    fn read(&mut self, sector: u64, to: &mut [u8]) -> Result<(), BlockError> {
        let state = self.0.lock().unwrap();
        for (number, to) in (sector..).zip(to.chunks_mut(SECTOR_BYTES)) {
            let at = number as usize * SECTOR_BYTES;
            let durable = state.durable.get(at..at + SECTOR_BYTES);
            let newest = state.newest.get(&number).map(Vec::as_slice);
            to.copy_from_slice(newest.or(durable).ok_or(BlockError::BeyondEnd)?);
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), BlockError> {
        let mut state = self.0.lock().unwrap();
        state.spend()?;
        for (number, from) in (sector..).zip(from.chunks(SECTOR_BYTES)) {
            state.written.push((number, from.to_vec()));
            state.newest.insert(number, from.to_vec());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        let mut state = self.0.lock().unwrap();
        state.spend()?;
        state.newest.clear();
        for (sector, content) in std::mem::take(&mut state.written) {
            let at = sector as usize * SECTOR_BYTES;
            state.durable[at..at + SECTOR_BYTES].copy_from_slice(&content);
        }
        Ok(())
    }
}

/// Numbers that are the same in each run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }
}
