//! Intervals and ages that are over before what they start is done.
//!
//! The agent's own period is not among them: a tick admits tables, and what is still being read only
//! takes its part of the budget.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use crate::draw::{cut, duration};
use crate::facts::TableFacts;
use crate::policy::Remarks;

use super::{EVALUATION, NAME_CHARS_MAX, Seen, WALK, cleanup};

const FOLD: &str = "memwal_compaction";
const CLEANUP: &str = "cleanup";

/// What at least half of the jobs of a kind took: one slow job is no rule.
#[derive(Clone, Copy)]
struct Spent<'a> {
    half_ms: u64,
    kind: &'a str,
    times: usize,
}

impl Spent<'_> {
    fn text(&self) -> String {
        let (kind, took) = (cut(self.kind, NAME_CHARS_MAX), duration(self.half_ms));
        match self.times {
            1 => format!("`{kind}` took {took}"),
            times => format!("half of {times} times `{kind}` took {took} or longer"),
        }
    }
}

pub(super) fn intervals(remarks: &mut Remarks<'_>, facts: &TableFacts, seen: &Seen) {
    let mut kinds = BTreeMap::<&str, Vec<u64>>::new();
    for job in &seen.jobs {
        kinds.entry(&job.kind).or_default().push(job.millis);
    }
    let half = |(kind, mut all): (_, Vec<u64>)| {
        all.sort_unstable();
        let half_ms = all.get(all.len().saturating_sub(1) / 2).copied()?;
        Some(Spent { half_ms, kind, times: all.len() })
    };
    let spent: Vec<Spent<'_>> = kinds.into_iter().filter_map(half).collect();
    walk(remarks, &spent);
    sweep(remarks, &spent);
    ages(remarks, &spent);
    let cleanup = longest(&spent, |kind| kind == CLEANUP).filter(|_| cleanup::is_on(remarks, facts));
    let interval_ms = remarks.policy.cleanup.interval_ms;
    over(remarks, "cleanup_interval_secs", interval_ms, cleanup, |text, interval| {
        format!("{text}, and the next is due {interval} after its end: the table is cleaned more than half of the time")
    });
}

/// The kind that takes longest, of equals the first by name.
fn longest<'a>(spent: &[Spent<'a>], of: impl Fn(&str) -> bool) -> Option<Spent<'a>> {
    let of_kind = spent.iter().filter(|spent| of(spent.kind));
    of_kind.copied().min_by_key(|spent| (core::cmp::Reverse(spent.half_ms), spent.kind))
}

/// A remark on an interval that is shorter than what was spent, with both as text.
fn over(
    remarks: &mut Remarks<'_>,
    key: &str,
    interval_ms: u64,
    spent: Option<Spent<'_>>,
    why: impl FnOnce(String, String) -> String,
) {
    if let Some(spent) = spent.filter(|spent| interval_ms < spent.half_ms) {
        remarks.note(true, key, |r| why(spent.text(), r.text(key)));
    }
}

fn walk(remarks: &mut Remarks<'_>, spent: &[Spent<'_>]) {
    let key = "wal_compaction_interval_secs";
    let tick_ms = remarks.policy.tick_ms;
    let is_on = |_: &Spent<'_>| tick_ms > 0;
    over(remarks, key, tick_ms, longest(spent, |kind| kind == WALK).filter(is_on), |text, tick| {
        format!("{text}, and the next begins {tick} after it began: it waits for the one before instead")
    });
    let fold = longest(spent, |kind| kind == FOLD).filter(is_on);
    let walks = fold.map_or(0, |fold| fold.half_ms / tick_ms.max(1));
    over(remarks, key, tick_ms, fold, |text, tick| {
        format!("{text}, and a shard that it folds is looked at every {tick}: {walks} looks find the same pass at work")
    });
}

fn sweep(remarks: &mut Remarks<'_>, spent: &[Spent<'_>]) {
    let key = "agent_sweep_interval_secs";
    let (sweep_ms, timeout_ms) = (remarks.policy.agent.sweep_ms, remarks.policy.agent.timeout_ms);
    let evaluation = longest(spent, |kind| kind == EVALUATION);
    over(remarks, "agent_evaluation_timeout_secs", timeout_ms, evaluation, |text, timeout| {
        format!("{text}, and after {timeout} an evaluation has failed: nothing is decided")
    });
    over(remarks, key, sweep_ms, evaluation, |text, sweep| {
        format!("{text}, and the sweep wants the next {sweep} after it began: the table is read without a pause")
    });
    // The fold is the walk's, and cleanup has an interval and a wait of its own.
    let job = longest(spent, |kind| ![FOLD, CLEANUP, WALK, EVALUATION].contains(&kind));
    let sweeps = job.map_or(0, |job| job.half_ms / sweep_ms.max(1));
    over(remarks, key, sweep_ms, job, |text, sweep| {
        format!(
            "{text}, and the sweep comes every {sweep}: {sweeps} times it finds the same job at work, and one that \
             fails is tried again after {sweep} at most"
        )
    });
}

/// Ages that what comes during the job has reached when it ends.
fn ages(remarks: &mut Remarks<'_>, spent: &[Spent<'_>]) {
    let policy = remarks.policy;
    let fold = longest(spent, |kind| kind == FOLD);
    over(remarks, "wal_max_data_age_secs", policy.age_ms_max, fold, |text, age| {
        format!("{text}, and what is flushed when it begins is {age} old before it ends: folds follow without a pause")
    });
    let index = longest(spent, |kind| kind.starts_with("reindex_"));
    over(remarks, "index_unindexed_age_secs", policy.index.age_ms_max, index, |text, age| {
        format!("{text}, and a row that comes when it begins is {age} old before it ends: the next is due at once")
    });
    let remap = longest(spent, |kind| kind == "remap");
    over(remarks, "remap_age_secs", policy.remap.age_ms_max, remap, |text, age| {
        format!(
            "{text}, and a rewrite that is recorded when it begins is {age} old before it ends: the next is due at once"
        )
    });
}
