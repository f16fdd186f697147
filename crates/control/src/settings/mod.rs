//! What can be set while a machine runs: `GET` and `PUT /v1/settings`.
//!
//! The answer is a [`Settings`]; the request's body a [`SettingsChange`], the
//! same document with anything left out. A change is checked as a whole before
//! anything of it happens. `tare set` writes the same as `KEY=VALUE`:
//!
//! ```
//! use tare_control::settings::SettingsChange;
//!
//! let mut change = SettingsChange::default();
//! change.set("disk0.coalesce=4/5").unwrap();
//! change.set("disk0.coalesce.longest_hold_us=500").unwrap();
//! let text = r#"{"disks":{"disk0":{"coalesce":{"mode":"4/5","longest_hold_us":500}}}}"#;
//! assert_eq!(serde_json::to_string(&change).unwrap(), text);
//! ```
//!
//! A disk's size is a setting that can fail after it was checked, and cannot be taken back:
//! it is changed before the rest, for one disk at a time.
//!
//! Another setting: of a disk's coalescing, a line in `coalesce`; of a disk, a field of
//! [`DiskSettings`] and [`DiskChange`] and its line in [`Settings::rows`]; of the whole
//! machine, a field here in both documents, and its line in
//! [`Settings::changed`], [`Settings::rows`] and [`SettingsChange::set`]. What it
//! does is in `crates/monitor/src/settings.rs`.

mod coalesce;
mod error;
mod group;
mod net;
mod size;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use coalesce::{Coalesce, CoalesceChange};
pub use error::SettingsError;
pub use net::{NetChange, NetSettings};

use crate::halt::{HaltPolicy, HaltPolicyError};

/// All settings of a machine, in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How a halted vCPU waits; none where there is no vCPU (`tare blk`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<HaltPolicy>,
    /// Its network, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetSettings>,
    /// Disks by name, `disk0` being the first.
    pub disks: BTreeMap<String, DiskSettings>,
}

/// Settings of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSettings {
    /// Where it came from, for people.
    pub path: String,
    /// Which completions interrupt the guest.
    pub coalesce: Coalesce,
    /// Requests a second; 0: no limit.
    #[serde(default)]
    pub iops: u64,
    /// Bytes read and written a second; 0: no limit.
    #[serde(default)]
    pub bytes_per_s: u64,
    /// Its length in bytes, as the guest sees it.
    #[serde(default)]
    pub size: u64,
}

/// A change: what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsChange {
    /// How a halted vCPU waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<HaltPolicy>,
    /// Its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetChange>,
    /// Disks by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, DiskChange>,
}

/// A change to one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskChange {
    /// Which completions interrupt the guest.
    #[serde(default)]
    pub coalesce: CoalesceChange,
    /// Requests a second; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes read and written a second; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// A larger length in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl DiskChange {
    fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        if key == "size" {
            let size = size::parse(value).map_err(SettingsError::Value)?;
            self.size = Some(size);
            return Ok(());
        }
        let limit = match key {
            "iops" => &mut self.iops,
            "bytes_per_s" => &mut self.bytes_per_s,
            _ => return self.coalesce.set(key, value),
        };
        let number = value.parse();
        *limit = Some(number.map_err(|_| {
            SettingsError::Value(format!("{value:?} is not a number (0: no limit)"))
        })?);
        Ok(())
    }
}

/// A setting for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As `tare set` takes it.
    pub key: String,
    /// As `tare set` takes it.
    pub value: String,
    /// What it does.
    pub meaning: &'static str,
}

impl Settings {
    /// The settings with a change made, checked as a whole.
    pub fn changed(&self, change: &SettingsChange) -> Result<Self, SettingsError> {
        let mut next = self.clone();
        let sizes = change.disks.iter().filter(|(name, change)| {
            let now = self.disks.get(*name).map(|it| it.size);
            change.size.is_some_and(|size| Some(size) != now)
        });
        if sizes.count() > 1 {
            return Err(SettingsError::SeveralSizes);
        }
        if let Some(halt) = change.halt {
            next.halt = Some(self.halt_changed(halt)?);
        }
        if let Some(change) = &change.net {
            let net = next.net.as_mut().ok_or(SettingsError::NoNet)?;
            *net = net.changed(change);
        }
        for (name, change) in &change.disks {
            let disk = next
                .disks
                .get_mut(name)
                .ok_or_else(|| SettingsError::NoSuchDisk(name.clone()))?;
            disk.coalesce = disk.coalesce.changed(&change.coalesce);
            disk.iops = change.iops.unwrap_or(disk.iops);
            disk.bytes_per_s = change.bytes_per_s.unwrap_or(disk.bytes_per_s);
            disk.size = change.size.unwrap_or(disk.size);
            let checked = disk.coalesce.settings();
            checked.map_err(|source| SettingsError::Coalesce {
                disk: name.clone(),
                source,
            })?;
        }
        Ok(next)
    }

    /// KVM takes what a dedicated vCPU does without only before the first vCPU.
    fn halt_changed(&self, wanted: HaltPolicy) -> Result<HaltPolicy, SettingsError> {
        let now = self.halt.ok_or_else(|| SettingsError::Key {
            key: "halt".to_owned(),
            source: Box::new(SettingsError::NoSuchKey),
        })?;
        match (now, wanted) {
            (now, wanted) if now == wanted => Ok(now),
            (HaltPolicy::Dedicated, _) | (_, HaltPolicy::Dedicated) => {
                Err(SettingsError::DedicatedAtStart)
            }
            _ => Ok(wanted),
        }
    }

    /// Every setting, for people.
    pub fn rows(&self) -> Vec<Row> {
        let halt = self.halt.map(|halt| Row {
            key: "halt".to_owned(),
            value: halt.to_string(),
            meaning: "how a halted CPU waits: never, kernel, poll=NS, budget=PCT",
        });
        let disks = self.disks.iter().flat_map(|(name, disk)| {
            let limits = [
                (
                    "iops",
                    disk.iops.to_string(),
                    "requests a second; 0: no limit",
                ),
                (
                    "bytes_per_s",
                    disk.bytes_per_s.to_string(),
                    "bytes read and written a second; 0: no limit",
                ),
                (
                    "size",
                    disk.size.to_string(),
                    "bytes, or with a unit (10G); it can only grow",
                ),
            ];
            let rows = disk.coalesce.rows().into_iter().chain(limits);
            rows.map(move |(key, value, meaning)| Row {
                key: format!("{name}.{key}"),
                value,
                meaning,
            })
        });
        let net = self
            .net
            .iter()
            .flat_map(|net| net.rows())
            .map(|(key, value, meaning)| Row {
                key: format!("net.{key}"),
                value,
                meaning,
            });
        halt.into_iter().chain(net).chain(disks).collect()
    }
}

fn holds_sequence(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(holds_sequence),
        _ => false,
    }
}

impl SettingsChange {
    /// A change as a JSON document: objects only. Derived code would take a
    /// sequence for an object's fields in their order, and `[]` for no change.
    pub fn from_json(document: &[u8]) -> serde_json::Result<Self> {
        let value: Value = serde_json::from_slice(document)?;
        if holds_sequence(&value) {
            return Err(serde::de::Error::custom(
                "a sequence where an object is expected",
            ));
        }
        serde_json::from_value(value)
    }

    /// Adds what a word such as `disk0.coalesce=4/5` asks for.
    pub fn set(&mut self, word: &str) -> Result<(), SettingsError> {
        let pair = word.split_once('=');
        let (key, value) = pair.ok_or_else(|| SettingsError::Form(word.to_owned()))?;
        let set = match key.split_once('.') {
            Some((name, key)) if name.starts_with("disk") => {
                let disk = self.disks.entry(name.to_owned()).or_default();
                disk.set(key, value)
            }
            Some(("net", key)) => self.net.get_or_insert_default().set(key, value),
            None if key == "halt" => match value.parse() {
                Ok(halt) => {
                    self.halt = Some(halt);
                    Ok(())
                }
                Err(error) => Err(SettingsError::Value(HaltPolicyError::to_string(&error))),
            },
            _ => Err(SettingsError::NoSuchKey),
        };
        set.map_err(|source| SettingsError::Key {
            key: key.to_owned(),
            source: Box::new(source),
        })
    }
}
