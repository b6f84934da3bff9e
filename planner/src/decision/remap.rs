//! When index entries that deferred compactions left are remapped, in one batch (fifth of R3.4).

use alloc::{vec, vec::Vec};

use crate::job::JobSpec;
use crate::plan::{Measure, Outcome, Reason, TableCase};
use crate::time::age_ms;

/// Due at a number of recorded rewrites, or at an age of the oldest.
pub(crate) fn decide(case: &TableCase<'_>) -> Outcome {
    let policy = &case.policy.remap;
    let Some(remap) = &case.table.remap else {
        let reasons = vec![Reason::new(Measure::Rewrites, None, policy.rewrites_min)];
        return Outcome::NotDue { reasons, due_at_ms: None };
    };
    let mut reasons = vec![Reason::new(Measure::Rewrites, remap.rewrites, policy.rewrites_min)];
    if remap.rewrites == 0 {
        return Outcome::NotDue { reasons, due_at_ms: None };
    }
    let age = remap.oldest_at_ms.map(|oldest| age_ms(case.now_ms, oldest));
    reasons.push(Reason::new(Measure::RewriteAgeMs, age, policy.age_ms_max));
    let Some(deciding) = reasons.iter().position(Reason::crosses) else {
        let due_at_ms = remap.oldest_at_ms.and_then(|oldest| oldest.checked_add(policy.age_ms_max));
        return Outcome::NotDue { reasons, due_at_ms };
    };
    reasons[..=deciding].rotate_right(1);
    Outcome::Due { jobs: vec![job(case)], reasons }
}

/// The same, for a compaction that waits for it: one recorded rewrite is enough.
pub(crate) fn demanded(case: &TableCase<'_>) -> Outcome {
    let rewrites = case.table.remap.as_ref().map(|remap| remap.rewrites);
    Outcome::Due { jobs: vec![job(case)], reasons: vec![Reason::new(Measure::Rewrites, rewrites, 1)] }
}

fn job(case: &TableCase<'_>) -> JobSpec {
    // An index that was dropped since needs nothing any more.
    let exists = |name: &&alloc::string::String| case.table.indexes.iter().any(|index| index.name == **name);
    let needed = case.table.remap.iter().flat_map(|remap| &remap.indexes);
    let mut indexes: Vec<_> = needed.filter(exists).cloned().collect();
    indexes.sort_unstable();
    indexes.dedup();
    JobSpec::Remap { indexes }
}
