//! What keeps due work from running, in one list.

use crate::facts::{ShardFacts, ShardStatus, TableFacts};
use crate::plan::{Case, Decision, Hold, Outcome};

/// Turns a due verdict into a held one where something else goes first.
pub(crate) fn pass(decision: Decision, case: &Case<'_>, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Due { reasons, .. } if let Some(hold) = hold(decision, case) => Outcome::Held { hold, reasons },
        other => other,
    }
}

/// What holds `decision` back on this shard.
fn hold(decision: Decision, case: &Case<'_>) -> Option<Hold> {
    lasting(decision, case.table, case.shard).or_else(|| {
        // Retiring alone is a pass too (R2.13: the next pass finishes the work), so it takes the
        // same latch: the pass in progress retires what it folds, and two of them would only race.
        let pass = case.shard.pass.as_ref().filter(|_| matches!(decision, Decision::Fold | Decision::Retire))?;
        Some(Hold::Pass { holder: pass.holder.clone(), since_ms: pass.since_ms })
    })
}

/// The first hold that stays until somebody changes the table.
pub(crate) fn lasting(decision: Decision, table: &TableFacts, shard: &ShardFacts) -> Option<Hold> {
    let holds = [
        (shard.status == ShardStatus::Sealed, Hold::Sealed),
        (shard.detached, Hold::Detached),
        (table.paused, Hold::Paused),
        (decision == Decision::Fold && table.primary_key.is_empty(), Hold::NoPrimaryKey),
    ];
    holds.into_iter().find_map(|(holds, hold)| holds.then_some(hold))
}
