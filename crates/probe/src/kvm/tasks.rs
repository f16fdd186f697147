//! Times of all threads of the observed machines in one reading: the iterator of
//! `bpf/tasks.bpf.h`. Where the kernel refuses it, the threads' files are read instead.

use std::collections::HashMap;

use super::events::COUNTED_WORDS;
use super::scale::Counted;
use crate::Unavailable;
use crate::bpf::Object;

const PROGRAM: &str = "on_task";
/// Map of the processes whose tasks are read.
pub(super) const OWNERS: &str = "owners";
/// Words of `struct task_record`.
const WORDS: usize = 20 + COUNTED_WORDS;
const BYTES: usize = WORDS * 8;

/// A task as the kernel accounts it, times in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) tid: u32,
    /// Its process.
    pub(super) tgid: u32,
    pub(super) cpu: u32,
    /// Since boot: distinguishes it from a later task of the same ID.
    pub(super) started_ns: u64,
    pub(super) run_ns: u64,
    /// Waits for a CPU that have ended.
    pub(super) wait_ns: u64,
    /// When the wait began that has not ended, by the scheduler's clock; 0 for none.
    pub(super) queued_ns: u64,
    /// User mode, the guest's included, and kernel mode: as the ticks found it.
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    pub(super) guest_ns: u64,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
    pub(super) migrations: u64,
    pub(super) faults: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    /// Its group of the `cpu` controller; 0 in none.
    pub(super) group: u64,
    pub(super) comm: String,
    /// The time of it in which events were counted.
    pub(super) counted: Counted,
}

/// Tasks by the machine's process that they work for.
pub(super) type ByOwner = HashMap<u32, Vec<Task>>;

/// Loads the iterator; an error where this kernel refuses it, or shows other process IDs
/// than this process sees (in a PID namespace).
pub(super) fn load(object: &mut Object) -> Result<(), Unavailable> {
    object.load_iterator(PROGRAM, "task")?;
    let own = std::process::id();
    own_by(object, own, own)?;
    let sees_itself = sweep(object)?.contains_key(&own);
    object.remove_number(OWNERS, own);
    let why = "this PID namespace has other process IDs than the kernel";
    sees_itself
        .then_some(())
        .ok_or_else(|| Unavailable::named(crate::Source::Bpf, PROGRAM, why))
}

/// Reads the tasks of process `tgid` for the machine of process `owner` from now on.
pub(super) fn own_by(object: &mut Object, tgid: u32, owner: u32) -> Result<(), Unavailable> {
    object.insert_number(OWNERS, tgid, owner)
}

/// No more, for a machine.
pub(super) fn disown(object: &mut Object, tgids: impl Iterator<Item = u32>) {
    for tgid in tgids {
        object.remove_number(OWNERS, tgid);
    }
}

/// All tasks of all machines.
pub(super) fn sweep(object: &mut Object) -> Result<ByOwner, Unavailable> {
    let bytes = object.iterate(PROGRAM)?;
    let mut found = ByOwner::new();
    for record in bytes.chunks_exact(BYTES) {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(record.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        let (owner, task) = Task::of(&words);
        found.entry(owner).or_default().push(task);
    }
    Ok(found)
}

impl Task {
    /// From a record, with its owner.
    fn of(words: &[u64; WORDS]) -> (u32, Self) {
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let [ids, places, started_ns, run_ns, rest @ ..] = *words;
        let [wait_ns, queued_ns, rest @ ..] = rest;
        let [user_ns, system_ns, guest_ns, rest @ ..] = rest;
        let [voluntary, involuntary, migrations, minor, major, rest @ ..] = rest;
        let [
            read_bytes,
            written_bytes,
            group,
            name_low,
            name_high,
            rest @ ..,
        ] = rest;
        let [slice, counted @ ..] = rest;
        let task = Self {
            tid: low(ids),
            tgid: high(ids),
            cpu: high(places),
            started_ns,
            run_ns,
            wait_ns,
            queued_ns,
            user_ns,
            system_ns,
            guest_ns,
            voluntary,
            involuntary,
            migrations,
            faults: minor + major,
            read_bytes,
            written_bytes,
            group,
            comm: comm([name_low, name_high]),
            counted: Counted::of(slice, counted),
        };
        (low(places), task)
    }

    /// Time in user mode (with the guest) and in the kernel, which together are the time on
    /// a CPU: ticks say the proportion only. Neither becomes less than it was `before`, since
    /// their differences are to add up too (`cputime_adjust` in kernel/sched/cputime.c).
    pub(super) fn adjusted(&self, before: (u64, u64)) -> (u64, u64) {
        let (user_before, system_before) = before;
        if user_before.saturating_add(system_before) >= self.run_ns {
            return before;
        }
        let sampled = u128::from(self.user_ns) + u128::from(self.system_ns);
        let system = u128::from(self.run_ns) * u128::from(self.system_ns);
        let system = system.checked_div(sampled).unwrap_or(0);
        let system = u64::try_from(system)
            .unwrap_or(u64::MAX)
            .clamp(system_before, self.run_ns - user_before);
        (self.run_ns - system, system)
    }
}

fn comm(words: [u64; 2]) -> String {
    let bytes = words.map(u64::to_ne_bytes).concat();
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_record_is_a_task_with_its_owner() {
        let mut words: [u64; WORDS] = std::array::from_fn(|word| word as u64 * 100);
        words[0] = 7 << 32 | 9;
        words[1] = 3 << 32 | 5;
        words[17] = u64::from_ne_bytes(*b"CPU 0/KV");
        words[18] = u64::from_ne_bytes(*b"M\0\0\0\0\0\0\0");
        let (owner, task) = Task::of(&words);
        assert_eq!((owner, task.tid, task.tgid, task.cpu), (5, 9, 7, 3));
        assert_eq!(
            (task.started_ns, task.run_ns, task.wait_ns, task.queued_ns),
            (200, 300, 400, 500)
        );
        assert_eq!((task.guest_ns, task.faults), (800, 1_200 + 1_300));
        assert_eq!((task.written_bytes, task.group), (1_500, 1_600));
        assert_eq!(task.comm, "CPU 0/KVM");
        let counted = task.counted;
        assert_eq!((counted.slice, counted.in_ns), (1_900, 2_000));
        assert_eq!((counted.ran_ns, counted.runs), (2_100, 2_200));
        assert_eq!(counted.weighted.groups[0], 2_900);
    }

    fn task(run_ns: u64, user_ns: u64, system_ns: u64) -> Task {
        Task {
            run_ns,
            user_ns,
            system_ns,
            ..Task::default()
        }
    }

    #[test]
    fn ticks_divide_the_time_on_a_cpu() {
        let whole = |run_ns, user_ns, system_ns| task(run_ns, user_ns, system_ns).adjusted((0, 0));
        assert_eq!(whole(1_000, 0, 0), (1_000, 0));
        assert_eq!(whole(1_000, 300, 100), (750, 250));
        assert_eq!(whole(1_000, 0, 4_000), (0, 1_000));
        assert_eq!(whole(0, 0, 0), (0, 0));
        // The ticks' proportion has shifted: the kernel's time does not go back.
        assert_eq!(task(2_000, 4_000, 0).adjusted((750, 250)), (1_750, 250));
    }

    proptest! {
        #[test]
        fn user_and_system_are_the_time_on_a_cpu_of_each_stretch(
            stretches in vec((0..=SECOND, 0..=SECOND, 0..=SECOND), 1..20),
        ) {
            let mut now = Task::default();
            let mut before = (0, 0);
            for (run_ns, user_ns, system_ns) in stretches {
                now.run_ns += run_ns;
                now.user_ns += user_ns;
                now.system_ns += system_ns;
                let after = now.adjusted(before);
                prop_assert!(after.0 >= before.0 && after.1 >= before.1, "{before:?} {after:?}");
                prop_assert_eq!(after.0 - before.0 + after.1 - before.1, run_ns);
                before = after;
            }
        }

        #[test]
        fn no_figures_of_the_kernel_overflow(run_ns: u64, user_ns: u64, system_ns: u64) {
            let (user, system) = task(run_ns, user_ns, system_ns).adjusted((0, 0));
            prop_assert_eq!(user.checked_add(system), Some(run_ns));
        }
    }
}
