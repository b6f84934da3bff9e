//! How old the data may be that a reader of the base alone sees (R2.14).

use crate::facts::{ShardFacts, ShardStatus, TableFacts};
use crate::plan::{Outcome, Verdict};
use crate::policy::Policy;

/// The bound for one shard, given its fold verdict, milliseconds; the job itself and queueing for a
/// slot come on top. A table's bound is the worst of its shards; without shards it is 0, as such a
/// table takes no LSM writes.
///
/// | shard | bound |
/// |---|---|
/// | fold due, or a pass in progress | one tick |
/// | quiet: nothing to fold, or a trigger that time will cross | 2 × age bound + one tick |
/// | anything that no passing of time folds: the walk is off, the table paused or without a key, the shard sealed, no flush time known | none |
///
/// Twice the age bound, as the same setting lets a row wait in the memtable before the age of its
/// SSTable begins.
pub(crate) fn bound_ms(table: &TableFacts, shard: &ShardFacts, fold: &Verdict, policy: &Policy) -> Option<u64> {
    let folds = !table.paused && !table.primary_key.is_empty() && shard.status == ShardStatus::Active;
    if policy.tick_ms == 0 || !folds {
        return None;
    }
    match &fold.outcome {
        Outcome::Due { .. } | Outcome::Held { .. } => Some(policy.tick_ms),
        Outcome::NotDue { due_at_ms, .. } if due_at_ms.is_some() || shard.unfolded().is_empty() => {
            Some(policy.age_ms_max.saturating_mul(2).saturating_add(policy.tick_ms))
        }
        Outcome::NotDue { .. } | Outcome::Disabled { .. } => None,
    }
}
