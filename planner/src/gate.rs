//! What keeps due work from running, in one list.

use crate::facts::ShardStatus;
use crate::plan::{Case, Decision, Hold, Outcome};

/// Turns a due verdict into a held one where something else goes first.
pub(crate) fn pass(decision: Decision, case: &Case<'_>, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Due { reasons, .. } if let Some(hold) = hold(decision, case) => Outcome::Held { hold, reasons },
        other => other,
    }
}

/// The first rule that holds `decision` back, the most lasting first.
fn hold(decision: Decision, case: &Case<'_>) -> Option<Hold> {
    let passes = matches!(decision, Decision::Fold | Decision::Retire);
    if case.shard.status == ShardStatus::Sealed {
        return Some(Hold::Sealed);
    }
    if case.shard.detached {
        return Some(Hold::Detached);
    }
    if case.table.paused {
        return Some(Hold::Paused);
    }
    if decision == Decision::Fold && case.table.primary_key.is_empty() {
        return Some(Hold::NoPrimaryKey);
    }
    // Retiring alone is a pass too (R2.13: the next pass finishes the work), so it takes the same
    // latch: the pass in progress retires what it folds, and two of them would only race.
    match &case.shard.pass {
        Some(pass) if passes => Some(Hold::Pass { holder: pass.holder.clone(), since_ms: pass.since_ms }),
        _ => None,
    }
}
