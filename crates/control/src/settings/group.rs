//! A group of settings, written once: the values in force, a change of some of
//! them, and the words for people.

use std::fmt::Display;
use std::str::FromStr;

use crate::config::{DiskCoalesce, NoCoalesce};

/// Makes two types from one list: the group as it is, and a change to it, in
/// which every setting may be absent. A setting is `key: type`, its key as in
/// `tare set` after the group's name, its comment the meaning that is printed.
macro_rules! group {
    ($(#[$about:meta])* $name:ident, $change:ident {
        $($(#[doc = $meaning:literal])+ $key:literal $field:ident: $type:ty,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($(#[doc = $meaning])+ pub $field: $type,)+ }

        /// A change to it: what is absent stays as it is.
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $change {
            $(
                $(#[doc = $meaning])+
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )+
        }

        impl $name {
            /// The group with a change made to it.
            #[must_use]
            pub fn changed(&self, change: &$change) -> Self {
                let now = self.clone();
                Self { $($field: change.$field.clone().unwrap_or(now.$field),)+ }
            }

            /// Key, value and meaning of each setting.
            pub fn rows(&self) -> Vec<(&'static str, String, &'static str)> {
                vec![$(($key, self.$field.to_string(), concat!($($meaning),+).trim()),)+]
            }
        }

        impl $change {
            /// Adds the setting that `key` names, with its value as text.
            pub fn set(
                &mut self,
                key: &str,
                value: &str,
            ) -> Result<(), $crate::settings::SettingsError> {
                match key {
                    $($key => {
                        let value = $crate::settings::group::FromWord::from_word(value);
                        self.$field = Some(value.map_err($crate::settings::SettingsError::Value)?);
                    })+
                    _ => return Err($crate::settings::SettingsError::NoSuchKey),
                }
                Ok(())
            }
        }
    };
}

pub(super) use group;

/// A value as `tare set` takes it; an error quotes the text.
pub(super) trait FromWord: Sized {
    fn from_word(word: &str) -> Result<Self, String>;
}

impl FromWord for u32 {
    fn from_word(word: &str) -> Result<Self, String> {
        number(word, Self::MAX)
    }
}

impl FromWord for u64 {
    fn from_word(word: &str) -> Result<Self, String> {
        number(word, Self::MAX)
    }
}

impl FromWord for DiskCoalesce {
    fn from_word(word: &str) -> Result<Self, String> {
        word.parse().map_err(|error: NoCoalesce| error.to_string())
    }
}

fn number<T: FromStr + Display>(word: &str, most: T) -> Result<T, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is not a whole number up to {most}"))
}
