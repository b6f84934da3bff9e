//! How a table is, in a few numbers: what waits, what is due, what went well last.

use planner::draw;
use planner::facts::{CleanupSuccess, FailedFacts, TableFacts};
use planner::plan::{Decision, Hold, Measure, Outcome, Plan};
use serde::Serialize;

use crate::registry::LastSuccess;
use crate::report::Snapshot;

/// A table's condition in a word, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It could not be evaluated.
    Unreadable,
    /// Work that is due has failed, and has not succeeded since; or a job changed the table's answers.
    Failing,
    /// Work that is due waits for something that does not end by itself.
    Held,
    /// Its config says so: nothing but catch-up runs.
    Paused,
    /// Work waits for the next run, or is being done.
    Due,
    /// Nothing is due.
    Ok,
}

/// The index that lacks most rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lagging {
    /// Its name.
    pub index: String,
    /// Rows that no segment of it covers.
    pub rows: u64,
}

/// Due work that something holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldWork {
    /// Which decision.
    pub decision: Decision,
    /// The shard, for a shard decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// What holds it.
    #[serde(flatten)]
    pub hold: Hold,
}

/// One table at one moment; also a line of `caretaker status --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Table name.
    pub table: String,
    /// In a word.
    pub health: Health,
    /// The moment, milliseconds since the epoch.
    pub at_ms: u64,
    /// Its size, and the SSTables that are not folded or still listed.
    #[serde(flatten)]
    pub now: Snapshot,
    /// When the oldest SSTable that is not folded was flushed, milliseconds since the epoch.
    pub oldest_unfolded_at_ms: Option<u64>,
    /// The index that lacks most rows, if any lacks some.
    pub lagging: Option<Lagging>,
    /// The last cleanup that went well.
    pub last_cleanup: Option<CleanupSuccess>,
    /// The setting, or the key of the table's config, that keeps it from being cleaned (R4.1).
    pub cleanup_off: Option<String>,
    /// The last job of any kind that went well.
    pub last_success: Option<LastSuccess>,
    /// Decisions that are due, in the order of their work.
    pub due: Vec<Decision>,
    /// Decisions that would be due.
    pub held: Vec<HeldWork>,
    /// Jobs that are wanted and keep failing.
    pub failing: Vec<FailedFacts>,
    /// Keys of the table's config that can't be followed, and why.
    pub complaints: Vec<String>,
}

impl Status {
    /// The status that facts, their plan and the job registry make up.
    pub fn new(facts: &TableFacts, plan: &Plan, last_success: Option<LastSuccess>) -> Self {
        let unfolded = facts.shards.iter().flat_map(|shard| shard.unfolded());
        let lagging = facts.indexes.iter().filter_map(|i| Some((i.unindexed_rows.filter(|rows| *rows > 0)?, &i.name)));
        let lagging = lagging.max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1)));
        let mut status = Self {
            table: facts.table.clone(),
            health: Health::Ok,
            at_ms: plan.at_ms,
            now: Snapshot::from(facts),
            oldest_unfolded_at_ms: unfolded.filter_map(|s| s.flushed_at_ms).min(),
            lagging: lagging.map(|(rows, index)| Lagging { index: index.clone(), rows }),
            last_cleanup: facts.cleanup.as_ref().and_then(|history| history.last_success),
            cleanup_off: plan.verdicts.iter().find_map(|verdict| match &verdict.outcome {
                Outcome::Disabled { knob } if verdict.decision == Decision::Cleanup => Some(knob.clone()),
                _ => None,
            }),
            last_success,
            due: due(plan),
            held: held(plan),
            failing: facts.failed.iter().filter(|failed| is_wanted(plan, &failed.kind)).cloned().collect(),
            complaints: plan.complaints.iter().map(ToString::to_string).collect(),
        };
        status.health = status.health(facts.is_paused(), facts.mismatch.is_some());
        status
    }

    fn health(&self, paused: bool, changed: bool) -> Health {
        // Of a table that is left alone on purpose nothing else is news.
        if changed {
            Health::Failing
        } else if paused {
            Health::Paused
        } else if !self.failing.is_empty() {
            Health::Failing
        } else if self.held.iter().any(|held| stays(&held.hold)) {
            Health::Held
        } else if !(self.due.is_empty() && self.held.is_empty()) {
            Health::Due
        } else {
            Health::Ok
        }
    }

    /// What is due, what is held by what, what fails: `fold, index due; retire held by index id_idx`.
    pub fn work(&self) -> String {
        let names = |all: &[Decision]| all.iter().map(|d| draw::decision(*d)).collect::<Vec<_>>().join(", ");
        let mut parts = Vec::new();
        let failure = |f: &FailedFacts| {
            let ago = draw::duration(self.at_ms.saturating_sub(f.last_at_ms));
            let times = if f.times == 1 { "once".to_string() } else { format!("{} times", f.times) };
            format!("{} failed {times}, last {ago} ago", f.kind)
        };
        parts.extend(self.failing.iter().map(failure));
        if !self.due.is_empty() {
            parts.push(format!("{} due", names(&self.due)));
        }
        let mut by: Vec<(String, Vec<Decision>)> = Vec::new();
        for held in self.held.iter().filter(|held| !matches!(held.hold, Hold::Failing { .. })) {
            let why = draw::hold(&held.hold, self.at_ms);
            match by.iter_mut().find(|(other, _)| *other == why) {
                Some((_, decisions)) if decisions.contains(&held.decision) => {}
                Some((_, decisions)) => decisions.push(held.decision),
                None => by.push((why, vec![held.decision])),
            }
        }
        parts.extend(by.iter().map(|(why, decisions)| format!("{} held {why}", names(decisions))));
        parts.join("; ")
    }
}

fn due(plan: &Plan) -> Vec<Decision> {
    let verdicts = plan.verdicts.iter().filter(|v| matches!(v.outcome, Outcome::Due { .. }));
    let mut due: Vec<Decision> = verdicts.map(|verdict| verdict.decision).collect();
    due.sort_unstable();
    due.dedup();
    due
}

fn held(plan: &Plan) -> Vec<HeldWork> {
    let held = plan.verdicts.iter().filter_map(|verdict| match &verdict.outcome {
        Outcome::Held { hold, .. } => {
            Some(HeldWork { decision: verdict.decision, shard: verdict.shard.clone(), hold: hold.clone() })
        }
        _ => None,
    });
    held.collect()
}

/// Whether what holds work stays until somebody changes something: what runs ends by itself, and what
/// goes first in this evaluation is done with it.
fn stays(hold: &Hold) -> bool {
    match hold {
        Hold::NoPrimaryKey
        | Hold::Detached
        | Hold::Sealed
        | Hold::Paused
        | Hold::Mismatch { .. }
        | Hold::Clone { .. }
        | Hold::Retained { .. } => true,
        Hold::Pass { .. }
        | Hold::Running { .. }
        | Hold::Compaction { .. }
        | Hold::Remap { .. }
        | Hold::CatchUp { .. }
        | Hold::Index { .. }
        | Hold::Failing { .. } => false,
    }
}

/// Whether jobs of this kind would run if they did not fail: a failure whose work has gone away since
/// is nobody's trouble. Whether anything is to be collected is not known without a walk.
fn is_wanted(plan: &Plan, kind: &str) -> bool {
    let waits = |outcome: &Outcome| match outcome {
        Outcome::Held { hold: Hold::Failing { kind: failing, .. }, .. } => failing == kind,
        Outcome::NotDue { reasons, .. } => {
            kind == "cleanup" && reasons.first().is_some_and(|r| r.measure == Measure::FailureAgeMs)
        }
        _ => false,
    };
    kind == "memwal_collect"
        || plan.jobs().any(|job| job.kind() == kind)
        || plan.verdicts.iter().any(|verdict| waits(&verdict.outcome))
}

#[cfg(test)]
mod tests {
    use planner::facts::{CleanupFacts, FragmentFacts, IndexFacts, MismatchFacts, ShardFacts, SsTableFacts};
    use planner::plan::{Trigger, plan_table};
    use planner::policy::Policy;

    use super::*;

    const NOW: u64 = 1_000_000_000;

    fn table(unfolded: u64) -> TableFacts {
        let sstable = |generation| SsTableFacts {
            generation,
            path: format!("{generation}"),
            bytes: Some(10),
            rows: Some(1),
            flushed_at_ms: Some(NOW - 60_000 * generation),
        };
        let shard =
            ShardFacts { shard: "3f".into(), sstables: (1..=unfolded).map(sstable).collect(), ..ShardFacts::default() };
        TableFacts {
            table: "docs".into(),
            version: 7,
            rows: Some(50),
            primary_key: vec!["id".into()],
            shards: vec![shard],
            fragments: Some(vec![FragmentFacts { rows: 50, deleted: Some(0), ..FragmentFacts::default() }]),
            cleanup: Some(CleanupFacts::default()),
            ..TableFacts::default()
        }
    }

    fn status(facts: &TableFacts) -> Status {
        Status::new(facts, &plan_table(facts, &Policy::default(), NOW, Trigger::Tick), None)
    }

    #[test]
    fn a_table_is_as_its_worst_work() {
        let seen = |facts: &TableFacts| (status(facts).health, status(facts).work());
        assert_eq!(seen(&table(1)), (Health::Ok, String::new()));
        assert_eq!(seen(&table(4)), (Health::Due, "fold due".into()));
        let keyless = TableFacts { primary_key: Vec::new(), ..table(4) };
        assert_eq!(seen(&keyless), (Health::Held, "fold held by a missing primary key".into()));
        let mismatch = MismatchFacts { kind: "compact".into(), at_ms: NOW - 120_000 };
        let changed = TableFacts { mismatch: Some(mismatch), ..table(4) };
        assert_eq!(seen(&changed), (Health::Failing, "fold held by answers that compact changed 2m ago".into()));
        let paused = TableFacts { paused: true, ..table(4) };
        assert_eq!(seen(&paused), (Health::Paused, "fold held by a pause of the table".into()));
        let failed = FailedFacts { kind: "memwal_compaction".into(), times: 3, last_at_ms: NOW - 120_000 };
        let failing = TableFacts { failed: vec![failed], ..table(4) };
        assert_eq!(seen(&failing), (Health::Failing, "memwal_compaction failed 3 times, last 2m ago; fold due".into()));
    }

    #[test]
    fn a_failure_whose_work_has_gone_away_is_nobodys_trouble() {
        let failed = FailedFacts { kind: "compact".into(), times: 3, last_at_ms: NOW - 120_000 };
        assert_eq!(status(&TableFacts { failed: vec![failed], ..table(1) }).health, Health::Ok);
    }

    #[test]
    fn lag_is_what_waits_longest_and_the_index_that_lacks_most() {
        let index = |name: &str, rows| IndexFacts {
            name: name.into(),
            kind: "btree".into(),
            unindexed_rows: Some(rows),
            ..IndexFacts::default()
        };
        let facts = TableFacts { indexes: vec![index("a", 0), index("c", 9), index("b", 9)], ..table(3) };
        let status = status(&facts);
        assert_eq!((status.now.unfolded, status.oldest_unfolded_at_ms), (3, Some(NOW - 180_000)));
        assert_eq!(status.lagging, Some(Lagging { index: "b".into(), rows: 9 }));
    }
}
