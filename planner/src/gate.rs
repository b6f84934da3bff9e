//! What keeps due work from running, in one list.

use crate::decision::compaction::{can_defer, loses_entries};
use crate::decision::remap;
use crate::facts::{FailedFacts, RunningFacts, ShardFacts, ShardStatus, TableFacts};
use crate::job::JobSpec;
use crate::plan::{Case, Decision, Hold, Outcome, Reason, TableCase};

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
        (shard.status == ShardStatus::Sealed).then_some(Hold::Sealed),
        shard.detached.then_some(Hold::Detached),
        stopped(table),
        (decision == Decision::Fold && table.primary_key.is_empty()).then_some(Hold::NoPrimaryKey),
    ];
    holds.into_iter().flatten().next()
}

/// What keeps everything but catch-up from running: a pause, or answers that a job has changed. Then
/// what the table was before is still there, and must stay until somebody has looked at it.
pub(crate) fn stopped(table: &TableFacts) -> Option<Hold> {
    let mismatch = || table.mismatch.as_ref().map(|m| Hold::Mismatch { kind: m.kind.clone(), at_ms: m.at_ms });
    table.is_paused().then_some(Hold::Paused).or_else(mismatch)
}

/// The rules between the table's decisions. Catch-up passes them all, and cleanup waits for none of
/// the others.
pub(crate) fn table(case: &TableCase<'_>, outcomes: &mut [(Decision, Outcome); 5]) {
    demand_remap(case, outcomes);
    for (decision, outcome) in outcomes.iter_mut().filter(|(decision, _)| *decision != Decision::WalCatchup) {
        let clone = || Some(Hold::Clone { table: case.table.clones.first()?.clone() });
        let stopped = stopped(case.table).or_else(|| clone().filter(|_| *decision == Decision::Cleanup));
        hold_jobs(outcome, |job| {
            let failing = || failing(case, job).filter(|_| *decision != Decision::Cleanup);
            stopped.clone().or_else(|| running(case.table, job)).or_else(failing)
        });
    }
    defer_beside_index_work(case, outcomes);
    for (_, outcome) in outcomes.iter_mut().filter(|(decision, _)| *decision == Decision::Compaction) {
        hold_jobs(outcome, |job| unmapped(case.table, job));
    }
    let inline = inline_compaction(case.table, outcomes);
    for (_, outcome) in outcomes.iter_mut().filter(|(decision, _)| *decision == Decision::Index) {
        hold_jobs(outcome, |_| inline.clone());
    }
}

/// A rewrite that no index covers defers nothing by itself. But beside an index job it must: the two
/// would fail each other's commit, and index work would wait for as long as small fragments come.
fn defer_beside_index_work(case: &TableCase<'_>, outcomes: &mut [(Decision, Outcome); 5]) {
    let due = |(decision, outcome): &(Decision, Outcome)| {
        *decision == Decision::Index && matches!(outcome, Outcome::Due { .. })
    };
    let open = case.table.running.iter().any(|open| open.kind.starts_with("reindex_"));
    if !can_defer(case.table, case.policy) || !(open || outcomes.iter().any(due)) {
        return;
    }
    for (_, outcome) in outcomes.iter_mut() {
        let Outcome::Due { jobs, .. } = outcome else { continue };
        for job in jobs {
            if let JobSpec::Compact { deferred, .. } = job {
                *deferred = true;
            }
        }
    }
}

/// Takes the jobs out that something holds. A verdict of which nothing is left is held.
fn hold_jobs(outcome: &mut Outcome, hold: impl Fn(&JobSpec) -> Option<Hold>) {
    let Outcome::Due { jobs, reasons } = outcome else { return };
    let mut first = None;
    let mut names = alloc::vec::Vec::new();
    jobs.retain(|job| {
        let held = hold(job);
        if let (Some(_), JobSpec::Index { indexes, .. }) = (&held, job) {
            names.extend(indexes.iter().cloned());
        }
        let free = held.is_none();
        first = first.take().or(held);
        free
    });
    let Some(hold) = first else { return };
    if jobs.is_empty() {
        *outcome = Outcome::Held { hold, reasons: core::mem::take(reasons) };
    } else {
        reasons.retain(|reason: &Reason| !reason.subject.as_ref().is_some_and(|name| names.contains(name)));
    }
}

/// A compaction that waits for a remap must not wait for ever: it makes the remap due.
fn demand_remap(case: &TableCase<'_>, outcomes: &mut [(Decision, Outcome); 5]) {
    let waits = |outcome: &Outcome| match outcome {
        Outcome::Due { jobs, .. } => jobs.iter().any(|job| unmapped(case.table, job).is_some()),
        _ => false,
    };
    if !outcomes.iter().any(|(_, outcome)| waits(outcome)) {
        return;
    }
    for (_, outcome) in outcomes.iter_mut().filter(|(decision, _)| *decision == Decision::Remap) {
        if matches!(outcome, Outcome::NotDue { .. }) {
            *outcome = remap::demanded(case);
        }
    }
}

/// Index entries that an earlier compaction left behind, and that this one would lose.
fn unmapped(table: &TableFacts, job: &JobSpec) -> Option<Hold> {
    let JobSpec::Compact { tasks, deferred, .. } = job else { return None };
    let rewrites = table.remap.as_ref().map_or(0, |remap| remap.rewrites);
    loses_entries(table, tasks, *deferred).then_some(Hold::Remap { rewrites })
}

/// An open job that does the same (nothing is planned twice). One compaction a table at a time: two
/// that defer would fail each other's commit, and two that don't would race for the indexes.
fn running(table: &TableFacts, job: &JobSpec) -> Option<Hold> {
    let kind = job.kind();
    let same = |open: &&RunningFacts| match job {
        JobSpec::Index { indexes, .. } if !open.indexes.is_empty() => {
            open.kind == kind && open.indexes.iter().any(|name| indexes.contains(name))
        }
        _ => open.kind == kind,
    };
    let open = table.running.iter().filter(same).min()?;
    Some(Hold::Running { kind, holder: open.holder.clone(), since_ms: open.since_ms })
}

/// A job that keeps failing waits longer each time, and stops none of the others. Cleanup has a rule
/// of its own (R4.4).
fn failing(case: &TableCase<'_>, job: &JobSpec) -> Option<Hold> {
    let kind = job.kind();
    let of_kind = case.table.failed.iter().filter(|failed| failed.kind == kind);
    let FailedFacts { times, last_at_ms, .. } = of_kind.max_by_key(|failed| (failed.last_at_ms, failed.times))?;
    let until_ms = last_at_ms.saturating_add(case.policy.agent.backoff_after(*times));
    (case.now_ms < until_ms).then_some(Hold::Failing { kind, times: *times, until_ms })
}

/// A compaction that remaps in its own commit, running or about to: what an index job builds beside
/// it would point to rows that have moved.
fn inline_compaction(table: &TableFacts, outcomes: &[(Decision, Outcome); 5]) -> Option<Hold> {
    let runs = table.running.iter().filter(|open| open.kind == "compact" && !open.deferred).min();
    if let Some(open) = runs {
        return Some(Hold::Compaction { holder: Some(open.holder.clone()), since_ms: Some(open.since_ms) });
    }
    let inline = |job: &JobSpec| matches!(job, JobSpec::Compact { deferred: false, .. });
    let due = |outcome: &Outcome| matches!(outcome, Outcome::Due { jobs, .. } if jobs.iter().any(inline));
    let any = outcomes.iter().any(|(_, outcome)| due(outcome));
    any.then_some(Hold::Compaction { holder: None, since_ms: None })
}
