//! Counters that a device owns and any thread may read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that counts. Shared by `Arc`, so that the control thread reads
/// without the device's mutex.
pub trait CounterSource: Send + Sync {
    /// All counters by name; names never change, values only grow.
    fn snapshot(&self) -> BTreeMap<String, u64>;
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a struct of [`Counter`]s with its [`CounterSource`].
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* $field:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub struct $name { $($(#[$field_meta])* pub $field: $crate::counters::Counter,)+ }

        impl $name {
            /// The counters' names, in order of declaration.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];
        }

        impl $crate::counters::CounterSource for $name {
            fn snapshot(&self) -> std::collections::BTreeMap<String, u64> {
                std::collections::BTreeMap::from([
                    $((stringify!($field).to_owned(), self.$field.get())),+
                ])
            }
        }
    };
}
pub(crate) use counters;
