//! Whose turn it is: each table at most once at a time, failing ones less and less often.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::catalog::TableRef;
use crate::read::Depth;

/// Wait after the first failure; it doubles up to the sweep interval (SPEC section 7).
const BACKOFF: Duration = Duration::from_secs(60);

/// How an evaluation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing was due.
    Quiet,
    /// The table was changed: more may be due now (R3.1). It goes to the end of the queue, so that
    /// a busy table can't starve others (R3.2).
    Worked,
    /// Something went wrong.
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    Idle,
    Waiting,
    Running,
}

/// What is known of one table between its evaluations. Nothing is decided from it (R3.3).
#[derive(Debug, Default)]
struct Watch {
    /// At most one evaluation a table at a time (R3.2).
    turn: Turn,
    /// When its folders were last walked.
    swept: Option<Instant>,
    failures: u32,
    not_before: Option<Instant>,
}

/// Tables that wait for their turn, first come, first served.
#[derive(Debug)]
pub(super) struct Rota {
    sweep: Duration,
    watches: BTreeMap<TableRef, Watch>,
    waiting: VecDeque<TableRef>,
}

impl Rota {
    pub(super) fn new(sweep: Duration) -> Self {
        Self { sweep, watches: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// Takes the catalogue as listed now: queues every table that is idle and not backing off,
    /// forgets those that are gone. With `sweep_only` only tables whose sweep is due are queued.
    pub(super) fn listed(&mut self, tables: Vec<TableRef>, sweep_only: bool, now: Instant) {
        let mut known = std::mem::take(&mut self.watches);
        for table in tables {
            let mut watch = known.remove(&table).unwrap_or_default();
            let backs_off = watch.not_before.is_some_and(|until| now < until);
            let wanted = !sweep_only || due(watch.swept, self.sweep, now);
            if wanted && watch.turn == Turn::Idle && !backs_off {
                watch.turn = Turn::Waiting;
                self.waiting.push_back(table.clone());
            }
            self.watches.insert(table, watch);
        }
        self.waiting.retain(|table| self.watches.contains_key(table));
        // One that is gone and still runs is kept to its end: it may come back before.
        self.watches.extend(known.into_iter().filter(|(_, watch)| watch.turn == Turn::Running));
    }

    /// The next table to evaluate, and how deep.
    pub(super) fn next(&mut self, now: Instant) -> Option<(TableRef, Depth)> {
        let table = self.waiting.pop_front()?;
        let watch = self.watches.entry(table.clone()).or_default();
        watch.turn = Turn::Running;
        if !due(watch.swept, self.sweep, now) {
            return Some((table, Depth::Fold));
        }
        watch.swept = Some(now);
        Some((table, Depth::Garbage))
    }

    /// Takes the end of an evaluation. Returns how long a failing table now waits.
    pub(super) fn ended(&mut self, table: &TableRef, end: End, now: Instant) -> Duration {
        let Some(watch) = self.watches.get_mut(table) else { return Duration::ZERO };
        watch.turn = Turn::Idle;
        if end != End::Failed {
            watch.failures = 0;
            watch.not_before = None;
            if end == End::Worked {
                watch.turn = Turn::Waiting;
                self.waiting.push_back(table.clone());
            }
            return Duration::ZERO;
        }
        watch.failures = watch.failures.saturating_add(1);
        let wait = backoff(watch.failures, self.sweep);
        watch.not_before = Some(now + wait);
        // A walk that failed is made up for by the next evaluation.
        watch.swept = None;
        wait
    }

    /// How often a table has failed in a row.
    pub(super) fn failures(&self, table: &TableRef) -> u32 {
        self.watches.get(table).map_or(0, |watch| watch.failures)
    }

    /// Tables in the catalogue, and those of them that fail.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.watches.len(), self.watches.values().filter(|w| w.failures > 0).count())
    }
}

/// Wait after `failures` failures in a row.
pub(super) fn backoff(failures: u32, longest: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    BACKOFF.saturating_mul(1 << doublings).min(longest)
}

fn due(swept: Option<Instant>, every: Duration, now: Instant) -> bool {
    swept.is_none_or(|at| now.duration_since(at) >= every)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: Duration = Duration::from_secs(600);
    const SECOND: Duration = Duration::from_secs(1);

    fn table(name: &str) -> TableRef {
        TableRef { name: name.into(), uri: format!("memory/{name}.lance") }
    }

    fn names(rota: &mut Rota, now: Instant) -> Vec<(String, Depth)> {
        std::iter::from_fn(|| rota.next(now)).map(|(table, depth)| (table.name, depth)).collect()
    }

    #[test]
    fn r3_2_a_table_is_not_queued_again_while_it_waits_or_runs() {
        let (mut rota, now) = (Rota::new(SWEEP), Instant::now());
        rota.listed(vec![table("a")], false, now);
        rota.listed(vec![table("a")], false, now);
        assert_eq!(names(&mut rota, now).len(), 1);
        rota.listed(vec![table("a")], false, now);
        assert!(names(&mut rota, now).is_empty(), "it still runs");
        rota.ended(&table("a"), End::Quiet, now);
        rota.listed(vec![table("a")], false, now);
        assert_eq!(names(&mut rota, now), [("a".to_string(), Depth::Fold)]);
    }

    #[test]
    fn folders_are_walked_once_a_sweep_interval() {
        let (mut rota, start) = (Rota::new(SWEEP), Instant::now());
        let depth_at = |rota: &mut Rota, now| {
            rota.listed(vec![table("a")], false, now);
            let depth = names(rota, now)[0].1;
            rota.ended(&table("a"), End::Quiet, now);
            depth
        };
        assert_eq!(depth_at(&mut rota, start), Depth::Garbage);
        assert_eq!(depth_at(&mut rota, start + SWEEP - SECOND), Depth::Fold);
        assert_eq!(depth_at(&mut rota, start + SWEEP), Depth::Garbage);
    }

    #[test]
    fn r2_1_without_a_walk_only_the_sweep_visits_tables() {
        let (mut rota, start) = (Rota::new(SWEEP), Instant::now());
        rota.listed(vec![table("a")], true, start);
        assert_eq!(names(&mut rota, start).len(), 1);
        rota.ended(&table("a"), End::Quiet, start);
        rota.listed(vec![table("a")], true, start + SWEEP - SECOND);
        assert!(names(&mut rota, start).is_empty());
        rota.listed(vec![table("a")], true, start + SWEEP);
        assert_eq!(names(&mut rota, start + SWEEP).len(), 1);
    }

    #[test]
    fn a_failing_table_backs_off_and_stops_no_other() {
        let (mut rota, now) = (Rota::new(SWEEP), Instant::now());
        let both = || vec![table("bad"), table("good")];
        rota.listed(both(), false, now);
        names(&mut rota, now);
        assert_eq!(rota.ended(&table("bad"), End::Failed, now), BACKOFF);
        assert_eq!(rota.failures(&table("bad")), 1);
        rota.ended(&table("good"), End::Quiet, now);
        assert_eq!(rota.counts(), (2, 1));
        let soon = now + BACKOFF - SECOND;
        rota.listed(both(), false, soon);
        assert_eq!(names(&mut rota, soon), [("good".to_string(), Depth::Fold)]);
        let later = now + BACKOFF;
        rota.listed(both(), false, later);
        assert_eq!(names(&mut rota, later), [("bad".to_string(), Depth::Garbage)]);
    }

    #[test]
    fn r3_2_a_table_that_was_changed_is_looked_at_again_after_the_others() {
        let (mut rota, now) = (Rota::new(SWEEP), Instant::now());
        rota.listed(vec![table("hot"), table("other")], false, now);
        assert_eq!(rota.next(now).map(|(table, _)| table.name).as_deref(), Some("hot"));
        rota.ended(&table("hot"), End::Worked, now);
        let order: Vec<String> = names(&mut rota, now).into_iter().map(|(name, _)| name).collect();
        assert_eq!(order, ["other", "hot"]);
    }

    #[test]
    fn the_wait_doubles_from_a_minute_to_the_sweep_interval() {
        let waits: Vec<u64> = (1..=6).map(|n| backoff(n, SWEEP).as_secs()).collect();
        assert_eq!(waits, [60, 120, 240, 480, 600, 600]);
        assert_eq!(backoff(u32::MAX, SWEEP), SWEEP);
    }

    #[test]
    fn a_table_that_disappears_is_forgotten() {
        let (mut rota, now) = (Rota::new(SWEEP), Instant::now());
        rota.listed(vec![table("a"), table("b")], false, now);
        rota.listed(vec![table("b")], false, now);
        assert_eq!(names(&mut rota, now), [("b".to_string(), Depth::Garbage)]);
        rota.listed(vec![], false, now);
        rota.listed(vec![table("b")], false, now);
        assert!(names(&mut rota, now).is_empty(), "`b` came back while its evaluation still ran");
        assert_eq!(rota.ended(&table("a"), End::Failed, now), Duration::ZERO);
        rota.listed(vec![], false, now);
        rota.ended(&table("b"), End::Quiet, now);
        rota.listed(vec![], false, now);
        assert_eq!(rota.counts(), (0, 0));
    }
}
