//! Which indexes are brought up to date (second of R3.4).

use alloc::{collections::BTreeMap, format, string::String, vec, vec::Vec};

use crate::facts::IndexFacts;
use crate::job::{IndexOp, JobSpec};
use crate::plan::{Hold, Measure, Outcome, Reason, TableCase};
use crate::time::age_ms;

use super::wal_catchup;

/// One job for each type and way that has an index to work on.
///
/// Appending to an index that catch-up extends in this evaluation would be the same work twice.
pub(crate) fn decide(case: &TableCase<'_>) -> Outcome {
    let mut indexes: Vec<&IndexFacts> = case.table.indexes.iter().collect();
    indexes.sort_unstable();
    let (mut jobs, mut caught_up) = (BTreeMap::<(&str, IndexOp), Vec<String>>::new(), None);
    let (mut due, mut others, mut due_at_ms) = (Vec::new(), Vec::new(), None::<u64>);
    for index in indexes {
        let mut compared = compare(case, index);
        let Some(deciding) = compared.iter().position(Reason::crosses) else {
            others.extend(compared);
            let at = index.unindexed_since_ms.filter(|_| index.unindexed_rows != Some(0));
            let at = at.and_then(|at| at.checked_add(case.policy.index.age_ms_max));
            due_at_ms = due_at_ms.into_iter().chain(at).min();
            continue;
        };
        let op = match compared[deciding].measure {
            Measure::Withdrawn => IndexOp::Reindex,
            Measure::Segments => IndexOp::Merge,
            _ if compared.iter().any(|r| r.measure == Measure::Segments && r.crosses()) => IndexOp::Merge,
            _ => IndexOp::Append,
        };
        compared.swap(0, deciding);
        if op == IndexOp::Append && wal_catchup::is_behind(case.table, &index.name) {
            caught_up = caught_up.or(Some(index));
            others.extend(compared);
            continue;
        }
        due.extend(compared);
        jobs.entry((&index.kind, op)).or_default().push(index.name.clone());
    }
    if !jobs.is_empty() {
        let jobs = jobs.into_iter().map(|((kind, op), indexes)| JobSpec::Index { kind: kind.into(), indexes, op });
        return Outcome::Due { jobs: jobs.collect(), reasons: due };
    }
    if let Some(index) = caught_up {
        return Outcome::Held { hold: Hold::CatchUp { index: index.name.clone() }, reasons: others };
    }
    if others.is_empty() {
        others = vec![Reason::new(Measure::UnindexedRows, 0, case.policy.index.rows_min)];
    }
    Outcome::NotDue { reasons: others, due_at_ms }
}

/// Withdrawn entries, unindexed rows, their age, segments: in the order in which they decide.
fn compare(case: &TableCase<'_>, index: &IndexFacts) -> Vec<Reason> {
    let policy = &case.policy.index;
    let reason = |measure, observed: Option<u64>, threshold| Reason::new(measure, observed, threshold).of(&*index.name);
    let mut reasons = Vec::new();
    if index.withdrawn {
        reasons.push(reason(Measure::Withdrawn, Some(1), 1));
    }
    reasons.push(Reason { threshold: rows_due(case), ..reason(Measure::UnindexedRows, index.unindexed_rows, 0) });
    if index.unindexed_rows != Some(0)
        && let Some(since) = index.unindexed_since_ms
    {
        reasons.push(reason(Measure::UnindexedAgeMs, Some(age_ms(case.now_ms, since)), policy.age_ms_max));
    }
    if index.segments.is_some() {
        reasons.push(reason(Measure::Segments, index.segments, policy.segments_max.saturating_add(1)));
    }
    reasons
}

/// The larger of the two; unknown where the share counts and the rows are not.
fn rows_due(case: &TableCase<'_>) -> Option<u64> {
    let policy = &case.policy.index;
    // At least one row: with nothing unindexed there is nothing to do.
    let least = policy.rows_min.max(1);
    if policy.permille == 0 {
        return Some(least);
    }
    let share = (u128::from(case.rows?) * u128::from(policy.permille)).div_ceil(1000);
    Some(least.max(u64::try_from(share).unwrap_or(u64::MAX)))
}

/// What [`crate::check`] says of an index that a job names: nothing, or why there is nothing to do.
pub(crate) fn done(index: &IndexFacts, op: IndexOp) -> Option<String> {
    let done = match op {
        IndexOp::Append => index.unindexed_rows == Some(0),
        IndexOp::Merge => index.segments.is_some_and(|segments| segments <= 1) && index.unindexed_rows == Some(0),
        IndexOp::Reindex => !index.withdrawn,
    };
    done.then(|| format!("index `{}` is up to date", index.name))
}
