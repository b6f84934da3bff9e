//! Which folded SSTables may leave the shard manifest's list (R2.10).

use alloc::{string::ToString, vec, vec::Vec};

use crate::facts::SsTableFacts;
use crate::job::JobSpec;
use crate::plan::{Case, Hold, Measure, Outcome, Reason};
use crate::time::age_ms;

/// Retires what every index of the table covers; with no index, everything folded at once.
///
/// A table whose indexes are at different generations retires up to the lowest of them.
pub(crate) fn decide(case: &Case<'_>) -> Outcome {
    let leftovers = case.shard.leftovers();
    let mut reasons = vec![Reason::new(Measure::FoldedListed, leftovers.len() as u64, 1)];
    let Some(oldest) = leftovers.first() else {
        return Outcome::NotDue { reasons, due_at_ms: None };
    };
    let behind = case.table.furthest_behind(case.shard);
    let covered = behind.map_or(u64::MAX, |(_, covers)| covers);
    let ready: Vec<&SsTableFacts> = leftovers.iter().copied().take_while(|s| s.generation <= covered).collect();
    if let Some((index, covers)) = behind {
        let needed = ready.last().unwrap_or(oldest).generation;
        reasons.push(Reason::new(Measure::CaughtUpGeneration, covers, needed).of(index));
        if ready.is_empty() {
            return Outcome::Held { hold: Hold::Index { index: index.to_string() }, reasons };
        }
    }
    let delay_ms = case.policy.retire_delay_ms;
    if let Some(recorded) = case.shard.recorded_at_ms
        && age_ms(case.now_ms, recorded) < delay_ms
    {
        // A reader that opened the version before the fold lists the shard a moment later: what is
        // off the list by then is in neither of what it sees (R2.13).
        reasons.insert(0, Reason::new(Measure::FoldAgeMs, age_ms(case.now_ms, recorded), delay_ms));
        return Outcome::NotDue { reasons, due_at_ms: recorded.checked_add(delay_ms) };
    }
    let shard = case.shard.shard.clone();
    let sstables = ready.into_iter().map(SsTableFacts::id).collect();
    Outcome::Due { jobs: vec![JobSpec::Retire { shard, sstables }], reasons }
}
