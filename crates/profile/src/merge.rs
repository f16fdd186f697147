//! Several observations as one.

use std::cmp::Ordering;

use crate::Profile;
use crate::call::Call;
use crate::features::{
    CloneUse, Features, FileUse, FlagsUse, IoctlUse, MountUse, OptionUse, PrctlUse, SocketUse,
};

impl Profile {
    /// Adds what another profile saw. Counts add up, times are those of all
    /// samples, an argument stays constant only if both saw the same value.
    pub fn merge(&mut self, other: &Self) {
        self.phases.extend_from_slice(&other.phases);
        self.tasks.extend_from_slice(&other.tasks);
        for (name, call) in &other.calls {
            match self.calls.get_mut(name) {
                Some(mine) => mine.merge(call),
                None => {
                    self.calls.insert(name.clone(), call.clone());
                }
            }
        }
        self.features.merge(&other.features);
        for (path, asked) in &other.paths {
            self.paths.entry(path.clone()).or_default().extend(asked);
        }
        unite(&mut self.modules, &other.modules);
        unite(&mut self.devices, &other.devices);
        unite(&mut self.unavailable, &other.unavailable);
    }
}

impl Call {
    /// Adds what another observation saw of the same call.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        for (error, count) in &other.errors {
            let mine = self.errors.entry(error.clone()).or_default();
            *mine = mine.saturating_add(*count);
        }
        self.time.merge(&other.time);
        for (position, argument) in other.arguments.iter().enumerate() {
            match self.arguments.get_mut(position) {
                Some(mine) => *mine = mine.merge(*argument),
                None => self.arguments.push(*argument),
            }
        }
        unite(&mut self.tasks, &other.tasks);
    }
}

impl Features {
    /// Adds what another observation saw.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.sockets, &other.sockets);
        add(&mut self.socket_options, &other.socket_options);
        add(&mut self.files, &other.files);
        add(&mut self.ioctls, &other.ioctls);
        add(&mut self.clones, &other.clones);
        add(&mut self.prctls, &other.prctls);
        add(&mut self.mounts, &other.mounts);
        add(&mut self.flags, &other.flags);
    }
}

/// A use with its own count.
trait Counted: Clone {
    fn count(&mut self) -> &mut u64;

    /// By everything but the count.
    fn compare(&self, other: &Self) -> Ordering;
}

macro_rules! counted {
    ($($kind:ident { $($field:ident),* })*) => {$(
        impl Counted for $kind {
            fn count(&mut self) -> &mut u64 {
                &mut self.count
            }

            fn compare(&self, other: &Self) -> Ordering {
                // Without `..`: a new field is part of the comparison.
                let Self { $($field,)* count: _ } = self;
                Ordering::Equal$(.then_with(|| $field.cmp(&other.$field)))*
            }
        }
    )*};
}

counted! {
    SocketUse { family, kind, protocol }
    OptionUse { level, name }
    FileUse { file_system, path }
    IoctlUse { request }
    CloneUse { flags }
    PrctlUse { operation }
    MountUse { file_system }
    FlagsUse { call, flags }
}

/// Neither list needs to be sorted or free of twins: a profile that is read may be neither, and a list
/// may have as many uses as fit into its file.
fn add<T: Counted>(mine: &mut Vec<T>, others: &[T]) {
    mine.extend_from_slice(others);
    // A stable sort merges two sorted lists in one pass.
    mine.sort_by(T::compare);
    mine.dedup_by(|next, kept| {
        let is_same = kept.compare(next).is_eq();
        if is_same {
            *kept.count() = kept.count().saturating_add(*next.count());
        }
        is_same
    });
}

fn unite(mine: &mut Vec<String>, others: &[String]) {
    mine.extend_from_slice(others);
    mine.sort_unstable();
    mine.dedup();
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
