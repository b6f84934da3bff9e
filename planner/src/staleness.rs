//! How old the data may be that a reader of the base alone sees (R2.14).

use crate::facts::{ShardFacts, TableFacts};
use crate::gate;
use crate::plan::{Decision, Hold, Outcome, Verdict};
use crate::policy::Policy;

/// The bound for one shard, given its fold verdict, milliseconds; the job itself and queueing for a
/// slot come on top. A table's bound is the worst of its shards; without shards it is 0, as such a
/// table takes no LSM writes.
///
/// | shard | bound |
/// |---|---|
/// | fold due, or a pass in progress | one tick |
/// | quiet: nothing to fold, or a trigger that time will cross | 2 × age bound + one tick |
/// | sealed or detached (nothing is written to it any more), with nothing to fold | 0 |
/// | anything else, which no passing of time folds: the walk is off, the table paused or without a key, no flush time known | none |
///
/// Twice the age bound, as the same setting lets a row wait in the memtable before the age of its
/// SSTable begins.
pub(crate) fn bound_ms(table: &TableFacts, shard: &ShardFacts, fold: &Verdict, policy: &Policy) -> Option<u64> {
    if policy.tick_ms == 0 {
        return None;
    }
    match gate::lasting(Decision::Fold, table, shard) {
        Some(Hold::Sealed | Hold::Detached) if shard.unfolded().is_empty() => return Some(0),
        Some(_) => return None,
        None => {}
    }
    match &fold.outcome {
        Outcome::Due { .. } | Outcome::Held { .. } => Some(policy.tick_ms),
        Outcome::NotDue { due_at_ms, .. } if due_at_ms.is_some() || shard.unfolded().is_empty() => {
            Some(policy.age_ms_max.saturating_mul(2).saturating_add(policy.tick_ms))
        }
        Outcome::NotDue { .. } | Outcome::Disabled { .. } => None,
    }
}
