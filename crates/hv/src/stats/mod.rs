//! KVM's own statistics through `KVM_GET_STATS_FD`: of a machine or a vCPU.
//!
//! The kernel describes its data (names, units, kinds); the description is
//! read once and checked, each reading afterwards is one `pread`. Open a
//! vCPU's descriptor before its thread enters `KVM_RUN`: the ioctl waits for
//! the vCPU, reading does not. Available since Linux 5.14.
//! Reference: `Documentation/virt/kvm/api.rst`, 4.133.

#![allow(unsafe_code)]

mod description;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use kvm_bindings::KVMIO;
use thiserror::Error;
use vmm_sys_util::ioctl::ioctl;
use vmm_sys_util::ioctl_io_nr;

use description::{Descriptor, DescriptorKind, HEADER_BYTES, Header, words};

ioctl_io_nr!(KVM_GET_STATS_FD, KVMIO, 0xce);

/// Why KVM's statistics are unavailable.
#[derive(Debug, Error)]
pub enum StatsError {
    /// The kernel has no statistics descriptor.
    #[error("KVM has no statistics descriptors: use Linux 5.14 or newer on the host")]
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
    /// Whether it is a counter that only grows: not a gauge, a peak or a histogram.
    pub only_grows: bool,
    /// The value.
    pub value: StatsValue,
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

    /// A statistics descriptor that came from elsewhere, such as another process.
    pub fn from_file(file: File) -> Result<Self, StatsError> {
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
        let wanted = |it: &&Descriptor| it.name == name && it.kind == DescriptorKind::Scalar;
        let Some(descriptor) = self.descriptors.iter().find(wanted) else {
            return Ok(None);
        };
        let offset = self.data_offset + descriptor.offset as u64;
        let bytes = read_bytes(&self.file, offset, 8)?;
        Ok(Some(words(&bytes).next().unwrap_or(0)))
    }
}

fn read_bytes(file: &File, offset: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
