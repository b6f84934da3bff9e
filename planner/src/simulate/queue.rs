//! Jobs that wait and run: keys, lanes and slots as the Job Registry and its workers have them.

use alloc::{format, string::String, vec::Vec};

use super::work::Work;
use crate::job::JobSpec;
use crate::plan::{Decision, Reason};

/// An open job.
pub(super) struct Open {
    pub(super) id: u64,
    pub(super) kind: String,
    pub(super) decision: Decision,
    pub(super) spec: JobSpec,
    /// What it does to what: of equal ones one is open.
    key: String,
    pub(super) lane: Lane,
    /// Less goes first.
    priority: u8,
    pub(super) enqueued_ms: u64,
    pub(super) started_ms: Option<u64>,
    pub(super) attempts: u64,
    pub(super) why: Option<Reason>,
    pub(super) run: Option<Run>,
}

/// An attempt.
#[derive(Clone)]
pub(super) struct Run {
    /// Jobs that are one claim have one: they are one pass and one commit.
    pub(super) claim: u64,
    /// When it ends, or, of a dead worker, when the job is given to another.
    pub(super) at_ms: u64,
    pub(super) dead: bool,
    pub(super) work: Work,
}

/// Of the jobs in one lane one claim runs at a time.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Lane {
    /// Jobs that commit to the base: two would only fail each other's commits.
    Base,
    Cleanup,
    Shard(String),
}

/// The open jobs, by id.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) open: Vec<Open>,
    last: u64,
}

impl Queue {
    /// Takes a job in; one of which an equal is open is refused.
    pub(super) fn push(&mut self, spec: &JobSpec, decision: Decision, why: Option<Reason>, now_ms: u64) -> bool {
        let kind = spec.kind();
        let key = match spec {
            JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } | JobSpec::Remap { indexes } => {
                format!("{kind} {}", indexes.join(","))
            }
            _ => format!("{kind} {}", spec.shard().unwrap_or_default()),
        };
        if self.open.iter().any(|open| open.key == key) {
            return false;
        }
        let shard = || Lane::Shard(spec.shard().unwrap_or_default().into());
        let (priority, lane) = match spec {
            JobSpec::CatchUp { .. } => (0, Lane::Base),
            JobSpec::Fold { .. } => (1, Lane::Base),
            JobSpec::Retire { .. } => (2, shard()),
            JobSpec::Index { .. } => (3, Lane::Base),
            JobSpec::Compact { .. } => (4, Lane::Base),
            JobSpec::Cleanup { .. } => (5, Lane::Cleanup),
            JobSpec::Remap { .. } => (6, Lane::Base),
            JobSpec::Collect { .. } => (7, shard()),
        };
        self.last += 1;
        self.open.push(Open {
            id: self.last,
            kind,
            decision,
            spec: spec.clone(),
            key,
            lane,
            priority,
            enqueued_ms: now_ms,
            started_ms: None,
            attempts: 0,
            why,
            run: None,
        });
        true
    }

    /// Claims that run.
    pub(super) fn claims(&self) -> usize {
        let mut claims: Vec<u64> = self.open.iter().filter_map(|open| Some(open.run.as_ref()?.claim)).collect();
        claims.sort_unstable();
        claims.dedup();
        claims.len()
    }

    /// The most urgent job that may begin, with the folds of the table's other shards up to `pass_bytes`:
    /// one pass and one commit does for all.
    pub(super) fn claim(&self, slots: u64, folds: u64, pass_bytes: u64) -> Vec<usize> {
        if self.claims() as u64 >= slots {
            return Vec::new();
        }
        let free = |lane: &Lane| !self.open.iter().any(|open| open.run.is_some() && open.lane == *lane);
        let waits = |open: &&Open| open.run.is_none() && (folds > 0 || !is_fold(open)) && free(&open.lane);
        let Some(first) = self.open.iter().filter(waits).min_by_key(|open| (open.priority, open.id)) else {
            return Vec::new();
        };
        if !is_fold(first) {
            return self.open.iter().position(|open| open.id == first.id).into_iter().collect();
        }
        let mut left = pass_bytes.saturating_sub(size(first, pass_bytes));
        let mut taken = Vec::new();
        for (at, open) in self.open.iter().enumerate().filter(|(_, open)| is_fold(open) && open.run.is_none()) {
            let bytes = size(open, pass_bytes);
            if open.id == first.id {
                taken.push(at);
            } else if bytes <= left {
                left -= bytes;
                taken.push(at);
            }
        }
        taken
    }

    /// When the next attempt ends, or is given up.
    pub(super) fn next(&self) -> Option<u64> {
        self.open.iter().filter_map(|open| Some(open.run.as_ref()?.at_ms)).min()
    }
}

pub(super) fn is_fold(open: &Open) -> bool {
    matches!(open.spec, JobSpec::Fold { .. })
}

/// An unmeasured prefix counts as a whole pass.
fn size(open: &Open, pass_bytes: u64) -> u64 {
    match &open.spec {
        JobSpec::Fold { bytes, .. } => bytes.unwrap_or(pass_bytes),
        _ => 0,
    }
}
