//! Which tables are evaluated when (section 3, section 5): a state machine without a clock.
//!
//! ```text
//! Event (a tick, a notification, the outcome of an evaluation) ─> handle ─> Effects (read, enqueue, report)
//! ```
//!
//! The loop around it reads facts, has them planned (by [`crate::plan::plan_table`] or by a plugin),
//! and hands jobs to the registry; this decides only whose turn it is, and keeps count. It holds one
//! small record a table.

mod admission;
mod coverage;
mod ownership;

use alloc::{boxed::Box, collections::BTreeMap, collections::BTreeSet, string::String, vec::Vec};

pub use self::coverage::Coverage;
pub use self::ownership::owner;
use crate::plan::Plan;
use crate::policy::AgentPolicy;
use crate::time::age_ms;

/// Longest reason that is kept of a failure, characters.
const WHY_MAX: usize = 200;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent's period is over (`agent_tick_secs`).
    Tick,
    /// Something was written, a schema changed, an index came.
    Notified {
        /// The table.
        table: String,
    },
    /// Its facts were read, and this is the plan made of them.
    FactsRead {
        /// The table.
        table: String,
        /// Of [`Effect::Read`].
        evaluation: u64,
        /// The plan.
        plan: Box<Plan>,
    },
    /// It could not be opened, read or planned.
    ReadFailed {
        /// The table.
        table: String,
        /// Of [`Effect::Read`].
        evaluation: u64,
        /// Why, for people.
        why: String,
    },
    /// It was not read, and that says nothing of the table: what else is needed for it was not there.
    ReadAbandoned {
        /// The table.
        table: String,
        /// Of [`Effect::Read`].
        evaluation: u64,
    },
    /// These are the tables this agent owns now, all of them.
    OwnershipChanged {
        /// Their names.
        tables: BTreeSet<String>,
    },
    /// A job of the table ended, well or not: its facts are others now.
    JobEnded {
        /// The table.
        table: String,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Open the table anew, read everything, plan, and answer with [`Event::FactsRead`] or
    /// [`Event::ReadFailed`] of the same evaluation.
    Read {
        /// The table.
        table: String,
        /// Which evaluation.
        evaluation: u64,
    },
    /// Stop reading: it took too long, or the table is no longer ours. An answer is ignored.
    Cancel {
        /// The table.
        table: String,
        /// Which evaluation.
        evaluation: u64,
    },
    /// Hand the plan's jobs to the registry.
    Enqueue {
        /// The table's plan.
        plan: Box<Plan>,
    },
    /// An evaluation failed.
    Report {
        /// The table.
        table: String,
        /// What is known of it.
        failing: Failing,
    },
}

/// A table whose evaluation keeps failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Failures in a row.
    pub times: u64,
    /// When it is tried again, milliseconds since the epoch.
    pub retry_at_ms: u64,
    /// Why the last one failed, for people.
    pub why: String,
}

/// What is remembered of an owned table.
#[derive(Debug)]
struct Record {
    /// Orders tables that wait equally long: no alphabet decides.
    hash: u64,
    /// Since when it is owned.
    owned_at_ms: u64,
    last_success_ms: Option<u64>,
    last_try_ms: Option<u64>,
    /// The evaluation in progress, and since when.
    reading: Option<(u64, u64)>,
    /// Something happened since the last evaluation began.
    notified: bool,
    failing: Option<Box<Failing>>,
}

/// The agent's state.
#[derive(Debug)]
pub struct Agent {
    policy: AgentPolicy,
    tables: BTreeMap<String, Record>,
    coverage: coverage::Cycles,
    evaluations: u64,
}

impl Agent {
    /// An agent that owns nothing yet.
    pub fn new(policy: AgentPolicy) -> Self {
        Self { policy, tables: BTreeMap::new(), coverage: coverage::Cycles::default(), evaluations: 0 }
    }

    /// Takes one event in. Of a table that is not owned, or of an evaluation that is over, it is ignored.
    pub fn handle(&mut self, event: Event, now_ms: u64) -> Vec<Effect> {
        match event {
            Event::Tick => self.tick(now_ms),
            Event::Notified { table } | Event::JobEnded { table } => {
                if let Some(record) = self.tables.get_mut(&table) {
                    record.notified = true;
                }
                Vec::new()
            }
            Event::FactsRead { table, evaluation, plan } => {
                let Some(record) = self.reading(&table, evaluation) else { return Vec::new() };
                (record.reading, record.failing) = (None, None);
                record.last_success_ms = Some(now_ms);
                self.coverage.covered(&table);
                if plan.jobs().next().is_none() { Vec::new() } else { alloc::vec![Effect::Enqueue { plan }] }
            }
            Event::ReadFailed { table, evaluation, why } => {
                let known = self.reading(&table, evaluation).is_some();
                if known { alloc::vec![self.failed(&table, &why, now_ms)] } else { Vec::new() }
            }
            Event::ReadAbandoned { table, evaluation } => {
                if let Some(record) = self.reading(&table, evaluation) {
                    (record.reading, record.notified) = (None, true);
                }
                Vec::new()
            }
            Event::OwnershipChanged { tables } => self.own(&tables, now_ms),
        }
    }

    /// The tables whose evaluation keeps failing, by name.
    pub fn failing(&self) -> impl Iterator<Item = (&str, &Failing)> {
        self.tables.iter().filter_map(|(table, record)| Some((table.as_str(), record.failing.as_deref()?)))
    }

    /// How well the owned tables are covered (R5.1).
    pub fn coverage(&self, now_ms: u64) -> Coverage {
        let ages = self.tables.values().map(|r| age_ms(now_ms, r.last_success_ms.unwrap_or(r.owned_at_ms)));
        Coverage {
            never_evaluated: self.tables.values().filter(|r| r.last_success_ms.is_none()).count() as u64,
            oldest_success_age_seconds: ages.max().unwrap_or(0) / 1000,
            ..self.coverage.numbers()
        }
    }

    fn tick(&mut self, now_ms: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (table, evaluation) in self.timed_out(now_ms) {
            effects.push(self.failed(&table, "the evaluation took too long", now_ms));
            effects.push(Effect::Cancel { table, evaluation });
        }
        self.coverage.begin(self.tables.keys());
        for table in admission::admit(&self.tables, &self.policy, now_ms) {
            let Some(record) = self.tables.get_mut(&table) else { continue };
            self.evaluations += 1;
            record.reading = Some((self.evaluations, now_ms));
            record.last_try_ms = Some(now_ms);
            record.notified = false;
            effects.push(Effect::Read { table, evaluation: self.evaluations });
        }
        effects
    }

    fn timed_out(&self, now_ms: u64) -> Vec<(String, u64)> {
        let late = |(table, record): (&String, &Record)| {
            let (evaluation, since_ms) = record.reading?;
            (age_ms(now_ms, since_ms) > self.policy.timeout_ms).then(|| (table.clone(), evaluation))
        };
        self.tables.iter().filter_map(late).collect()
    }

    fn reading(&mut self, table: &str, evaluation: u64) -> Option<&mut Record> {
        self.tables.get_mut(table).filter(|r| r.reading.is_some_and(|(open, _)| open == evaluation))
    }

    /// Counts for nothing, and is tried again later (R5.2).
    fn failed(&mut self, table: &str, why: &str, now_ms: u64) -> Effect {
        let why: String = why.chars().take(WHY_MAX).collect();
        let record = self.tables.get_mut(table);
        let times = record.as_ref().and_then(|r| r.failing.as_ref()).map_or(0, |f| f.times).saturating_add(1);
        let retry_at_ms = now_ms.saturating_add(self.policy.backoff_after(times));
        let failing = Failing { times, retry_at_ms, why };
        if let Some(record) = record {
            record.reading = None;
            record.failing = Some(Box::new(failing.clone()));
        }
        Effect::Report { table: table.into(), failing }
    }

    fn own(&mut self, owned: &BTreeSet<String>, now_ms: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.tables.retain(|table, record| {
            let stays = owned.contains(table);
            if let Some((evaluation, _)) = record.reading.filter(|_| !stays) {
                effects.push(Effect::Cancel { table: table.clone(), evaluation });
            }
            stays
        });
        self.coverage.retain(owned);
        for table in owned {
            if !self.tables.contains_key(table) {
                let record = Record {
                    hash: admission::hash(table),
                    owned_at_ms: now_ms,
                    last_success_ms: None,
                    last_try_ms: None,
                    reading: None,
                    notified: false,
                    failing: None,
                };
                self.tables.insert(table.clone(), record);
            }
        }
        effects
    }
}
