//! Which fragments are too many, too small or too full of deleted rows (third of R3.4).

use alloc::{format, vec, vec::Vec};

use crate::facts::{FragmentFacts, TableFacts};
use crate::job::{JobSpec, Predicted};
use crate::pick::rewrite::{self, Rewrites, Target};
use crate::plan::{Measure, Outcome, Reason, TableCase};
use crate::policy::Policy;

/// Due when Lance's own plan, less what leads nowhere, removes enough small fragments, or
/// materializes enough deletions.
pub(crate) fn decide(case: &TableCase<'_>) -> Outcome {
    let policy = &case.policy.compaction;
    let Some(fragments) = &case.table.fragments else {
        let reasons = vec![Reason::new(Measure::SmallFragments, None, policy.small_min)];
        return Outcome::NotDue { reasons, due_at_ms: None };
    };
    let target = Target::of(fragments, policy);
    let found = rewrite::rewrites(fragments, &target, policy);
    let reasons = reasons(&found, &target, fragments.len(), case.policy);
    if found.tasks.is_empty() {
        return Outcome::NotDue { reasons, due_at_ms: None };
    }
    let job = job(case.table, fragments, &found, &target, case.policy);
    Outcome::Due { jobs: vec![job], reasons }
}

/// The deciding comparison first: small fragments, or else deletions.
fn reasons(found: &Rewrites, target: &Target, many: usize, policy: &Policy) -> Vec<Reason> {
    let policy = &policy.compaction;
    let small = Reason::new(Measure::SmallFragments, found.small, policy.small_min);
    let deleted = deleted(found, many, policy.deleted_permille);
    let mut reasons = match found.small < policy.small_min && found.deleted > 0 {
        true => vec![deleted, small],
        false => vec![small, deleted],
    };
    if target.rows < policy.target_rows || target.unmeasured > 0 {
        let rows = target.is_measured().then_some(target.rows);
        let reason = Reason::new(Measure::TargetRows, rows, policy.target_rows);
        reasons.push(match target.unmeasured {
            0 => reason,
            unmeasured => reason.of(format!("bytes of {unmeasured} of {many} unmeasured")),
        });
    }
    let count = |measure, count| Reason { measure, observed: Some(count), threshold: None, subject: None };
    if found.vetoed > 0 {
        reasons.push(count(Measure::VetoedFragments, found.vetoed));
    }
    if found.excluded > 0 {
        reasons.push(count(Measure::ExcludedFragments, found.excluded));
    }
    reasons
}

/// The worst fragment's share. Above the share means one thousandth more, rounded up.
fn deleted(found: &Rewrites, many: usize, permille: u64) -> Reason {
    let threshold = permille.saturating_add(1);
    // Floating point may take for equal what differs by less than it can tell.
    let observed = if found.deleted > 0 { found.permille.max(threshold) } else { found.permille.min(permille) };
    let reason = Reason::new(Measure::DeletedPermille, observed, threshold);
    if found.unmeasured == 0 {
        return reason;
    }
    let observed = reason.observed.filter(|_| found.deleted > 0);
    Reason { observed, ..reason }.of(format!("{} of {many} unmeasured", found.unmeasured))
}

fn job(table: &TableFacts, all: &[FragmentFacts], found: &Rewrites, target: &Target, policy: &Policy) -> JobSpec {
    let tasks: Vec<&[FragmentFacts]> = found.tasks.iter().map(|task| &all[task.clone()]).collect();
    let mut predicted = Predicted { fragments: 0, rows: Some(0), bytes: target.is_measured().then_some(0) };
    for task in &tasks {
        let rows = task.iter().map(rewrite::live).fold(0, u64::saturating_add);
        predicted.fragments = predicted.fragments.saturating_add(rewrite::outputs(rows, target.rows));
        let measured = task.iter().all(|f| f.deleted.is_some());
        predicted.rows = predicted.rows.filter(|_| measured).map(|sum| sum.saturating_add(rows));
        let bytes = task.iter().map(|f| left_of(target.bytes(f), f)).fold(0, u64::saturating_add);
        predicted.bytes = predicted.bytes.map(|sum| sum.saturating_add(bytes));
    }
    JobSpec::Compact {
        tasks: tasks.iter().map(|task| task.iter().map(|f| f.id).collect()).collect(),
        // Where no index covers what is rewritten there is nothing to defer (but see the gate).
        deferred: can_defer(table, policy) && tasks.iter().any(|task| task[0].coverage != 0),
        read_version: table.version,
        target_rows: target.rows,
        predicted,
    }
}

/// A fragment's bytes without its deleted rows.
pub(crate) fn left_of(bytes: u64, fragment: &FragmentFacts) -> u64 {
    let left = u128::from(bytes) * u128::from(rewrite::live(fragment));
    left.checked_div(u128::from(fragment.rows)).map_or(0, |left| u64::try_from(left).unwrap_or(u64::MAX))
}

/// Whether a rewrite of `tasks` that remaps in its own commit would lose index entries: of a fragment
/// that a deferred one has made, Lance looks entries up where they were before, and finds none.
pub(crate) fn loses_entries(table: &TableFacts, tasks: &[Vec<u64>], deferred: bool) -> bool {
    let fragments = table.fragments.as_deref().unwrap_or_default();
    let covered = |id: &u64| fragments.binary_search_by_key(id, |f| f.id).is_ok_and(|at| fragments[at].coverage != 0);
    !deferred && table.remap.as_ref().is_some_and(|r| r.rewrites > 0) && tasks.iter().flatten().any(covered)
}

/// Whether Lance allows a compaction of this table to leave remapping for later, and the policy
/// wants it.
pub(crate) fn can_defer(table: &TableFacts, policy: &Policy) -> bool {
    let indexes = &table.indexes;
    policy.compaction.defer_remap > 0
        && !table.stable_row_ids
        && !indexes.is_empty()
        && indexes.iter().all(crate::facts::IndexFacts::can_defer)
}
