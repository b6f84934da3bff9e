//! What is kept of jobs, and the sums.

use alloc::{collections::BTreeMap, collections::VecDeque, string::String, vec::Vec};

use super::queue::{Open, is_fold};
use super::series::spread;
use super::start::{JOBS_MAX, Simulation};
use super::timeline::{JobOutcome, JobRecord, Samples, Spread, Staleness, Timeline, Totals};
use crate::facts::TableFacts;
use crate::lint::{self, Seen};
use crate::plan::Plan;

/// What there is at the end.
pub(super) struct Left {
    pub(super) open: Vec<Open>,
    pub(super) live_rows: u64,
    pub(super) facts: TableFacts,
    pub(super) plan: Plan,
}

/// Jobs so far.
#[derive(Default)]
pub(super) struct Records {
    first: Vec<JobRecord>,
    last: VecDeque<JobRecord>,
    left_out: BTreeMap<String, u64>,
    /// How long jobs waited until they began.
    pub(super) waits: Vec<u64>,
    pub(super) totals: Totals,
    longest_fold_ms: u64,
}

impl Records {
    /// Bytes written, by whom.
    pub(super) fn wrote(&mut self, by: &str, bytes: u64) {
        match self.totals.written_bytes.get_mut(by) {
            Some(sum) => *sum = sum.saturating_add(bytes),
            None => drop(self.totals.written_bytes.insert(by.into(), bytes)),
        }
    }

    /// A job ended.
    pub(super) fn close(&mut self, open: Open, outcome: JobOutcome, now_ms: u64) {
        let work = open.run.as_ref().map(|run| run.work).unwrap_or_default();
        let kind = self.totals.jobs.entry(open.kind.clone()).or_default();
        match outcome {
            JobOutcome::Done => kind.done += 1,
            JobOutcome::Failed => kind.failed += 1,
            JobOutcome::Conflict => kind.conflicts += 1,
            JobOutcome::Open => kind.open += 1,
        }
        self.totals.failures += u64::from(outcome == JobOutcome::Failed);
        let ended_ms = (outcome != JobOutcome::Open).then_some(now_ms);
        if let (Some(started), Some(ended)) = (open.started_ms, ended_ms) {
            kind.busy_ms = kind.busy_ms.saturating_add(ended - started);
            kind.read_bytes = kind.read_bytes.saturating_add(work.read_bytes);
            kind.written_bytes = kind.written_bytes.saturating_add(work.written_bytes);
            self.wrote(&open.kind, work.written_bytes);
        }
        if is_fold(&open) && outcome != JobOutcome::Open {
            self.longest_fold_ms = self.longest_fold_ms.max(now_ms - open.enqueued_ms);
        }
        let worked = ended_ms.is_some();
        self.keep(JobRecord {
            id: open.id,
            shard: open.spec.shard().map(Into::into),
            kind: open.kind,
            decision: open.decision,
            enqueued_ms: open.enqueued_ms,
            started_ms: open.started_ms.filter(|_| worked || open.run.is_some()),
            ended_ms,
            outcome,
            attempts: open.attempts,
            read_bytes: if worked { work.read_bytes } else { 0 },
            written_bytes: if worked { work.written_bytes } else { 0 },
            why: open.why,
        });
    }

    fn keep(&mut self, record: JobRecord) {
        let half = JOBS_MAX / 2;
        if self.first.len() < half {
            return self.first.push(record);
        }
        self.last.push_back(record);
        if self.last.len() > half
            && let Some(gone) = self.last.pop_front()
        {
            *self.left_out.entry(gone.kind).or_default() += 1;
        }
    }

    /// The timeline of all there is.
    pub(super) fn end(mut self, simulation: &Simulation, left: Left, samples: Samples, staleness: Spread) -> Timeline {
        let Left { open, live_rows, facts, plan } = left;
        let duration_ms = simulation.duration_ms;
        for open in open {
            self.close(open, JobOutcome::Open, duration_ms);
        }
        let (workload, policy) = (&simulation.workload, &simulation.policy);
        let own = policy.for_table(&facts.overrides).policy;
        let bound = own.age_ms_max.saturating_mul(2).saturating_add(own.tick_ms);
        let bound_ms = (own.tick_ms > 0).then_some(bound);
        let above = |bound: u64| staleness.max > bound.saturating_add(self.longest_fold_ms);
        let totals = &mut self.totals;
        totals.staleness = Staleness {
            over_time: staleness,
            bound_ms,
            longest_fold_ms: self.longest_fold_ms,
            above: bound_ms.is_some_and(above),
        };
        totals.queue_wait = spread(self.waits);
        totals.bytes = totals.rows.saturating_mul(workload.row_bytes);
        let written = totals.written_bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        totals.write_amplification_permille = super::rows::share(written, 1_000, totals.bytes);
        let live = live_rows.saturating_mul(workload.row_bytes);
        let disk_bytes = samples.disk_bytes.last().copied().unwrap_or(0);
        totals.space_amplification_permille = super::rows::share(disk_bytes, 1_000, live);
        totals.versions = facts.versions.unwrap_or(0);
        totals.unfolded_max = samples.shards.iter().flat_map(|shard| &shard.unfolded).copied().max().unwrap_or(0);
        let mut jobs = self.first;
        jobs.extend(self.last);
        jobs.sort_by_key(|job| (job.enqueued_ms, job.id));
        let mut lint = policy.lint();
        let longest = workload.longest_read_ms;
        let seen = Seen { longest_read_ms: (longest > 0).then_some(longest), ..Seen::default() };
        lint.extend(lint::table(policy, &facts, &seen));
        let mut faults = simulation.faults.clone();
        faults.sort_by_key(super::Fault::at_ms);
        Timeline {
            start_ms: simulation.start_ms(),
            duration_ms,
            seed: simulation.seed,
            samples,
            jobs,
            jobs_left_out: self.left_out,
            faults,
            totals: self.totals,
            lint,
            facts,
            plan,
        }
    }
}
