//! Tasks and programs.

use std::collections::{BTreeMap, BTreeSet};

use tare_profile::{Call, Task};

use super::calls;
use super::record::TaskRecord;

/// Most tasks that are listed one by one; of others only the names stay, with
/// their calls.
const MOST: usize = 65_536;

/// Tasks seen so far.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    programs: BTreeMap<u32, String>,
    ended: Vec<Task>,
    callers: BTreeMap<u32, BTreeSet<String>>,
    unlisted: u64,
}

impl Tasks {
    /// The program with this number.
    pub(super) fn program(&mut self, number: u32, path: String) {
        self.programs.insert(number, path);
    }

    /// A task ended or changed its name.
    pub(super) fn add(&mut self, record: TaskRecord) {
        for (word, bits) in record.made.iter().enumerate() {
            for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                let number = word as u32 * 64 + bit;
                let names = self.callers.entry(number).or_default();
                if !names.contains(&record.comm) {
                    names.insert(record.comm.clone());
                }
            }
        }
        if !record.ended {
            return;
        }
        if self.ended.len() == MOST {
            self.unlisted += 1;
            return;
        }
        self.ended.push(Task {
            pid: record.tgid,
            tid: record.tid,
            name: record.comm,
            program: self
                .programs
                .get(&record.program)
                .cloned()
                .unwrap_or_default(),
            calls: record.calls,
        });
    }

    /// Names the tasks of each call; gives the tasks in the order of their
    /// numbers, and how many are not listed.
    pub(super) fn finish(mut self, all: &mut BTreeMap<String, Call>) -> (Vec<Task>, u64) {
        for (number, names) in self.callers {
            if let Some(call) = all.get_mut(&calls::name(number)) {
                call.tasks = names.into_iter().collect();
            }
        }
        self.ended.sort_by_key(|task| (task.pid, task.tid));
        (self.ended, self.unlisted)
    }
}
