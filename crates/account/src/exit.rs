//! Exits of one kind: how many, and what they cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ExitKind;

/// Exits of one kind within the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitCount {
    /// What the guest did.
    pub kind: ExitKind,
    /// How often.
    pub count: u64,
    /// By how much that may be off, 19 times of 20, where a part of the window was counted
    /// ([`Account::counted_share`](crate::Account)); `None`: not known.
    #[serde(default)]
    pub margin: Option<u64>,
    /// What it cost, where it can be known.
    pub cost: Option<Cost>,
}

/// Host CPU time of exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// On-CPU time from leaving the guest to entering it again, of all of them
    /// together, ns.
    pub total_ns: u64,
    /// How it is known.
    pub basis: CostBasis,
}

/// How a cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostBasis {
    /// Each exit was timed from `kvm_exit` to `kvm_entry`.
    Measured,
    /// Share of a whole that was measured, by the number of exits.
    Apportioned,
}

impl ExitCount {
    /// Sums by kind, most frequent first. The cost is that of those exits whose
    /// cost is known, with the weaker basis.
    pub fn merged<'a>(counts: impl IntoIterator<Item = &'a Self>) -> Vec<Self> {
        let mut by_kind: BTreeMap<ExitKind, Self> = BTreeMap::new();
        for count in counts {
            by_kind
                .entry(count.kind.clone())
                .and_modify(|sum| sum.absorb(count))
                .or_insert_with(|| count.clone());
        }
        let mut merged: Vec<_> = by_kind.into_values().collect();
        merged.sort_by_key(|count| std::cmp::Reverse(count.count));
        merged
    }

    fn absorb(&mut self, other: &Self) {
        self.count += other.count;
        self.margin = self.margin.zip(other.margin).map(|(a, b)| a + b);
        self.cost = match (self.cost, other.cost) {
            (Some(a), Some(b)) => Some(Cost {
                total_ns: a.total_ns + b.total_ns,
                basis: a.basis.max(b.basis),
            }),
            (a, b) => a.or(b),
        };
    }
}
