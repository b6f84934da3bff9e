//! When a shard's SSTables are folded into the base (section 2).

use alloc::{format, string::String, vec, vec::Vec};

use crate::facts::SsTableFacts;
use crate::pick;
use crate::plan::{Case, Measure, Outcome, Reason, Trigger};
use crate::policy::Policy;
use crate::time::age_ms;

/// Due when a trigger crosses, or when it is forced and there is anything to fold.
///
/// The collision rule (R2.12), sealed shards, paused tables and missing keys are gates.
pub(crate) fn decide(case: &Case<'_>) -> Outcome {
    if case.trigger == Trigger::Tick && case.policy.tick_ms == 0 {
        return Outcome::Disabled { knob: "wal_compaction_interval_secs".into() };
    }
    let unfolded = case.shard.unfolded();
    let mut reasons = compare(&unfolded, case.policy, case.now_ms);
    if case.trigger == Trigger::Forced {
        reasons.insert(0, Reason::new(Measure::Forced, unfolded.len() as u64, 1));
    }
    // With nothing to fold a trigger of 0 would cross: there must be an SSTable all the same.
    let deciding = reasons.iter().position(Reason::crosses).filter(|_| !unfolded.is_empty());
    let Some(deciding) = deciding else {
        let due_at_ms = age_due_at(&unfolded, case.policy);
        return Outcome::NotDue { reasons, due_at_ms };
    };
    // The first that crosses wins (R2.2); the others stay in their order behind it.
    reasons[..=deciding].rotate_right(1);
    let job = pick::prefix::fold(&case.shard.shard, &unfolded, case.policy);
    Outcome::Due { jobs: vec![job], reasons }
}

/// Count, bytes, age, in the order in which they win.
fn compare(unfolded: &[&SsTableFacts], policy: &Policy, now_ms: u64) -> Vec<Reason> {
    let mut reasons = vec![Reason::new(Measure::SsTables, unfolded.len() as u64, policy.trigger_count)];
    if !unfolded.is_empty() {
        reasons.push(bytes(unfolded, policy.trigger_bytes));
        reasons.push(age(unfolded, policy.age_ms_max, now_ms));
    }
    reasons
}

/// Sizes add up; the sum is exact when every SSTable is measured.
fn bytes(unfolded: &[&SsTableFacts], threshold: u64) -> Reason {
    let sum = unfolded.iter().filter_map(|s| s.bytes).fold(0, u64::saturating_add);
    let unmeasured = unfolded.iter().filter(|s| s.bytes.is_none()).count();
    let reason = Reason::new(Measure::SsTableBytes, sum, threshold);
    if unmeasured == 0 { reason } else { at_least(reason, unmeasured, unfolded.len()) }
}

/// Generations are flushed in order, so the oldest one's age is exact, and a younger one's is a
/// lower bound where the oldest is unmeasured. A clock that went backwards makes the age 0.
fn age(unfolded: &[&SsTableFacts], threshold: u64, now_ms: u64) -> Reason {
    let ages = unfolded.iter().filter_map(|s| s.flushed_at_ms).map(|at| age_ms(now_ms, at));
    let reason = Reason::new(Measure::SsTableAgeMs, ages.max(), threshold);
    let unmeasured = unfolded.iter().filter(|s| s.flushed_at_ms.is_none()).count();
    let exact = unfolded.first().is_some_and(|s| s.flushed_at_ms.is_some());
    if exact { reason } else { at_least(reason, unmeasured, unfolded.len()) }
}

/// What was measured is only a lower bound: it may cross, but it can't show that nothing crosses
/// (R2.2: an unmeasured size is not zero and not a crossing).
fn at_least(reason: Reason, unmeasured: usize, of: usize) -> Reason {
    let subject: String = format!("{unmeasured} of {of} unmeasured");
    let observed = reason.observed.filter(|_| reason.crosses());
    Reason { observed, ..reason }.of(subject)
}

/// When time alone makes the age trigger cross: exact, as nothing else moves with time.
fn age_due_at(unfolded: &[&SsTableFacts], policy: &Policy) -> Option<u64> {
    unfolded.iter().filter_map(|s| s.flushed_at_ms).min()?.checked_add(policy.age_ms_max)
}
