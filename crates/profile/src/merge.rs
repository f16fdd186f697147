//! Several observations as one.

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
trait Counted: Clone + Ord {
    fn count(&mut self) -> &mut u64;

    fn is_same_use(&self, other: &Self) -> bool {
        let (mut mine, mut others) = (self.clone(), other.clone());
        *mine.count() = 0;
        *others.count() = 0;
        mine == others
    }
}

macro_rules! counted {
    ($($kind:ty),*) => {$(
        impl Counted for $kind {
            fn count(&mut self) -> &mut u64 {
                &mut self.count
            }
        }
    )*};
}

counted!(
    SocketUse, OptionUse, FileUse, IoctlUse, CloneUse, PrctlUse, MountUse, FlagsUse
);

fn add<T: Counted>(mine: &mut Vec<T>, others: &[T]) {
    for other in others {
        let mut other = other.clone();
        match mine.iter_mut().find(|one| one.is_same_use(&other)) {
            Some(one) => *one.count() = one.count().saturating_add(*other.count()),
            None => mine.push(other),
        }
    }
    mine.sort_unstable();
}

fn unite(mine: &mut Vec<String>, others: &[String]) {
    mine.extend_from_slice(others);
    mine.sort_unstable();
    mine.dedup();
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
