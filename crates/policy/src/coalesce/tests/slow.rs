//! A slow driver before a slow disk.

use std::collections::VecDeque;

use super::*;

/// `cif` threads with a command each, which take in completions and send the
/// next commands one after the other.
pub(super) struct Slow {
    pub(super) coalescer: Coalescer,
    now_ns: u64,
    pub(super) latency_ns: u64,
    /// From a delivery to a thread's next command, for each thread in turn.
    pub(super) answer_ns: u64,
    /// When each command of the disk completes.
    disk: VecDeque<u64>,
    /// When each thread that got its completion sends its next request.
    answers: VecDeque<u64>,
}

impl Slow {
    /// One that needs half of the time between two completions for each.
    pub(super) fn new(cif: u32) -> Self {
        let latency_ns = 10 * US * u64::from(cif);
        let mut slow = Self {
            coalescer: Coalescer::new(settings(|p| p.epoch_ns = 5 * MS)),
            now_ns: MS,
            latency_ns,
            answer_ns: 5 * US,
            disk: VecDeque::new(),
            answers: VecDeque::new(),
        };
        slow.answers = (0..u64::from(cif)).map(|n| n * 10 * US).collect();
        slow
    }

    /// Until this many more completions have come.
    pub(super) fn run(&mut self, completions: u32) {
        let until = self.coalescer.counters().completions + u64::from(completions);
        while self.coalescer.counters().completions < until {
            self.event();
        }
    }

    fn event(&mut self) {
        let deadline = self.coalescer.deadline();
        let (completes, answers) = (self.disk.front(), self.answers.front());
        let nearest = [deadline, completes.copied(), answers.copied()];
        let at_ns = nearest.into_iter().flatten().min().unwrap();
        self.now_ns = self.now_ns.max(at_ns);
        let held = self.coalescer.held();
        if answers == Some(&at_ns) {
            self.answers.pop_front();
            self.coalescer.submitted(RequestKind::Read);
            self.disk.push_back(self.now_ns + self.latency_ns);
        } else if completes == Some(&at_ns) {
            self.disk.pop_front();
            if self
                .coalescer
                .completed(self.now_ns, RequestKind::Read, LONG_NS)
                == Decision::Deliver
            {
                self.told(held + 1);
            }
        } else {
            assert_eq!(self.coalescer.expired(self.now_ns), Decision::Deliver);
            self.told(held);
        }
    }

    fn told(&mut self, count: u64) {
        for _ in 0..count {
            let busy_until_ns = self.answers.back().copied().unwrap_or(0);
            let begins_ns = busy_until_ns.max(self.now_ns);
            self.answers.push_back(begins_ns + self.answer_ns);
        }
    }
}
