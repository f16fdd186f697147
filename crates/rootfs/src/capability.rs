//! Capabilities of programs (capabilities(7)): an extended attribute that no initramfs
//! holds, so that a guest's first process sets it.

use std::path::Path;

use rustix::fs::{lgetxattr, llistxattr};

/// The attribute's name.
pub(crate) const NAME: &str = "security.capability";
/// Bytes of revisions 2 and 3 (`include/uapi/linux/capability.h`, `vfs_cap_data` and
/// `vfs_ns_cap_data`).
const SIZES: [(u8, usize); 2] = [(2, 20), (3, 24)];
/// Bytes of the names of a file's attributes; who has more is named without them.
const NAMES_BYTES: usize = 1024;
/// Attributes that mean something to the host only.
const OF_THE_HOST: [&str; 4] = [
    "security.selinux",
    "security.ima",
    "security.evm",
    "trusted.overlay.",
];

/// Capabilities of a file, as the kernel keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCapability {
    bytes: [u8; 24],
    length: usize,
}

impl FileCapability {
    /// The attribute's value, if it is one of a revision that Linux sets today.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let revision = value.get(3)?;
        let size = SIZES.into_iter().find(|(known, _)| known == revision);
        let (_, length) = size.filter(|(_, length)| *length == value.len())?;
        let mut bytes = [0; 24];
        bytes[..length].copy_from_slice(value);
        Some(Self { bytes, length })
    }

    /// The attribute's value.
    pub fn value(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What of a file's extended attributes a guest gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) capability: Option<FileCapability>,
    /// The first one that it does not get.
    pub(crate) lost: Option<String>,
}

impl Attributes {
    /// Of a file of the host; links are not followed. None where they cannot be read.
    pub(crate) fn of(path: &Path) -> Self {
        let mut names = [0; NAMES_BYTES];
        let length = match llistxattr(path, &mut names[..]) {
            Ok(length) => length,
            Err(rustix::io::Errno::RANGE) => {
                return Self {
                    lost: Some("of many".to_owned()),
                    ..Self::default()
                };
            }
            Err(_) => 0,
        };
        let mut attributes = Self::default();
        for name in names[..length].split(|byte| *byte == 0) {
            let name = String::from_utf8_lossy(name);
            match &*name {
                "" => {}
                NAME => {
                    let mut value = [0; 32];
                    let length = lgetxattr(path, NAME, &mut value[..]).unwrap_or(0);
                    attributes.add(NAME, &value[..length]);
                }
                other => attributes.add(other, &[]),
            }
        }
        attributes
    }

    /// Adds one.
    pub(crate) fn add(&mut self, name: &str, value: &[u8]) {
        let is_hosts = OF_THE_HOST.iter().any(|own| name.starts_with(own));
        match FileCapability::parse(value).filter(|_| name == NAME) {
            Some(capability) => self.capability = Some(capability),
            None if is_hosts => {}
            None => {
                self.lost.get_or_insert_with(|| name.to_owned());
            }
        }
    }

    /// What is lost, for a warning.
    pub(crate) fn loss(&self) -> Option<String> {
        let lost = self.lost.as_ref();
        lost.map(|name| format!("(the extended attribute {name})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cap_net_bind_service=ep`.
    const BIND: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn capabilities_are_kept_and_other_attributes_named() {
        let mut attributes = Attributes::default();
        for name in ["security.selinux", "user.one", "user.two"] {
            attributes.add(name, &BIND);
        }
        assert_eq!(attributes.capability, None);
        let loss = attributes.loss();
        assert_eq!(loss.as_deref(), Some("(the extended attribute user.one)"));
        attributes.add(NAME, &BIND);
        let kept = attributes.capability.map(|it| it.value().to_vec());
        assert_eq!(kept.as_deref(), Some(&BIND[..]));
    }

    #[test]
    fn values_of_another_form_are_no_capabilities() {
        let mut three = [0; 24];
        three[3] = 3;
        assert!(FileCapability::parse(&three).is_some());
        for value in [&BIND[..19], &three[..20], &[0; 20], &[], &[2; 24]] {
            assert_eq!(FileCapability::parse(value), None);
        }
    }
}
