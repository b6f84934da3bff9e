//! Whether old versions go (section 4).

use alloc::{vec, vec::Vec};

use crate::facts::{CleanupFacts, TableFacts};
use crate::job::JobSpec;
use crate::plan::{Measure, Outcome, Reason, TableCase};
use crate::policy::CleanupPolicy;
use crate::time::age_ms;

/// Due when a trigger of R4.2 or R4.3 holds, and no failure is too fresh (R4.4).
pub(crate) fn decide(case: &TableCase<'_>) -> Outcome {
    let policy = &case.policy.cleanup;
    if policy.min_age_ms == 0 {
        return Outcome::Disabled { knob: "cleanup_min_version_age_secs".into() };
    }
    if case.table.opted_out_of_cleanup() {
        return Outcome::Disabled { knob: "caretaker.cleanup.enabled".into() };
    }
    let Some(history) = &case.table.cleanup else {
        // Not read: a table that was cleaned a minute ago must not look like one that never was.
        let reasons = vec![Reason::new(Measure::VersionsSince, None, policy.version_interval)];
        return Outcome::NotDue { reasons, due_at_ms: None };
    };
    let mut reasons = triggers(case, history);
    let deciding = reasons.iter().position(Reason::crosses);
    // With versions that cross already, the wait is all; else the age decides, if there was a success.
    let by_age = history.last_success.and_then(|last| last.finished_at_ms.checked_add(policy.interval_ms));
    let due_at_ms = if deciding.is_some() { Some(0) } else { by_age };
    if let Some(failed) = failure(history) {
        let age = age_ms(case.now_ms, failed);
        if age < policy.retry_delay_ms {
            reasons.insert(0, Reason::new(Measure::FailureAgeMs, age, policy.retry_delay_ms));
            let retry = failed.checked_add(policy.retry_delay_ms);
            return Outcome::NotDue { reasons, due_at_ms: due_at_ms.zip(retry).map(|(due, retry)| due.max(retry)) };
        }
    }
    let Some(deciding) = deciding else { return Outcome::NotDue { reasons, due_at_ms } };
    reasons[..=deciding].rotate_right(1);
    Outcome::Due { jobs: vec![job(case.table, policy)], reasons }
}

/// A cleanup by a table's own policy.
pub(crate) fn job(table: &TableFacts, policy: &CleanupPolicy) -> JobSpec {
    JobSpec::Cleanup {
        min_age_ms: policy.min_age_ms,
        retain_versions: policy.retain_versions,
        delete_rate_max: policy.delete_rate_max,
        read_version: table.version,
    }
}

/// A failure that no success has followed.
fn failure(history: &CleanupFacts) -> Option<u64> {
    let healed = |failed: &u64| history.last_success.is_some_and(|last| last.finished_at_ms > *failed);
    history.last_failure_at_ms.filter(|failed| !healed(failed))
}

fn triggers(case: &TableCase<'_>, history: &CleanupFacts) -> Vec<Reason> {
    let (policy, version) = (&case.policy.cleanup, case.table.version);
    let Some(last) = history.last_success else {
        return vec![Reason::new(Measure::InitialVersion, version, policy.initial_version)];
    };
    let mut reasons = Vec::new();
    if version < last.recorded_version {
        // The table was put back to an older version: what was measured from the newer one is void.
        reasons.push(Reason::new(Measure::RecordedVersion, last.recorded_version, version.saturating_add(1)));
    }
    let since = version.saturating_sub(last.start_version);
    reasons.push(Reason::new(Measure::VersionsSince, since, policy.version_interval));
    let age = age_ms(case.now_ms, last.finished_at_ms);
    reasons.push(Reason::new(Measure::CleanupAgeMs, age, policy.interval_ms));
    reasons
}
