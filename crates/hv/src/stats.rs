//! KVM's own statistics through `KVM_GET_STATS_FD`: of a machine or a vCPU.
//!
//! The kernel describes its data (names, units, kinds); the description is
//! read once and checked, each reading afterwards is one `pread`. Open a
//! vCPU's descriptor before its thread enters `KVM_RUN`: the ioctl waits for
//! the vCPU, reading does not. Available since Linux 5.14.
//! Reference: `Documentation/virt/kvm/api.rst`, 4.133.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use kvm_bindings as kvm;
use thiserror::Error;
use vmm_sys_util::ioctl::ioctl;
use vmm_sys_util::ioctl_io_nr;

ioctl_io_nr!(KVM_GET_STATS_FD, kvm::KVMIO, 0xce);

const HEADER_BYTES: usize = 24;
const DESCRIPTOR_BYTES: usize = 16;
const MAX_NAME_BYTES: usize = 256;
const MAX_DESCRIPTORS: usize = 4096;
const MAX_DATA_BYTES: usize = 1 << 20;

/// Why KVM's statistics cannot be had.
#[derive(Debug, Error)]
pub enum StatsError {
    /// The kernel has no statistics descriptor.
    #[error("KVM gives no statistics descriptor: Linux 5.14 or newer has one")]
    Unavailable(#[source] io::Error),
    /// Reading failed.
    #[error("KVM's statistics could not be read")]
    Read(#[from] io::Error),
    /// The description contradicts itself.
    #[error("KVM's description of its statistics is malformed: {0}")]
    Malformed(&'static str),
}

/// What a statistic counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsUnit {
    /// Events or other things without a unit.
    Count,
    /// Bytes.
    Bytes,
    /// Time; KVM counts nanoseconds.
    Nanoseconds,
    /// Time in another power of ten of a second.
    Seconds {
        /// The power.
        exponent: i16,
    },
    /// Clock cycles.
    Cycles,
    /// 0 or 1.
    Boolean,
    /// A unit that this version does not know.
    Unknown,
}

/// A statistic's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsValue {
    /// A number: cumulative, instantaneous, or a peak.
    Scalar(u64),
    /// Counts by size; bucket 0 holds the value 0, bucket n values from 2^(n-1) up
    /// to 2^n.
    LogHistogram(Vec<u64>),
    /// Counts by size in buckets of equal width.
    LinearHistogram {
        /// Width of a bucket, in the statistic's unit.
        bucket_size: u32,
        /// Counts.
        counts: Vec<u64>,
    },
}

/// One statistic as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// KVM's name, such as `halt_wait_ns`.
    pub name: &'a str,
    /// Unit of the value, or of a histogram's buckets.
    pub unit: StatsUnit,
    /// The value.
    pub value: StatsValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scalar,
    Linear { bucket_size: u32 },
    Log,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Descriptor {
    name: String,
    unit: StatsUnit,
    kind: Kind,
    offset: usize,
    count: usize,
}

/// The statistics of one machine or vCPU. May be read from any thread.
#[derive(Debug)]
pub struct StatsFd {
    file: File,
    data_offset: u64,
    data_bytes: usize,
    descriptors: Vec<Descriptor>,
}

impl StatsFd {
    pub(crate) fn of(owner: &impl AsRawFd) -> Result<Self, StatsError> {
        // SAFETY: the ioctl takes no argument and gives a new descriptor or -1.
        let fd = unsafe { ioctl(owner, KVM_GET_STATS_FD()) };
        if fd < 0 {
            return Err(StatsError::Unavailable(io::Error::last_os_error()));
        }
        // SAFETY: the kernel just gave this descriptor to us alone.
        let file = unsafe { File::from_raw_fd(fd) };
        Self::parse(file)
    }

    fn parse(file: File) -> Result<Self, StatsError> {
        let header = Header::parse(&read_bytes(&file, 0, HEADER_BYTES)?)?;
        let table = read_bytes(&file, header.descriptors_offset, header.table_bytes())?;
        let descriptors = table
            .chunks_exact(header.descriptor_bytes())
            .map(Descriptor::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let end = |descriptor: &Descriptor| descriptor.offset + 8 * descriptor.count;
        let data_bytes = descriptors.iter().map(end).max().unwrap_or(0);
        Ok(Self {
            file,
            data_offset: header.data_offset,
            data_bytes,
            descriptors,
        })
    }

    /// Reads every statistic, in KVM's order.
    pub fn read(&self) -> Result<Vec<Stat<'_>>, StatsError> {
        let data = read_bytes(&self.file, self.data_offset, self.data_bytes)?;
        Ok(self
            .descriptors
            .iter()
            .map(|descriptor| descriptor.stat(&data))
            .collect())
    }

    /// Reads the number called `name`; `None` if this KVM has none.
    pub fn scalar(&self, name: &str) -> Result<Option<u64>, StatsError> {
        let wanted = |it: &&Descriptor| it.name == name && it.kind == Kind::Scalar;
        let Some(descriptor) = self.descriptors.iter().find(wanted) else {
            return Ok(None);
        };
        let offset = self.data_offset + descriptor.offset as u64;
        let bytes = read_bytes(&self.file, offset, 8)?;
        Ok(Some(words(&bytes).next().unwrap_or(0)))
    }
}

struct Header {
    name_bytes: usize,
    count: usize,
    descriptors_offset: u64,
    data_offset: u64,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self, StatsError> {
        let field = |index: usize| u32_at(bytes, 4 * index);
        let header = Self {
            name_bytes: field(1) as usize,
            count: field(2) as usize,
            descriptors_offset: u64::from(field(4)),
            data_offset: u64::from(field(5)),
        };
        if header.name_bytes == 0 || header.name_bytes > MAX_NAME_BYTES {
            return Err(StatsError::Malformed("length of names"));
        }
        if header.count > MAX_DESCRIPTORS {
            return Err(StatsError::Malformed("number of descriptors"));
        }
        Ok(header)
    }

    fn descriptor_bytes(&self) -> usize {
        DESCRIPTOR_BYTES + self.name_bytes
    }

    fn table_bytes(&self) -> usize {
        self.count * self.descriptor_bytes()
    }
}

impl Descriptor {
    /// `flags: u32, exponent: i16, size: u16, offset: u32, bucket_size: u32, name`.
    fn parse(bytes: &[u8]) -> Result<Self, StatsError> {
        let flags = u32_at(bytes, 0);
        let exponent = i16::from_le_bytes([bytes[4], bytes[5]]);
        let count = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        let offset = u32_at(bytes, 8) as usize;
        if count == 0 || offset + 8 * count > MAX_DATA_BYTES {
            return Err(StatsError::Malformed("place of a value"));
        }
        let name = bytes[DESCRIPTOR_BYTES..]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        Ok(Self {
            name: String::from_utf8_lossy(name).into_owned(),
            unit: unit(flags, exponent),
            kind: match flags & kvm::KVM_STATS_TYPE_MASK {
                kvm::KVM_STATS_TYPE_LINEAR_HIST => Kind::Linear {
                    bucket_size: u32_at(bytes, 12),
                },
                kvm::KVM_STATS_TYPE_LOG_HIST => Kind::Log,
                _ => Kind::Scalar,
            },
            offset,
            count,
        })
    }

    fn stat(&self, data: &[u8]) -> Stat<'_> {
        let bytes = &data[self.offset..self.offset + 8 * self.count];
        let value = match self.kind {
            Kind::Scalar => StatsValue::Scalar(words(bytes).next().unwrap_or(0)),
            Kind::Log => StatsValue::LogHistogram(words(bytes).collect()),
            Kind::Linear { bucket_size } => StatsValue::LinearHistogram {
                bucket_size,
                counts: words(bytes).collect(),
            },
        };
        Stat {
            name: &self.name,
            unit: self.unit,
            value,
        }
    }
}

fn unit(flags: u32, exponent: i16) -> StatsUnit {
    match flags & kvm::KVM_STATS_UNIT_MASK {
        kvm::KVM_STATS_UNIT_NONE => StatsUnit::Count,
        kvm::KVM_STATS_UNIT_BYTES => StatsUnit::Bytes,
        kvm::KVM_STATS_UNIT_SECONDS if exponent == -9 => StatsUnit::Nanoseconds,
        kvm::KVM_STATS_UNIT_SECONDS => StatsUnit::Seconds { exponent },
        kvm::KVM_STATS_UNIT_CYCLES => StatsUnit::Cycles,
        kvm::KVM_STATS_UNIT_BOOLEAN => StatsUnit::Boolean,
        _ => StatsUnit::Unknown,
    }
}

fn read_bytes(file: &File, offset: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes[offset..]
        .first_chunk()
        .map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    const NAME_BYTES: usize = 16;

    struct Stats {
        descriptors: Vec<u8>,
        count: u32,
        data: Vec<u8>,
    }

    impl Stats {
        fn new() -> Self {
            Self {
                descriptors: Vec::new(),
                count: 0,
                data: Vec::new(),
            }
        }

        fn add(mut self, name: &str, flags: u32, exponent: i16, values: &[u64]) -> Self {
            let out = &mut self.descriptors;
            out.extend(flags.to_le_bytes());
            out.extend(exponent.to_le_bytes());
            out.extend((values.len() as u16).to_le_bytes());
            out.extend((self.data.len() as u32).to_le_bytes());
            out.extend(7_u32.to_le_bytes());
            let mut field = [0; NAME_BYTES];
            field[..name.len()].copy_from_slice(name.as_bytes());
            out.extend(field);
            values
                .iter()
                .for_each(|value| self.data.extend(value.to_le_bytes()));
            self.count += 1;
            self
        }

        fn file(&self) -> File {
            let mut file = anonymous_file();
            let header = [
                0,
                NAME_BYTES as u32,
                self.count,
                24,
                40,
                40 + self.descriptors.len() as u32,
            ];
            for field in header {
                file.write_all(&field.to_le_bytes()).unwrap();
            }
            file.write_all(&[0; 16]).unwrap();
            file.write_all(&self.descriptors).unwrap();
            file.write_all(&self.data).unwrap();
            file
        }
    }

    fn anonymous_file() -> File {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"stats".as_ptr(), 0) };
        assert!(fd >= 0);
        // SAFETY: the descriptor is ours alone.
        unsafe { File::from_raw_fd(fd) }
    }

    #[test]
    fn scalars_and_histograms_are_read() {
        let file = Stats::new()
            .add("exits", 0, 0, &[5])
            .add("wait", kvm::KVM_STATS_UNIT_SECONDS, -9, &[1_000])
            .add("hist", kvm::KVM_STATS_TYPE_LOG_HIST, 0, &[1, 2, 3])
            .add("linear", kvm::KVM_STATS_TYPE_LINEAR_HIST, 0, &[4, 5])
            .file();
        let stats = StatsFd::parse(file).unwrap();
        let values = stats.read().unwrap();
        assert_eq!(values[0].value, StatsValue::Scalar(5));
        assert_eq!(values[0].unit, StatsUnit::Count);
        assert_eq!(values[1].name, "wait");
        assert_eq!(values[1].unit, StatsUnit::Nanoseconds);
        assert_eq!(values[2].value, StatsValue::LogHistogram(vec![1, 2, 3]));
        let counts = vec![4, 5];
        let bucket_size = 7;
        assert_eq!(
            values[3].value,
            StatsValue::LinearHistogram {
                bucket_size,
                counts
            }
        );
        assert_eq!(stats.scalar("wait").unwrap(), Some(1_000));
        assert_eq!(stats.scalar("hist").unwrap(), None);
        assert_eq!(stats.scalar("none").unwrap(), None);
    }

    #[test]
    fn a_value_far_away_is_refused() {
        let mut stats = Stats::new().add("exits", 0, 0, &[5]);
        stats.descriptors[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = StatsFd::parse(stats.file()).unwrap_err();
        assert!(matches!(error, StatsError::Malformed(_)));
    }

    #[test]
    fn an_absurd_header_is_refused() {
        for (field, value) in [(1, 0), (1, 1 << 20), (2, 1 << 20)] {
            let file = Stats::new().add("exits", 0, 0, &[5]).file();
            file.write_all_at(&u32::to_le_bytes(value), 4 * field)
                .unwrap();
            assert!(matches!(
                StatsFd::parse(file),
                Err(StatsError::Malformed(_))
            ));
        }
    }

    #[test]
    fn a_short_file_is_an_error_and_not_a_panic() {
        let file = Stats::new().add("exits", 0, 0, &[5]).file();
        file.set_len(50).unwrap();
        assert!(matches!(StatsFd::parse(file), Err(StatsError::Read(_))));
    }
}
