//! What the loop remembers of a table.

use std::collections::BTreeMap;

use planner::facts::FailedFacts;
use planner::job::JobSpec;
use planner::policy::{AgentPolicy, Refused};

use super::probe::Seen;
use crate::catalog::TableRef;

/// What is kept of a table between its evaluations. Nothing is decided from it (R3.3): it says when to look.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) table: TableRef,
    /// As the last successful evaluation saw it.
    pub(super) seen: Option<Seen>,
    /// When time alone makes something due.
    pub(super) wake_at_ms: Option<u64>,
    /// When its folders were last walked.
    pub(super) walked_at_ms: Option<u64>,
    pub(super) failed: Vec<FailedFacts>,
    /// No job begins before: an end could not be written down.
    pub(super) held_until_ms: u64,
    pub(super) failures: u64,
    /// By type of job: races lost in a row, and until when the next such job waits.
    pub(super) lost: BTreeMap<String, (u64, u64)>,
    /// Keys of the table's config that can't be followed.
    pub(super) complaints: Vec<Refused>,
    /// Digest of what the last evaluation was decided by.
    pub(super) policy: String,
}

impl Watched {
    pub(super) fn new(table: TableRef) -> Self {
        Self {
            table,
            seen: None,
            wake_at_ms: None,
            walked_at_ms: None,
            failed: Vec::new(),
            held_until_ms: 0,
            failures: 0,
            lost: BTreeMap::new(),
            complaints: Vec::new(),
            policy: String::new(),
        }
    }

    /// Until when a job waits, after failures or lost races.
    pub(super) fn waits_until(&self, job: &JobSpec, policy: &AgentPolicy) -> u64 {
        let failing = failing_until(job, &self.failed, policy).unwrap_or(0);
        let lost = self.lost.get(&job.kind()).map_or(0, |(_, until)| *until);
        self.held_until_ms.max(failing).max(lost)
    }

    /// One lost race is worth another try at once. Who loses again and again, as a rewrite does beside
    /// somebody who always deletes from the same fragments, waits longer each time: what is thrown away
    /// costs more than the delay.
    ///
    /// What somebody cancelled does not come back with the next evaluation, but with the next sweep.
    pub(super) fn raced(&mut self, kind: &str, outcome: &str, policy: &AgentPolicy, now: u64) {
        if outcome == "cancelled" {
            self.lost.insert(kind.to_string(), (0, now.saturating_add(policy.sweep_ms)));
            return;
        }
        if outcome != "superseded" {
            self.lost.remove(kind);
            return;
        }
        let (times, until) = self.lost.entry(kind.to_string()).or_default();
        *times += 1;
        *until = now.saturating_add(policy.backoff_after(*times - 1));
    }
}

/// Until when jobs of this kind wait after failures. The planner holds the base's own back by itself
/// (cleanup by R4.4); those of shards it leaves to whoever runs them.
fn failing_until(job: &JobSpec, failed: &[FailedFacts], policy: &AgentPolicy) -> Option<u64> {
    if matches!(job, JobSpec::Cleanup { .. }) {
        return None;
    }
    let kind = job.kind();
    let failed = failed.iter().find(|failed| failed.kind == kind)?;
    Some(failed.last_at_ms.saturating_add(policy.backoff_after(failed.times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_race_is_tried_again_at_once_and_then_less_and_less_often() {
        let policy = AgentPolicy::default();
        let mut watched = Watched::new(TableRef { name: "a".into(), uri: "a.lance".into() });
        let remap = JobSpec::Remap { indexes: Vec::new() };
        let mut waits = |outcome: &str| {
            watched.raced("remap", outcome, &policy, 1_000);
            watched.waits_until(&remap, &policy)
        };
        assert_eq!(["superseded"; 3].map(&mut waits), [1_000, 61_000, 121_000]);
        assert_eq!(["done", "superseded"].map(&mut waits), [0, 1_000]);
        assert_eq!(["cancelled", "done"].map(&mut waits), [1_000 + policy.sweep_ms, 0]);
    }

    #[test]
    fn a_kind_that_fails_waits_longer_each_time_and_cleanup_has_its_own_rule() {
        let policy = AgentPolicy::default();
        let failed = |kind: &str, times| vec![FailedFacts { kind: kind.into(), times, last_at_ms: 1_000 }];
        let remap = JobSpec::Remap { indexes: Vec::new() };
        let until = |times| failing_until(&remap, &failed("remap", times), &policy);
        assert_eq!((until(1), until(2)), (Some(61_000), Some(121_000)));
        assert_eq!(failing_until(&remap, &failed("compact", 1), &policy), None);
    }
}
