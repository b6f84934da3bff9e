//! Where two plans for the same moment do different things, and about what it costs.

use planner::job::JobSpec;
use planner::plan::{Decision, Outcome, Plan, Verdict};
use serde::{Deserialize, Serialize};

/// A decision on which two plans differ. What is done counts: neither reasons nor why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Which decision.
    pub decision: Decision,
    /// The shard, for a shard decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// What the one says: `due`, `not_due`, `held` or `disabled`.
    pub was: String,
    /// What the other says.
    pub now: String,
    /// Jobs of the one that the other has not.
    pub less: Vec<JobSpec>,
    /// Jobs of the other that the one has not.
    pub more: Vec<JobSpec>,
}

/// Work that plans ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Jobs.
    pub jobs: u64,
    /// Bytes that they read and write anew, as far as that was measured.
    pub bytes: u64,
}

/// Where `now` does something else than `was`, in the order of decisions and shards.
pub fn differences(was: &Plan, now: &Plan) -> Vec<Difference> {
    let at = |verdict: &Verdict| (verdict.decision, verdict.shard.clone());
    let mut places: Vec<_> = was.verdicts.iter().chain(&now.verdicts).map(at).collect();
    places.sort();
    places.dedup();
    let of = |plan: &Plan, place: &(Decision, Option<String>)| {
        let found = plan.verdicts.iter().find(|verdict| at(verdict) == *place);
        found.map_or_else(|| ("none", Vec::new()), |verdict| said(&verdict.outcome))
    };
    let differs = |place: (Decision, Option<String>)| {
        let ((was, had), (now, has)) = (of(was, &place), of(now, &place));
        let less: Vec<JobSpec> = had.iter().filter(|job| !has.contains(job)).cloned().collect();
        let more: Vec<JobSpec> = has.into_iter().filter(|job| !had.contains(job)).collect();
        let same = less.is_empty() && more.is_empty();
        let (decision, shard) = place;
        (!same).then(|| Difference { decision, shard, was: was.into(), now: now.into(), less, more })
    };
    places.into_iter().filter_map(differs).collect()
}

/// What a plan asks for.
pub fn work(plan: &Plan) -> Work {
    plan.jobs().fold(Work::default(), |work, job| Work { jobs: work.jobs + 1, bytes: work.bytes + bytes(job) })
}

/// Bytes that a job works on, where they were measured.
pub(crate) fn bytes(job: &JobSpec) -> u64 {
    match job {
        JobSpec::Fold { bytes, .. } => bytes.unwrap_or(0),
        JobSpec::Compact { predicted, .. } => predicted.bytes.unwrap_or(0),
        JobSpec::Collect { bytes, .. } => *bytes,
        _ => 0,
    }
}

fn said(outcome: &Outcome) -> (&'static str, Vec<JobSpec>) {
    match outcome {
        Outcome::Due { jobs, .. } => ("due", jobs.clone()),
        Outcome::NotDue { .. } => ("not_due", Vec::new()),
        Outcome::Held { .. } => ("held", Vec::new()),
        Outcome::Disabled { .. } => ("disabled", Vec::new()),
    }
}
