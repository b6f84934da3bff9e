//! How many of the owned tables were evaluated with success, cycle by cycle (R5.1, R5.2).

use alloc::{collections::BTreeMap, collections::BTreeSet, string::String};

/// The five numbers of R5.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Owned tables without a successful evaluation yet.
    pub never_evaluated: u64,
    /// Age of the last success of the table that waits longest, seconds. One that was never evaluated
    /// counts from when it was first owned.
    pub oldest_success_age_seconds: u64,
    /// Tables of the cycle that are still owned.
    pub cycle_target: u64,
    /// Those of them that have not been evaluated in it.
    pub cycle_pending: u64,
    /// Cycles in which every table was.
    pub cycles_completed_total: u64,
}

impl Coverage {
    /// Each number by its metric's name.
    pub fn metrics(&self) -> [(&'static str, u64); 5] {
        [
            ("lance_agent_coverage_never_evaluated", self.never_evaluated),
            ("lance_agent_coverage_oldest_success_age_seconds", self.oldest_success_age_seconds),
            ("lance_agent_coverage_cycle_target", self.cycle_target),
            ("lance_agent_coverage_cycle_pending", self.cycle_pending),
            ("lance_agent_coverage_cycles_completed_total", self.cycles_completed_total),
        ]
    }
}

/// The cycle in progress, or the one that ended last.
#[derive(Debug, Default)]
pub(super) struct Cycles {
    /// The frozen target, less what left it, and what of it is covered.
    target: BTreeMap<String, bool>,
    pending: u64,
    completed: u64,
}

impl Cycles {
    /// Begins the next cycle with the tables owned now, where none is in progress.
    pub(super) fn begin<'a>(&mut self, owned: impl Iterator<Item = &'a String>) {
        if self.pending == 0 {
            self.target = owned.map(|table| (table.clone(), false)).collect();
            self.pending = self.target.len() as u64;
        }
    }

    /// A table that joined after the beginning is no part of this cycle.
    pub(super) fn covered(&mut self, table: &str) {
        let Some(covered) = self.target.get_mut(table).filter(|covered| !**covered) else { return };
        *covered = true;
        self.pending -= 1;
        self.completed += u64::from(self.pending == 0);
    }

    /// What is no longer owned leaves the target and counts for nothing. A cycle that everything left
    /// ends without counting; one of which only covered tables are left is complete.
    pub(super) fn retain(&mut self, owned: &BTreeSet<String>) {
        let was_pending = self.pending;
        self.target.retain(|table, _| owned.contains(table));
        self.pending = self.target.values().filter(|covered| !**covered).count() as u64;
        self.completed += u64::from(was_pending > 0 && self.pending == 0 && !self.target.is_empty());
    }

    pub(super) fn numbers(&self) -> Coverage {
        Coverage {
            cycle_target: self.target.len() as u64,
            cycle_pending: self.pending,
            cycles_completed_total: self.completed,
            ..Coverage::default()
        }
    }
}
