//! Tables whose jobs wait or run: a bounded number at once, a table's jobs one after the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use planner::job::JobSpec;

use super::probe::Seen;

/// The due jobs of one evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) table: String,
    pub(super) jobs: Vec<JobSpec>,
    /// The state they were planned for.
    pub(super) seen: Seen,
}

/// What waits and what runs.
#[derive(Debug)]
pub(super) struct Work {
    at_once: usize,
    waiting: VecDeque<Batch>,
    open: BTreeSet<String>,
    running: usize,
    /// Of each table the last batch that went well, while nothing has changed since.
    fruitless: BTreeMap<String, Batch>,
}

impl Work {
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            at_once: at_once.max(1),
            waiting: VecDeque::new(),
            open: BTreeSet::new(),
            running: 0,
            fruitless: BTreeMap::new(),
        }
    }

    /// Takes a batch on, behind those that wait. Not where the table's jobs are open already: their
    /// end asks again. Nor where the same jobs went well on the same state: they change nothing.
    pub(super) fn add(&mut self, batch: Batch) -> Added {
        if batch.jobs.is_empty() || self.open.contains(&batch.table) {
            return Added::Not;
        }
        if self.fruitless.get(&batch.table) == Some(&batch) {
            return Added::Fruitless;
        }
        self.fruitless.remove(&batch.table);
        self.open.insert(batch.table.clone());
        self.waiting.push_back(batch);
        Added::Queued
    }

    /// The next batch to run, where there is a place.
    pub(super) fn next(&mut self) -> Option<Batch> {
        if self.running >= self.at_once {
            return None;
        }
        let batch = self.waiting.pop_front()?;
        self.running += 1;
        Some(batch)
    }

    /// A batch has ended.
    pub(super) fn ended(&mut self, batch: Batch, well: bool) {
        self.running -= 1;
        self.open.remove(&batch.table);
        if well {
            self.fruitless.insert(batch.table.clone(), batch);
        }
    }

    /// Whether jobs of the table wait or run.
    pub(super) fn is_open(&self, table: &str) -> bool {
        self.open.contains(table)
    }

    /// A sweep looks at everything anew.
    pub(super) fn swept(&mut self, table: &str) {
        self.fruitless.remove(table);
    }

    /// Jobs of a table that is gone don't begin.
    pub(super) fn retain(&mut self, owned: &BTreeSet<String>) {
        let open = &mut self.open;
        self.waiting.retain(|batch| {
            let stays = owned.contains(&batch.table);
            if !stays {
                open.remove(&batch.table);
            }
            stays
        });
        self.fruitless.retain(|table, _| owned.contains(table));
    }

    /// How many batches wait, and how many run.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.waiting.len(), self.running)
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Queued,
    Not,
    Fruitless,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(table: &str, jobs: usize) -> Batch {
        let jobs = (0..jobs).map(|n| JobSpec::Remap { indexes: vec![n.to_string()] }).collect();
        Batch { table: table.into(), jobs, seen: Seen::default() }
    }

    #[test]
    fn a_table_s_jobs_are_taken_on_once_and_tables_run_a_bounded_number_at_once() {
        let mut work = Work::new(2);
        assert_eq!(["a", "a", "b", "c"].map(|t| work.add(batch(t, 1))), {
            use Added::{Not, Queued};
            [Queued, Not, Queued, Queued]
        });
        let first = work.next().expect("there is a place");
        assert!(work.next().is_some() && work.next().is_none());
        assert_eq!((work.add(batch("a", 2)), work.counts()), (Added::Not, (1, 2)));
        work.ended(first, false);
        assert_eq!(work.next().expect("a place was freed").table, "c");
    }

    #[test]
    fn jobs_that_went_well_and_changed_nothing_wait_for_a_change_or_the_sweep() {
        let mut work = Work::new(1);
        let run = |work: &mut Work, well| {
            let added = work.add(batch("a", 1));
            if added == Added::Queued {
                let next = work.next().expect("it waits");
                work.ended(next, well);
            }
            added
        };
        assert_eq!([run(&mut work, false), run(&mut work, true)], [Added::Queued; 2], "a failure is tried again");
        assert_eq!(run(&mut work, true), Added::Fruitless);
        work.swept("a");
        assert_eq!(run(&mut work, true), Added::Queued);
        let changed = Batch { seen: Seen::default(), ..batch("a", 2) };
        assert_eq!(work.add(changed), Added::Queued);
    }

    #[test]
    fn jobs_of_a_table_that_is_gone_do_not_begin() {
        let mut work = Work::new(1);
        work.add(batch("a", 1));
        work.retain(&BTreeSet::new());
        assert_eq!((work.next(), work.add(batch("a", 1))), (None, Added::Queued));
    }
}
