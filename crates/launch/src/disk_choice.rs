//! `--disk FILE[,at=DIR][,ro][,format=raw][,cache=...][,serial=...][,queues=N][,coalesce=...]
//! [,iops=N][,bytes_per_s=N][,latency_us=N]`.

use std::path::PathBuf;
use std::str::FromStr;

use tare_control::config::{DiskCache, DiskCoalesce, NoCoalesce};
use tare_devices::blk::{Access, Format, MAX_QUEUES, SERIAL_BYTES};
use tare_policy::limit::DiskLimits;

/// A disk as it was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskChoice {
    /// File or block device.
    pub path: PathBuf,
    /// Where a program has its file system; else [`MOUNT`].
    pub at: Option<String>,
    /// What the guest may do.
    pub access: Access,
    /// What its bytes are.
    pub format: Format,
    /// When a write counts as done.
    pub cache: DiskCache,
    /// Serial number; else the disk's place.
    pub serial: Option<String>,
    /// Queues; else one for each CPU.
    pub queues: Option<u16>,
    /// Which completions interrupt the guest; else vIC where it is supported.
    pub coalesce: Option<DiskCoalesce>,
    /// Time that each request takes at least, microseconds.
    pub latency_us: u32,
    /// Requests and bytes a second.
    pub limits: DiskLimits,
}

/// Where a program has the file system of its disk.
pub const MOUNT: &str = "/data";

/// Longest latency: beyond it a guest's driver assumes that the disk hangs.
const LONGEST_LATENCY_US: u32 = 1_000_000;

/// A disk setting that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskChoiceError {
    /// No file.
    #[error(
        "invalid disk: use FILE[,at=DIR][,ro][,format=raw][,cache=MODE][,serial=TEXT][,queues=N][,coalesce=HOW][,iops=N][,bytes_per_s=N][,latency_us=N]"
    )]
    Form,
    /// An unknown setting.
    #[error(
        "unknown disk setting {0:?}: use at=, ro, format=raw, cache=, serial=, queues=, coalesce=, iops=, bytes_per_s= or latency_us="
    )]
    Setting(String),
    /// Not a place for a file system.
    #[error(
        "invalid place {0:?} for a file system: use an absolute path other than /, without . and .."
    )]
    Place(String),
    /// Not a cache mode.
    #[error("unknown cache mode {0:?}: use writeback or writethrough")]
    Cache(String),
    /// Not a serial number.
    #[error("invalid serial number: use 1 to {SERIAL_BYTES} printable ASCII characters")]
    Serial,
    /// Not a number of queues.
    #[error("invalid number of queues: use 1 to {MAX_QUEUES}")]
    Queues,
    /// Not a way to coalesce.
    #[error(transparent)]
    Coalesce(#[from] NoCoalesce),
    /// Not a latency.
    #[error("invalid latency {0:?}: use 0 to {LONGEST_LATENCY_US} microseconds")]
    Latency(String),
    /// Not a limit.
    #[error("invalid limit {0:?}: use a number a second, or 0 for no limit")]
    Limit(String),
}

impl FromStr for DiskChoice {
    type Err = DiskChoiceError;

    fn from_str(text: &str) -> Result<Self, DiskChoiceError> {
        let (path, rest) = split_path(text);
        if path.is_empty() {
            return Err(DiskChoiceError::Form);
        }
        let mut disk = Self {
            path: path.into(),
            at: None,
            access: Access::ReadWrite,
            format: Format::Detect,
            cache: DiskCache::default(),
            serial: None,
            queues: None,
            coalesce: None,
            latency_us: 0,
            limits: DiskLimits::default(),
        };
        if let Some(rest) = rest {
            rest.split(',').try_for_each(|setting| disk.set(setting))?;
        }
        Ok(disk)
    }
}

/// The same disks, without a check of their first bytes.
pub(crate) fn all_raw(mut disks: Vec<DiskChoice>) -> Vec<DiskChoice> {
    for disk in &mut disks {
        disk.format = Format::Raw;
    }
    disks
}

impl DiskChoice {
    fn set(&mut self, word: &str) -> Result<(), DiskChoiceError> {
        match word.split_once('=') {
            None if word == "ro" => self.access = Access::ReadOnly,
            Some(("at", place)) => self.at = Some(mount_point(place)?),
            Some(("format", "raw")) => self.format = Format::Raw,
            Some(("cache", "writeback")) => self.cache = DiskCache::Writeback,
            Some(("cache", "writethrough")) => self.cache = DiskCache::Writethrough,
            Some(("cache", other)) => return Err(DiskChoiceError::Cache(other.to_owned())),
            Some(("serial", text)) => self.serial = Some(serial(text)?),
            Some(("queues", count)) => self.queues = Some(queues(count)?),
            Some(("coalesce", how)) => self.coalesce = Some(how.parse()?),
            Some(("iops", count)) => self.limits.iops = limit(count)?,
            Some(("bytes_per_s", count)) => self.limits.bytes_per_s = limit(count)?,
            Some(("latency_us", time)) => self.latency_us = latency_us(time)?,
            _ => return Err(DiskChoiceError::Setting(word.to_owned())),
        }
        Ok(())
    }
}

/// The path and the settings after it. A comma within the path is written `,,`.
fn split_path(text: &str) -> (String, Option<&str>) {
    let mut path = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(',') {
        path.push_str(before);
        match after.strip_prefix(',') {
            Some(more) => {
                path.push(',');
                rest = more;
            }
            None => return (path, Some(after)),
        }
    }
    path.push_str(rest);
    (path, None)
}

fn mount_point(place: &str) -> Result<String, DiskChoiceError> {
    let names = place.split('/').filter(|name| !name.is_empty());
    let is_plain = names.clone().all(|name| !matches!(name, "." | ".."));
    if place.starts_with('/') && is_plain && names.count() > 0 && !place.contains('\0') {
        Ok(place.trim_end_matches('/').to_owned())
    } else {
        Err(DiskChoiceError::Place(place.to_owned()))
    }
}

fn serial(text: &str) -> Result<String, DiskChoiceError> {
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if printable && (1..=SERIAL_BYTES).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err(DiskChoiceError::Serial)
    }
}

fn queues(count: &str) -> Result<u16, DiskChoiceError> {
    match count.parse() {
        Ok(count) if (1..=MAX_QUEUES).contains(&count) => Ok(count),
        _ => Err(DiskChoiceError::Queues),
    }
}

fn latency_us(time: &str) -> Result<u32, DiskChoiceError> {
    match time.parse() {
        Ok(us) if us <= LONGEST_LATENCY_US => Ok(us),
        _ => Err(DiskChoiceError::Latency(time.to_owned())),
    }
}

fn limit(count: &str) -> Result<u64, DiskChoiceError> {
    let limit = count.parse();
    limit.map_err(|_| DiskChoiceError::Limit(count.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_sensible_defaults() {
        let disk: DiskChoice = "data.img".parse().expect("a disk");
        assert_eq!(disk.path, PathBuf::from("data.img"));
        assert_eq!(disk.access, Access::ReadWrite);
        assert_eq!(disk.cache, DiskCache::Writeback);
        assert_eq!(
            (disk.serial, disk.queues, disk.coalesce),
            (None, None, None)
        );
    }

    #[test]
    fn every_setting_is_understood() {
        let disk: DiskChoice =
            "d,at=/var/lib/db/,ro,format=raw,cache=writethrough,serial=A1,queues=4,coalesce=1/4,iops=50,bytes_per_s=7,latency_us=900"
                .parse()
                .expect("a disk");
        assert_eq!(disk.access, Access::ReadOnly);
        assert_eq!(disk.format, Format::Raw);
        assert_eq!(disk.cache, DiskCache::Writethrough);
        assert_eq!(disk.at.as_deref(), Some("/var/lib/db"));
        assert_eq!(disk.serial.as_deref(), Some("A1"));
        assert_eq!(disk.queues, Some(4));
        let ratio = DiskCoalesce::Ratio {
            delivered: 1,
            of: 4,
        };
        assert_eq!(disk.coalesce, Some(ratio));
        assert_eq!(disk.latency_us, 900);
        assert_eq!((disk.limits.iops, disk.limits.bytes_per_s), (50, 7));
    }

    #[test]
    fn a_comma_of_the_path_is_written_twice() {
        for (text, path, access) in [
            ("a,,b.img", "a,b.img", Access::ReadWrite),
            ("a,,b,,,ro", "a,b,", Access::ReadOnly),
            (",,,,x", ",,x", Access::ReadWrite),
        ] {
            let disk: DiskChoice = text.parse().expect(text);
            assert_eq!((disk.path, disk.access), (PathBuf::from(path), access));
        }
    }

    #[test]
    fn each_wrong_setting_is_named() {
        let error = |text: &str| text.parse::<DiskChoice>().expect_err("refused");
        assert_eq!(error(""), DiskChoiceError::Form);
        assert_eq!(error("d,rw"), DiskChoiceError::Setting("rw".to_owned()));
        assert_eq!(
            error("d,cache=unsafe"),
            DiskChoiceError::Cache("unsafe".to_owned())
        );
        assert_eq!(error("d,serial="), DiskChoiceError::Serial);
        assert_eq!(
            error("d,serial=123456789012345678901"),
            DiskChoiceError::Serial
        );
        assert_eq!(error("d,queues=17"), DiskChoiceError::Queues);
        for place in ["", "data", "/", "//", "/a/../b", "/."] {
            let wrong = DiskChoiceError::Place(place.to_owned());
            assert_eq!(error(&format!("d,at={place}")), wrong);
        }
        for time in ["", "-1", "1ms", "1000001"] {
            let wrong = DiskChoiceError::Latency(time.to_owned());
            assert_eq!(error(&format!("d,latency_us={time}")), wrong);
        }
        for count in ["", "-1", "1k"] {
            let wrong = DiskChoiceError::Limit(count.to_owned());
            assert_eq!(error(&format!("d,iops={count}")), wrong);
        }
        for how in ["", "on", "5/4", "0/1", "1/0", "1/99999"] {
            let error = error(&format!("d,coalesce={how}")).to_string();
            assert!(
                error.starts_with(&format!("invalid coalescing {how:?}")),
                "{error}"
            );
        }
    }
}
