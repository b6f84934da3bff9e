//! Which indexes do not cover every folded row (R2.11). Gated by nothing: an index that lags keeps
//! SSTables listed, and so the log from being trimmed (R3.4).

use alloc::{collections::BTreeMap, string::String, vec, vec::Vec};
use core::cmp::Reverse;

use crate::facts::{IndexFacts, TableFacts};
use crate::job::JobSpec;
use crate::plan::{Measure, Outcome, Reason, TableCase};

/// One job for each index type that has an index behind.
pub(crate) fn decide(case: &TableCase<'_>) -> Outcome {
    let facts = case.table;
    let mut lags: Vec<(Lag, &IndexFacts)> =
        facts.indexes.iter().filter_map(|index| Some((worst_lag(facts, &index.name)?, index))).collect();
    if lags.is_empty() {
        let reasons = vec![Reason::new(Measure::IndexesBehind, 0, 1)];
        return Outcome::NotDue { reasons, due_at_ms: None };
    }
    lags.sort_by_key(|(lag, index)| (Reverse(lag.behind()), *index));
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (_, index) in &lags {
        kinds.entry(&index.kind).or_default().push(index.name.clone());
    }
    let jobs = kinds
        .into_iter()
        .map(|(kind, mut indexes)| {
            indexes.sort_unstable();
            JobSpec::CatchUp { kind: kind.into(), indexes }
        })
        .collect();
    let reasons = lags
        .iter()
        .map(|(lag, index)| Reason::new(Measure::CaughtUpGeneration, lag.covers, lag.folded).of(&*index.name))
        .collect();
    Outcome::Due { jobs, reasons }
}

/// How far an index covers a shard, and how far the shard is folded.
struct Lag {
    covers: u64,
    folded: u64,
}

impl Lag {
    fn behind(&self) -> u64 {
        self.folded - self.covers
    }
}

/// Whether catch-up extends `index`.
pub(crate) fn is_behind(facts: &TableFacts, index: &str) -> bool {
    worst_lag(facts, index).is_some()
}

/// The shard of which `index` lacks most.
fn worst_lag(facts: &TableFacts, index: &str) -> Option<Lag> {
    facts
        .shards
        .iter()
        .map(|shard| Lag { covers: shard.covered_by(index), folded: shard.compacted_generation })
        .filter(|lag| lag.covers < lag.folded)
        .max_by_key(|lag| (lag.behind(), lag.folded))
}
