//! [`Job`]: what to do, from words.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tare_libos::block::{Cache, SECTOR_BYTES};

/// Most commands in flight.
pub(crate) const MOST_IN_FLIGHT: u32 = 256;
/// Longest block.
pub(crate) const LONGEST_BLOCK: u64 = 1 << 20;

/// Which block comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any.
    Random,
    /// The one after the last that any thread took.
    Sequential,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// After this many milliseconds.
    Ms(u64),
    /// After this many commands.
    Count(u64),
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// What makes the span empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// Its content is not needed any more.
    Discard,
    /// It becomes zeros.
    Zeroes,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name or serial number of the disk.
    pub disk: String,
    /// Commands in flight, run by run.
    pub cif: Vec<u32>,
    /// Bytes of each command, whole sectors.
    pub block: u64,
    /// Percent of commands that read.
    pub read: u32,
    /// Which block comes next.
    pub order: Order,
    /// Bytes of the disk that are used; none for all.
    pub span: Option<u64>,
    /// Commands a second of all threads; none for as many as complete.
    pub rate: Option<u64>,
    /// A flush after this many writes of a thread.
    pub flush_every: Option<u32>,
    /// One more thread that writes a block and flushes.
    pub committer: Switch,
    /// The disk's write cache; none for as it is.
    pub cache: Option<Cache>,
    /// The span is emptied before the first run.
    pub clear: Option<Clear>,
    /// Patterns are written, and checked where read.
    pub verify: Switch,
    /// When a run ends.
    pub length: Length,
    /// Time before anything counts.
    pub warm_ms: u64,
    /// Time over which the threads begin, one after the other.
    pub ramp_ms: u64,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            disk: "disk0".to_string(),
            cif: alloc::vec![1],
            block: 4096,
            read: 100,
            order: Order::Random,
            span: None,
            rate: None,
            flush_every: None,
            committer: Switch::Off,
            cache: None,
            clear: None,
            verify: Switch::Off,
            length: Length::Ms(1000),
            warm_ms: 100,
            ramp_ms: 0,
            seed: 1,
        }
    }
}

/// A word that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Its value.
    #[error("{key}={value} is invalid: use {wanted}")]
    Value {
        /// The word's key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// Checking needs that what is read was written before.
    #[error("verify=on needs read= below 100")]
    NothingToVerify,
}

impl Job {
    /// Takes what it knows of a command line; other words are others'.
    pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, JobError> {
        let mut job = Self::default();
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            job.set(key, value)?;
        }
        match job.verify {
            Switch::On if job.read == 100 => Err(JobError::NothingToVerify),
            _ => Ok(job),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        match key {
            "disk" => self.disk = value.to_string(),
            "cif" => self.cif = depths(value)?,
            "block" => self.block = block(value)?,
            "read" => self.read = bounded("read", value, "0 to 100", 0, 100)? as u32,
            "order" => self.order = order(value)?,
            "span" => self.span = Some(size(value).ok_or_else(|| wrong("span", value, SIZE))?),
            "rate" => self.rate = Some(number("rate", value)?),
            "flush_every" => {
                let most = u64::from(u32::MAX);
                let wanted = "a number above 0";
                self.flush_every = Some(bounded("flush_every", value, wanted, 1, most)? as u32);
            }
            "committer" => self.committer = switch("committer", value)?,
            "cache" => self.cache = Some(cache(value)?),
            "clear" => self.clear = Some(clear(value)?),
            "verify" => self.verify = switch("verify", value)?,
            "ms" => self.length = Length::Ms(number("ms", value)?),
            "count" => self.length = Length::Count(number("count", value)?),
            "warm_ms" => self.warm_ms = bounded("warm_ms", value, "a number", 0, MOST)?,
            "ramp_ms" => self.ramp_ms = bounded("ramp_ms", value, "a number", 0, MOST)?,
            "seed" => self.seed = number("seed", value)?,
            _ => {}
        }
        Ok(())
    }
}

const SIZE: &str = "bytes, with K, M or G";
/// Numbers beyond make no sense for anything here.
const MOST: u64 = 1 << 40;

fn wrong(key: &'static str, value: &str, wanted: &'static str) -> JobError {
    JobError::Value {
        key,
        value: value.to_string(),
        wanted,
    }
}

fn bounded(
    key: &'static str,
    value: &str,
    wanted: &'static str,
    least: u64,
    most: u64,
) -> Result<u64, JobError> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| wrong(key, value, wanted))
}

fn number(key: &'static str, value: &str) -> Result<u64, JobError> {
    bounded(key, value, "a number above 0", 1, MOST)
}

fn switch(key: &'static str, value: &str) -> Result<Switch, JobError> {
    match value {
        "on" => Ok(Switch::On),
        "off" => Ok(Switch::Off),
        _ => Err(wrong(key, value, "on or off")),
    }
}

fn cache(value: &str) -> Result<Cache, JobError> {
    match value {
        "writeback" => Ok(Cache::Writeback),
        "writethrough" => Ok(Cache::Writethrough),
        _ => Err(wrong("cache", value, "writeback or writethrough")),
    }
}

fn clear(value: &str) -> Result<Clear, JobError> {
    match value {
        "discard" => Ok(Clear::Discard),
        "zeroes" => Ok(Clear::Zeroes),
        _ => Err(wrong("clear", value, "discard or zeroes")),
    }
}

fn order(value: &str) -> Result<Order, JobError> {
    match value {
        "random" => Ok(Order::Random),
        "sequential" => Ok(Order::Sequential),
        _ => Err(wrong("order", value, "random or sequential")),
    }
}

fn depths(value: &str) -> Result<Vec<u32>, JobError> {
    let depth = |text: &str| {
        let number = bounded("cif", text, "1 to 256", 1, MOST_IN_FLIGHT.into())?;
        Ok(number as u32)
    };
    value.split(',').map(depth).collect()
}

fn block(value: &str) -> Result<u64, JobError> {
    let fits = |bytes: &u64| {
        bytes.is_multiple_of(SECTOR_BYTES as u64) && (1..=LONGEST_BLOCK).contains(bytes)
    };
    let bytes = size(value).filter(fits);
    bytes.ok_or_else(|| wrong("block", value, "whole sectors up to 1M"))
}

fn size(value: &str) -> Option<u64> {
    let (digits, shift) = match value.char_indices().last()? {
        (at, 'k' | 'K') => (&value[..at], 10),
        (at, 'm' | 'M') => (&value[..at], 20),
        (at, 'g' | 'G') => (&value[..at], 30),
        _ => (value, 0),
    };
    let number: u64 = digits.parse().ok()?;
    Some(number.checked_mul(1 << shift)?).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Job, JobError> {
        Job::parse(line.split_whitespace())
    }

    #[test]
    fn every_word_is_understood_and_others_are_left_alone() {
        let line = "ip=dhcp disk=A cif=1,64 block=8K read=67 order=sequential span=1G rate=500 \
                    flush_every=8 committer=on cache=writethrough clear=zeroes verify=on \
                    count=10 warm_ms=0 ramp_ms=5 seed=9 hold";
        let expected = Job {
            disk: "A".to_string(),
            cif: alloc::vec![1, 64],
            block: 8192,
            read: 67,
            order: Order::Sequential,
            span: Some(1 << 30),
            rate: Some(500),
            flush_every: Some(8),
            committer: Switch::On,
            cache: Some(Cache::Writethrough),
            clear: Some(Clear::Zeroes),
            verify: Switch::On,
            length: Length::Count(10),
            warm_ms: 0,
            ramp_ms: 5,
            seed: 9,
        };
        assert_eq!(parse(line), Ok(expected));
        assert_eq!(parse(""), Ok(Job::default()));
    }

    #[test]
    fn nonsense_is_named() {
        for line in [
            "cif=0",
            "cif=257",
            "cif=",
            "cif=1,,2",
            "block=0",
            "block=100",
            "block=2M",
            "read=101",
            "read=-1",
            "order=any",
            "span=0",
            "span=x",
            "rate=0",
            "ms=0",
            "count=0",
            "verify=yes",
            "committer=1",
            "cache=off",
            "clear=all",
            "flush_every=0",
            "seed=0",
        ] {
            let key = line.split('=').next().unwrap();
            let error = parse(line).unwrap_err().to_string();
            assert!(error.starts_with(&alloc::format!("{key}=")), "{error}");
        }
        assert_eq!(parse("verify=on"), Err(JobError::NothingToVerify));
        assert_eq!(size("18446744073709551615G"), None);
    }
}
