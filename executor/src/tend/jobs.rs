//! The jobs of one plan: checked against the table as it is now, run, their answers compared.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use planner::job::{IndexOp, JobSpec};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Tender, millis, on};
use crate::answers::{self, Answers, Before, Work};
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::read::{self, Depth, table_facts};
use crate::report::{JobEnd, JobReport};
use crate::run::fold::{FoldReport, Prefix, fold};
use crate::run::{Progress, cleanup, collect, index, remap, retire};
use crate::table::Table;

/// Passes at once in one process (R2.6, remote maintenance off).
pub(super) const PASSES_MAX: usize = 2;
/// The unit in which passes share the byte budget.
pub(super) const BUDGET_UNIT: u64 = 1 << 20;

impl Tender {
    /// Runs due jobs in plan order; all folds of the table go into one pass and one commit.
    pub(super) async fn run(&self, table: &Table, due: Vec<JobSpec>, progress: &Arc<Progress>) -> Vec<JobReport> {
        let mut reports = Vec::new();
        let (folds, rest): (Vec<_>, Vec<_>) = due.into_iter().partition(|job| matches!(job, JobSpec::Fold { .. }));
        let (first, last): (Vec<_>, Vec<_>) = rest.into_iter().partition(|job| matches!(job, JobSpec::CatchUp { .. }));
        for job in first {
            reports.extend(self.here(table, vec![job], progress).await);
        }
        let folding = !folds.is_empty() && !self.stops(&reports);
        if folding {
            reports.extend(self.here(table, self.one_pass(folds), progress).await);
        }
        for job in last {
            if self.stops(&reports) {
                break;
            }
            // What was planned for a shard from before the fold is planned again from after it. The
            // base's own jobs go on: a table that always has something to fold would never get to them.
            if folding && job.shard().is_some() {
                continue;
            }
            reports.extend(self.here(table, vec![job], progress).await);
        }
        reports
    }

    /// As many folds as one pass may take, oldest plan first; always one.
    fn one_pass(&self, folds: Vec<JobSpec>) -> Vec<JobSpec> {
        let mut left = self.policy.pass_bytes;
        let mut taken = Vec::new();
        for job in folds {
            let JobSpec::Fold { bytes, .. } = &job else { continue };
            // An unmeasured prefix counts as a whole pass.
            let size = bytes.unwrap_or(self.policy.pass_bytes);
            if taken.is_empty() || size <= left {
                left = left.saturating_sub(size);
                taken.push(job);
            }
        }
        taken
    }

    /// Whether no further job begins: the process is to stop, or a job changed the table's answers.
    fn stops(&self, reports: &[JobReport]) -> bool {
        self.stop.is_cancelled() || reports.iter().any(|report| report.end.is_mismatch())
    }

    /// Runs a job, and where it is one of those chosen compares the table's answers around it.
    pub(super) async fn compared(&self, table: &Table, job: &JobSpec, progress: &Progress) -> JobReport {
        let started = Instant::now();
        let work = match job {
            JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } => Work::Indexes(indexes),
            JobSpec::Retire { .. } | JobSpec::Collect { .. } => Work::Shards,
            _ => Work::Base,
        };
        let before = self.before(table, &job.kind(), &work).await;
        let end = self.run_one(table, job, progress).boxed().await;
        let (end, answers) = after(table, &work, before, end).await;
        JobReport { answers, ..JobReport::new(job.kind(), on(job), millis(started), end) }
    }

    /// What the table answers before a job; `None`: it is none of those chosen.
    async fn before(&self, table: &Table, kind: &str, work: &Work<'_>) -> Option<Before> {
        let config = read::overrides(&table.dataset);
        let percent = self.policy.for_table(&config).policy.answers_percent;
        match answers::chosen(table, kind, percent) {
            true => Some(Before::of(table, work).await),
            false => None,
        }
    }

    async fn run_one(&self, table: &Table, job: &JobSpec, progress: &Progress) -> Result<JobEnd> {
        match job {
            JobSpec::CatchUp { indexes, .. } => {
                index::index(table, indexes, IndexOp::Append, "catchup.after").await?;
                Ok(JobEnd::CaughtUp)
            }
            JobSpec::Retire { shard, sstables } => {
                self.check(table, job).await?;
                Ok(JobEnd::Retired { sstables: retire::retire(table, shard, sstables).await? })
            }
            JobSpec::Collect { .. } => {
                let done = collect::collect(table, job, &self.sizes).await?;
                Ok(JobEnd::Collected { files: done.files, bytes: done.bytes })
            }
            JobSpec::Index { indexes, op, .. } => {
                let checked = self.check(table, job).await;
                let table = self.cleared(table, checked).await?;
                self.index(&table, indexes, *op, progress).await?;
                self.check_indexed(&table, job, indexes).await?;
                Ok(JobEnd::Indexed)
            }
            JobSpec::Compact { .. } => Ok(JobEnd::Compacted(self.compact(table, job, progress).await?)),
            JobSpec::Cleanup { .. } => {
                let table = self.check(table, job).await?;
                // Only this job can take files away that a clone reads, so it is the one that looks for them.
                if let Some(clone) = self.clones.beside(&table).await?.first() {
                    return Err(Error::Superseded(format!(
                        "`{clone}` is a shallow clone that reads files of this table"
                    )));
                }
                Ok(JobEnd::Cleaned(cleanup::cleanup(&table, job).await?))
            }
            JobSpec::Remap { indexes } => {
                let table = self.check(table, job).await?;
                remap::remap(&table, indexes).await?;
                Ok(JobEnd::Remapped)
            }
            JobSpec::Fold { shard, .. } => Err(Error::Fatal(format!("the fold of shard `{shard}` runs in a pass"))),
        }
    }

    /// Checks a job against the table as it is now (R3.6), and returns that.
    pub(super) async fn check(&self, table: &Table, job: &JobSpec) -> Result<Table> {
        let fresh = table.refreshed().await?;
        let facts = table_facts(&fresh, Depth::Fold, &self.sizes).await?;
        match planner::check::job(job, &facts) {
            Ok(()) => Ok(fresh),
            Err(violations) => {
                let why: Vec<String> = violations.iter().map(ToString::to_string).collect();
                Err(Error::Conflict(format!("{} no longer fits the table: {}", job.kind(), why.join("; "))))
            }
        }
    }

    /// An index job that leaves every segment as it was would be due again at once, for ever: it has failed.
    async fn check_indexed(&self, table: &Table, job: &JobSpec, names: &[String]) -> Result<()> {
        let after = table.refreshed().await?;
        let facts = table_facts(&after, Depth::Fold, &self.sizes).await?;
        let done = planner::check::job(job, &facts).is_err();
        if !done && read::segments_of(&after, names).await? == read::segments_of(table, names).await? {
            return Err(Error::Fatal(format!("{} of {} changed nothing", job.kind(), names.join(", "))));
        }
        Ok(())
    }

    /// One pass over every shard that is due. A shard whose latch is held is left out.
    pub(super) async fn fold(&self, table: &Table, jobs: Vec<JobSpec>, progress: &Arc<Progress>) -> Vec<JobReport> {
        let (mut reports, mut held, mut prefixes, mut wanted) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
        for job in jobs {
            let JobSpec::Fold { shard, sstables, bytes } = &job else { continue };
            let size = bytes.unwrap_or(self.policy.pass_bytes);
            match self.latches.take(table, shard, now_ms()) {
                Ok(latch) => {
                    wanted += size;
                    held.push(latch);
                    prefixes.push(Prefix { shard: shard.clone(), sstables: sstables.clone() });
                }
                Err(error) => reports.push(JobReport::new(job.kind(), on(&job), 0, error.into())),
            }
        }
        if prefixes.is_empty() {
            return reports;
        }
        let (started, kind, work) = (Instant::now(), "memwal_compaction", Work::Fold(&prefixes));
        let before = self.before(table, kind, &work).await;
        let end = self.pass(table, &prefixes, wanted, progress).boxed().await.map(JobEnd::Folded);
        let (end, answers) = after(table, &work, before, end).await;
        drop(held);
        let on = prefixes.iter().map(|p| p.shard.clone()).collect();
        reports.push(JobReport { answers, ..JobReport::new(kind, on, millis(started), end) });
        reports
    }

    async fn pass(
        &self,
        table: &Table,
        prefixes: &[Prefix],
        bytes: u64,
        progress: &Arc<Progress>,
    ) -> Result<FoldReport> {
        let whole = self.policy.pass_bytes.div_ceil(BUDGET_UNIT).max(1);
        let share = bytes.div_ceil(BUDGET_UNIT).clamp(1, whole).min(u64::from(u32::MAX)) as u32;
        let _held = match self.shared {
            true => Some((acquire(&self.passes, 1).await?, acquire(&self.budget, share).await?)),
            false => None,
        };
        let memory = self.policy.pass_memory_bytes / PASSES_MAX as u64;
        let (_, report) = fold(table, prefixes, memory, progress).await?;
        Ok(report)
    }
}

pub(super) async fn acquire(from: &Semaphore, permits: u32) -> Result<SemaphorePermit<'_>> {
    from.acquire_many(permits).await.map_err(|e| Error::Fatal(format!("the pool of passes is closed: {e}")))
}

/// Compares what a job that went well left with what there was before it.
async fn after(
    table: &Table,
    work: &Work<'_>,
    before: Option<Before>,
    end: Result<JobEnd>,
) -> (JobEnd, Option<Answers>) {
    let (end, before) = match (end, before) {
        (Ok(end), Some(before)) => (end, before),
        (end, _) => return (end.unwrap_or_else(JobEnd::from), None),
    };
    match before.compare(table, work, &end).await {
        Ok(answers) => (end, Some(answers)),
        Err(error) => (error.context(format!("{end}, but now the table answers differently")).into(), None),
    }
}
