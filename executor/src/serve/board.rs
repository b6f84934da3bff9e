//! How every table is, for the fleet page: the loop writes it, whoever looks reads it. Nothing is decided
//! from it (R3.3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use planner::agent::{Coverage, Failing};
use planner::draw;
use planner::facts::TableFacts;
use planner::plan::{Outcome, Plan};
use serde::Serialize;
use tokio::sync::watch;

use crate::status::{Health, Status};

/// Decisions that are kept.
const DECISIONS_MAX: usize = 100;
/// Lines that are kept of one decision.
const LINES_MAX: usize = 12;

/// What is known of the tables under the root, and of the agent.
#[derive(Clone, Debug)]
pub(super) struct Board(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    known: Mutex<Known>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

/// All of it, at one moment.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By name.
    pub(super) tables: BTreeMap<String, Row>,
    /// The newest last.
    pub(super) decisions: VecDeque<Decided>,
    /// As of the last tick.
    pub(super) coverage: Coverage,
    /// Why the registry does not answer, while it does not.
    pub(super) away: bool,
}

/// One table.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    /// Table name.
    pub(super) table: String,
    /// The agent that has it; `None`: this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// When it was last evaluated with success, milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evaluated_at_ms: Option<u64>,
    /// Its evaluation fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failing: Option<Trouble>,
    /// What the last evaluation that went well saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seen: Option<Seen>,
    /// The change of the board that it came with.
    #[serde(skip)]
    pub(super) change: u64,
}

/// Why a table can't be evaluated.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trouble {
    /// The last reason, for people.
    pub(super) why: String,
    /// Failures in a row.
    pub(super) times: u64,
    /// When it is tried again, milliseconds since the epoch.
    pub(super) retry_at_ms: u64,
}

/// A table as an evaluation saw it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Seen {
    /// Its condition.
    #[serde(flatten)]
    pub(super) status: Status,
    /// What is due, held and failing, in words.
    pub(super) work: String,
    /// Bytes of the base's fragments, where all are measured.
    pub(super) base_bytes: Option<u64>,
    /// Versions that are retained.
    pub(super) versions: Option<u64>,
    /// How far a reader of the base alone may be behind (R2.14); `None`: without bound.
    pub(super) staleness_bound_ms: Option<u64>,
    /// What is due or held, one line each, with both numbers.
    pub(super) lines: Vec<String>,
}

/// A plan that said something else than the one before it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Decided {
    /// Counts them.
    pub(super) id: u64,
    /// When, milliseconds since the epoch.
    pub(super) at_ms: u64,
    /// Table name.
    pub(super) table: String,
    /// What was due or held; empty: nothing was any more.
    pub(super) lines: Vec<String>,
    /// Digest of the planner and the policy.
    pub(super) policy: String,
}

impl Default for Board {
    fn default() -> Self {
        Self(Arc::new(Shared { known: Mutex::default(), changed: watch::Sender::new(0) }))
    }
}

impl Board {
    /// What there is to see.
    pub(super) fn look(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Told of each change.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// These tables are there, and who has which of them.
    pub(super) fn listed(&self, tables: Vec<(String, Option<String>)>) {
        self.change(|known, change| {
            let names: BTreeSet<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
            known.tables.retain(|name, _| names.contains(name.as_str()));
            for (table, owner) in tables {
                let row = known.tables.entry(table.clone());
                let row = row.or_insert_with(|| Row { table, change, ..Row::default() });
                // What another agent knows of it by now is not known here.
                if row.owner != owner {
                    *row = Row { table: row.table.clone(), owner, change, ..Row::default() };
                }
            }
        });
    }

    /// A table was evaluated.
    pub(super) fn evaluated(&self, facts: &TableFacts, plan: &Plan, policy: &str) {
        let seen = Seen::new(facts, plan);
        self.change(|known, change| {
            let Some(row) = known.tables.get_mut(&plan.table).filter(|row| row.owner.is_none()) else { return };
            let before = row.seen.as_ref().map_or(&[][..], |seen| &seen.lines);
            // A number that moved is no news: what is due is.
            let news = heads(before) != heads(&seen.lines);
            if news {
                let (lines, table) = (seen.lines.clone(), plan.table.clone());
                let decided = Decided { id: change, at_ms: plan.at_ms, table, lines, policy: policy.to_string() };
                known.decisions.push_back(decided);
                let surplus = known.decisions.len().saturating_sub(DECISIONS_MAX);
                known.decisions.drain(..surplus);
            }
            (row.evaluated_at_ms, row.failing, row.seen, row.change) = (Some(plan.at_ms), None, Some(seen), change);
        });
    }

    /// A table could not be evaluated.
    pub(super) fn failed(&self, table: &str, failing: &Failing) {
        let Failing { times, retry_at_ms, why } = failing.clone();
        self.change(|known, change| {
            let Some(row) = known.tables.get_mut(table) else { return };
            (row.failing, row.change) = (Some(Trouble { why, times, retry_at_ms }), change);
        });
    }

    /// The agent ticked.
    pub(super) fn ticked(&self, coverage: Coverage, away: bool) {
        let same = {
            let mut known = self.look();
            let same = known.coverage == coverage && known.away == away;
            (known.coverage, known.away) = (coverage, away);
            same
        };
        if !same {
            self.change(|_, _| ());
        }
    }

    fn change(&self, work: impl FnOnce(&mut Known, u64)) {
        // Under the lock, so that whoever saw a change has all before it.
        let mut known = self.look();
        let change = *self.0.changed.borrow() + 1;
        work(&mut known, change);
        self.0.changed.send_replace(change);
    }
}

impl Row {
    /// How bad it is, the worst first: the order of the page.
    pub(super) fn rank(&self) -> Health {
        match (&self.failing, &self.seen) {
            (Some(_), _) => Health::Unreadable,
            (None, Some(seen)) => seen.status.health,
            (None, None) => Health::Ok,
        }
    }

    /// Its state in a word, where no job of it runs.
    pub(super) fn word(&self) -> &'static str {
        match (&self.failing, &self.seen) {
            _ if self.owner.is_some() => "another agent's",
            (Some(_), _) => "failed",
            (None, None) => "never evaluated",
            (None, Some(seen)) => match seen.status.health {
                Health::Unreadable | Health::Failing => "failed",
                Health::Paused => "disabled",
                Health::Held => "held",
                Health::Due => "due",
                Health::Ok => "idle",
            },
        }
    }
}

impl Seen {
    fn new(facts: &TableFacts, plan: &Plan) -> Self {
        let status = Status::new(facts, plan, None);
        let wants = |outcome: &Outcome| matches!(outcome, Outcome::Due { .. } | Outcome::Held { .. });
        let verdicts = plan.verdicts.iter().filter(|verdict| wants(&verdict.outcome));
        let line = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = verdicts.flat_map(|verdict| draw::verdict(verdict, plan.at_ms)).map(line);
        let sizes = facts.fragments.as_ref().map(|all| all.iter().map(|fragment| fragment.bytes));
        Self {
            work: status.work(),
            base_bytes: sizes.and_then(|mut sizes| sizes.try_fold(0u64, |sum, size| Some(sum.saturating_add(size?)))),
            versions: facts.versions,
            staleness_bound_ms: plan.staleness_bound_ms,
            lines: lines.take(LINES_MAX).collect(),
            status,
        }
    }
}

/// The first two words of each line: which decision, and what it says.
fn heads(lines: &[String]) -> Vec<[Option<&str>; 2]> {
    lines.iter().map(|line| head(line)).collect()
}

fn head(line: &str) -> [Option<&str>; 2] {
    let mut words = line.split(' ');
    [words.next(), words.next()]
}

#[cfg(test)]
mod tests {
    use planner::facts::{ShardFacts, SsTableFacts};
    use planner::plan::{Trigger, plan_table};
    use planner::policy::Policy;

    use super::*;

    const NOW: u64 = 1_000_000_000;

    fn facts(sstables: u64) -> TableFacts {
        let sstable = |generation| SsTableFacts {
            generation,
            path: format!("{generation}"),
            bytes: Some(10),
            rows: Some(1),
            flushed_at_ms: Some(NOW),
        };
        let sstables = (1..=sstables).map(sstable).collect();
        let shards = vec![ShardFacts { shard: "3f".into(), sstables, ..ShardFacts::default() }];
        TableFacts { table: "docs".into(), primary_key: vec!["id".into()], shards, ..TableFacts::default() }
    }

    fn evaluate(board: &Board, facts: &TableFacts) {
        board.evaluated(facts, &plan_table(facts, &Policy::default(), NOW, Trigger::Tick), "p");
    }

    fn word(board: &Board) -> &'static str {
        board.look().tables["docs"].word()
    }

    #[test]
    fn a_table_is_never_evaluated_then_idle_due_failed_or_another_agents() {
        let board = Board::default();
        board.listed(vec![("docs".into(), None)]);
        assert_eq!(word(&board), "never evaluated");
        evaluate(&board, &facts(1));
        assert_eq!(word(&board), "idle");
        evaluate(&board, &facts(4));
        assert_eq!(word(&board), "due");
        board.failed("docs", &Failing { times: 1, retry_at_ms: NOW, why: "gone".into() });
        assert_eq!(word(&board), "failed");
        evaluate(&board, &TableFacts { paused: true, ..facts(4) });
        assert_eq!(word(&board), "disabled");
        board.listed(vec![("docs".into(), Some("b".into()))]);
        assert_eq!(word(&board), "another agent's");
        evaluate(&board, &facts(1));
        assert_eq!(word(&board), "another agent's", "an evaluation that ended late says nothing");
        board.listed(Vec::new());
        assert!(board.look().tables.is_empty());
    }

    #[test]
    fn a_decision_is_news_when_what_is_due_changes_and_at_most_so_many_are_kept() {
        let board = Board::default();
        board.listed(vec![("docs".into(), None)]);
        let mut seen = board.watch();
        for sstables in [1, 4, 5, 6, 1, 1] {
            evaluate(&board, &facts(sstables));
        }
        assert!(seen.has_changed().unwrap_or_default() && *seen.borrow_and_update() == 7);
        let lines: Vec<_> = board.look().decisions.iter().map(|decided| decided.lines.len()).collect();
        assert_eq!(lines, [1, 0]);
        for n in 0..300 {
            evaluate(&board, &facts(if n % 2 == 0 { 4 } else { 1 }));
        }
        assert_eq!(board.look().decisions.len(), DECISIONS_MAX);
    }
}
