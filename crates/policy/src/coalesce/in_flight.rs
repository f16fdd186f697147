//! Requests that the backend has, by class.

use super::RequestKind;

/// Requests submitted and not completed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight {
    classes: [u32; 3],
}

/// Classes that are counted apart.
#[derive(Clone, Copy)]
enum Class {
    Reads,
    Writes,
    Others,
}

impl InFlight {
    pub(super) const fn add(&mut self, kind: RequestKind) {
        let class = &mut self.classes[class(kind) as usize];
        *class = class.saturating_add(1);
    }

    /// Takes one out; `false` if there was none of its class.
    pub(super) const fn remove(&mut self, kind: RequestKind) -> bool {
        let class = &mut self.classes[class(kind) as usize];
        let some = *class > 0;
        *class -= some as u32;
        some
    }

    pub(super) const fn reads(&self) -> u32 {
        self.classes[Class::Reads as usize]
    }

    pub(super) const fn writes(&self) -> u32 {
        self.classes[Class::Writes as usize]
    }

    pub(super) const fn total(&self) -> u64 {
        let [reads, writes, others] = self.classes;
        reads as u64 + writes as u64 + others as u64
    }
}

const fn class(kind: RequestKind) -> Class {
    match kind {
        RequestKind::Read => Class::Reads,
        RequestKind::Write | RequestKind::WriteThrough => Class::Writes,
        RequestKind::Flush | RequestKind::Control => Class::Others,
    }
}
