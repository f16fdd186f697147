//! The kernel's description of its statistics: a header, then a descriptor for
//! each. Checked here, so that reading values needs no checks.

use kvm_bindings as kvm;

use super::{Stat, StatsError, StatsUnit, StatsValue};

pub(super) const HEADER_BYTES: usize = 24;
const DESCRIPTOR_BYTES: usize = 16;
const MAX_NAME_BYTES: usize = 256;
const MAX_DESCRIPTORS: usize = 4096;
const MAX_DATA_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DescriptorKind {
    Scalar,
    Linear { bucket_size: u32 },
    Log,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) name: String,
    pub(super) unit: StatsUnit,
    pub(super) kind: DescriptorKind,
    is_cumulative: bool,
    pub(super) offset: usize,
    pub(super) count: usize,
}

/// Where the parts of the file lie.
pub(super) struct Header {
    name_bytes: usize,
    count: usize,
    pub(super) descriptors_offset: u64,
    pub(super) data_offset: u64,
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, StatsError> {
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

    pub(super) fn descriptor_bytes(&self) -> usize {
        DESCRIPTOR_BYTES + self.name_bytes
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.count * self.descriptor_bytes()
    }
}

impl Descriptor {
    /// `flags: u32, exponent: i16, size: u16, offset: u32, bucket_size: u32, name`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, StatsError> {
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
                kvm::KVM_STATS_TYPE_LINEAR_HIST => DescriptorKind::Linear {
                    bucket_size: u32_at(bytes, 12),
                },
                kvm::KVM_STATS_TYPE_LOG_HIST => DescriptorKind::Log,
                _ => DescriptorKind::Scalar,
            },
            is_cumulative: flags & kvm::KVM_STATS_TYPE_MASK == kvm::KVM_STATS_TYPE_CUMULATIVE,
            offset,
            count,
        })
    }

    pub(super) fn stat(&self, data: &[u8]) -> Stat<'_> {
        let bytes = &data[self.offset..self.offset + 8 * self.count];
        let value = match self.kind {
            DescriptorKind::Scalar => StatsValue::Scalar(words(bytes).next().unwrap_or(0)),
            DescriptorKind::Log => StatsValue::LogHistogram(words(bytes).collect()),
            DescriptorKind::Linear { bucket_size } => StatsValue::LinearHistogram {
                bucket_size,
                counts: words(bytes).collect(),
            },
        };
        Stat {
            name: &self.name,
            unit: self.unit,
            only_grows: self.is_cumulative,
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

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes[offset..]
        .first_chunk()
        .map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk))
}
