//! One attempt at jobs of the registry: kept alive, run, and written down.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures::FutureExt;
use lance_io::object_store::ObjectStore;
use planner::job::JobSpec;
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::{Tender, millis};
use crate::apart::caught;
use crate::catalog::TableRef;
use crate::error::{Error, Result};
use crate::fence::{Fence, Why};
use crate::registry::{Claim, Ended, Job, NewJob};
use crate::report::{JobEnd, JobReport};
use crate::run::build::Build;
use crate::run::task::{self, Task};
use crate::run::{JOB_ID, Progress};
use crate::table::{Table, session};

/// Versions that are searched for the commit of an earlier attempt.
const VERSIONS_SEARCHED: u64 = 1_000;

impl Tender {
    /// Runs planned jobs of a table here and now, as jobs of the registry. One of which an equal one is
    /// open elsewhere is not run.
    pub(super) async fn here(&self, table: &Table, jobs: Vec<JobSpec>, progress: &Arc<Progress>) -> Vec<JobReport> {
        let at = TableRef { name: table.name.clone(), uri: table.uri.clone() };
        let begun = async {
            let new = jobs.iter().map(|job| NewJob::planned(&at, job, &self.policy)).collect::<Result<Vec<_>>>()?;
            self.registry.begin(new, &self.name).await
        };
        let (claim, refused) = match begun.await {
            Ok(begun) => begun,
            Err(error) => {
                let end = JobEnd::from(error);
                let report = |job: &JobSpec| JobReport::new(job.kind(), super::on(job), 0, end.clone());
                return jobs.iter().map(report).collect();
            }
        };
        let mut reports: Vec<JobReport> = refused
            .into_iter()
            .map(|(job, why)| JobReport::new(job.kind, job.shard.into_iter().collect(), 0, why.into()))
            .collect();
        if !claim.jobs.is_empty() {
            // A job's future is large, and those around it hold it: on the heap it costs a thread no stack.
            reports.extend(self.attempt(claim, Some(table), progress).boxed().await);
        }
        reports
    }

    /// Runs claimed jobs and writes down what came of each. What could not be written is in the log, and
    /// the jobs' lease runs out.
    pub async fn attempt(&self, claim: Claim, table: Option<&Table>, progress: &Arc<Progress>) -> Vec<JobReport> {
        let began = Instant::now();
        // One progress may be of several jobs, one after the other.
        progress.start("begin", 0);
        let control = self.control.clone().unwrap_or_else(Handle::current);
        let ids: Vec<&str> = claim.jobs.iter().map(|job| job.id.as_str()).collect();
        let fence = Fence::of(self.registry.clone(), claim.lease.clone(), ids.join(","), control.clone());
        let store = Arc::new(OnceLock::new());
        let kept = fence.clone().keep(progress.clone(), self.stall, moved(store.clone()));
        // A set, because it aborts what it holds when it is dropped.
        let mut keeper = JoinSet::new();
        keeper.spawn_on(kept, &control);
        let work = caught("the job", async { Ok(self.work(&claim, table, &fence, progress, &store).await) }).boxed();
        let worked = tokio::select! {
            worked = work => worked,
            () = fence.overdue() => Ok(Vec::new()),
        };
        let mut reports = worked.unwrap_or_else(|died| {
            let end = || JobEnd::Failed { kind: "fatal", why: died.to_string() };
            let report = |job: &Job| JobReport::new(&job.kind, on(job), millis(began), end());
            claim.jobs.iter().map(report).collect()
        });
        if let Some(Why::Stalled(time)) = fence.why() {
            // Whatever its last word was: somebody has to know.
            reports.retain(|report| !stopped(report));
            let why = format!("it made no progress for {} s and was stopped", time.as_secs());
            let still: Vec<&Job> = claim.jobs.iter().filter(|job| !reports.iter().any(|r| is_of(r, job))).collect();
            reports.extend(still.into_iter().map(|job| {
                let end = JobEnd::Failed { kind: "stalled", why: why.clone() };
                JobReport::new(&job.kind, on(job), millis(began), end)
            }));
        }
        self.tell_rows(&claim.lease, progress, &control).await;
        for job in &claim.jobs {
            self.end(job, &reports, fence.why(), table, &control).await;
        }
        drop(keeper);
        if reports.is_empty() {
            let job = &claim.jobs[0];
            let why = match fence.why() {
                Some(Why::Lost) => "the job was given to another worker",
                _ => "somebody stopped it",
            };
            reports.push(JobReport::new(&job.kind, on(job), millis(began), JobEnd::Superseded { why: why.into() }));
        }
        reports
    }

    /// How far it got in the end: a short job never came to say so.
    async fn tell_rows(&self, lease: &str, progress: &Progress, control: &Handle) {
        let (registry, lease, (stage, done, total)) = (self.registry.clone(), lease.to_string(), progress.read());
        let told = control.spawn(async move { registry.beat(&lease, stage, done, total).await });
        if let Ok(Err(error)) = told.await {
            tracing::debug!(%error, "how far the job got was not written down");
        }
    }

    /// Writes down what came of one job.
    async fn end(&self, job: &Job, reports: &[JobReport], why: Option<Why>, table: Option<&Table>, control: &Handle) {
        let ended = match reports.iter().find(|report| is_of(report, job)) {
            Some(report) if !stopped(report) || !matches!(why, Some(Why::Asked | Why::Lost)) => {
                Ended::Report(Box::new(report.clone()))
            }
            _ if why == Some(Why::Asked) => Ended::Asked,
            // Whoever has it by now says what becomes of it.
            _ if why == Some(Why::Lost) => return,
            // It did not begin: it was told to stop before.
            _ if why.is_some() => Ended::Released,
            // Or its type and its work are not of one kind, as another version may have written it.
            _ => {
                let why = format!("the work of this job is none of type `{}`", job.kind);
                let end = JobEnd::Failed { kind: "invalid", why };
                Ended::Report(Box::new(JobReport::new(&job.kind, on(job), 0, end)))
            }
        };
        crate::fault::at(&job.uri, "job.finish").await;
        let mut written = self.write(job, &ended, control).await;
        let output = match &ended {
            Ended::Report(report) => report.end.output(),
            _ => None,
        };
        if let (Err(Error::Superseded(_)), Some(output)) = (&written, output) {
            // The registry did not take it, and so nobody else knows of these files.
            self.discard(job, table, output.clone()).await;
            written = self.write(job, &Ended::Asked, control).await;
        }
        match written {
            Ok(()) => {}
            // Its end is another's to tell.
            Err(error @ Error::Superseded(_)) => tracing::info!(job = job.id, "{error}"),
            Err(error) => tracing::warn!(job = job.id, %error, "the end of a job could not be written down"),
        }
    }

    async fn write(&self, job: &Job, ended: &Ended, control: &Handle) -> Result<()> {
        let (registry, job, ended) = (self.registry.clone(), job.clone(), ended.clone());
        let written = control.spawn(async move { registry.finish(&job, &ended).await }).await;
        written.unwrap_or_else(|died| Err(Error::Fatal(died.to_string())))
    }

    /// Deletes what a part wrote that came too late.
    async fn discard(&self, job: &Job, table: Option<&Table>, output: Value) {
        let opened = match table {
            Some(table) => Ok(table.clone()),
            None => Table::open(&job.table, &job.uri, &session()).await,
        };
        match opened {
            Ok(table) => task::discard(&table, output).await,
            Err(error) => tracing::debug!(job = job.id, %error, "left the files of a part behind"),
        }
    }

    async fn work(
        &self,
        claim: &Claim,
        table: Option<&Table>,
        fence: &Fence,
        progress: &Arc<Progress>,
        store: &OnceLock<Arc<ObjectStore>>,
    ) -> Vec<JobReport> {
        let began = Instant::now();
        let first = &claim.jobs[0];
        let failed = |error: Error| {
            let end = JobEnd::from(error);
            claim.jobs.iter().map(|job| JobReport::new(&job.kind, on(job), millis(began), end.clone())).collect()
        };
        let table = match table {
            Some(table) => table.fenced(fence.clone()),
            // A session of its own, so that the requests that are counted are this job's.
            None => match Table::open(&first.table, &first.uri, &session()).await {
                Ok(table) => table.fenced(fence.clone()),
                Err(error) => return failed(error),
            },
        };
        let _ = store.set(table.store());
        let specs: Vec<Spec> = match claim.jobs.iter().map(|job| spec(&job.spec)).collect() {
            Ok(specs) => specs,
            Err(error) => return failed(error),
        };
        let mut reports = match specs.first() {
            Some(Spec::Job(JobSpec::Fold { .. })) => {
                let folds = specs.into_iter().filter_map(Spec::job).collect();
                self.fold(&table, folds, progress).boxed().await
            }
            Some(Spec::Job(one)) => vec![self.compared(&table, one, progress).boxed().await],
            Some(Spec::Part(task)) => {
                crate::fault::at(&table.uri, "part.before").await;
                let ran = task.run(&table, progress).boxed().await;
                let end = ran.map_or_else(JobEnd::from, |output| JobEnd::Part { output });
                crate::fault::at(&table.uri, "part.after").await;
                vec![JobReport::new(&first.kind, Vec::new(), millis(began), end)]
            }
            Some(Spec::Build(build)) => {
                let ran = build.run(&table, progress).boxed().await;
                let end = ran.map_or_else(JobEnd::from, |()| JobEnd::Indexed);
                vec![JobReport::new(&first.kind, Vec::new(), millis(began), end)]
            }
            None => Vec::new(),
        };
        if claim.jobs.iter().any(|job| job.attempt > 1) {
            self.reconcile(&table, claim, &mut reports).await;
        }
        reports
    }

    /// An earlier attempt may have done the work and died before it said so (report JOB-10).
    async fn reconcile(&self, table: &Table, claim: &Claim, reports: &mut [JobReport]) {
        for report in reports.iter_mut().filter(|report| matches!(report.end, JobEnd::Superseded { .. })) {
            let Some(job) = claim.jobs.iter().find(|job| job.attempt > 1 && is_of(report, job)) else { continue };
            match committed_by(table, &job.id).await {
                Ok(Some(version)) => report.end = JobEnd::Recovered { version },
                Ok(None) => {}
                Err(error) => tracing::debug!(job = job.id, %error, "can't look for an earlier attempt's commit"),
            }
        }
    }
}

/// What can be seen of a job's work beside its rows: requests to the storage of its table, once it is open.
fn moved(store: Arc<OnceLock<Arc<ObjectStore>>>) -> impl Fn() -> u64 + Send + 'static {
    move || {
        store.get().map_or(0, |store| {
            let stats = store.io_stats_snapshot();
            stats.read_iops + stats.write_iops
        })
    }
}

/// The version that a job's earlier attempt committed.
async fn committed_by(table: &Table, job: &str) -> Result<Option<u64>> {
    let table = table.refreshed().await?;
    let newest = table.version();
    for version in (newest.saturating_sub(VERSIONS_SEARCHED).max(1)..=newest).rev() {
        // An old version may be gone: what is behind it is older still.
        let Ok(Some(transaction)) = table.dataset.read_transaction_by_version(version).await else { continue };
        let by = transaction.transaction_properties.as_ref().and_then(|properties| properties.get(JOB_ID));
        if by.is_some_and(|ids| ids.split(',').any(|id| id == job)) {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// The work of a job of the registry.
enum Spec {
    /// Planned.
    Job(JobSpec),
    /// A part of what was planned.
    Part(Task),
    /// An index that somebody asked for.
    Build(Build),
}

impl Spec {
    fn job(self) -> Option<JobSpec> {
        match self {
            Self::Job(job) => Some(job),
            Self::Part(_) | Self::Build(_) => None,
        }
    }
}

fn spec(json: &Value) -> Result<Spec> {
    let read = match json {
        Value::Object(part) if part.contains_key("task") => Task::deserialize(json).map(Spec::Part),
        Value::Object(build) if build.contains_key("create") => Build::deserialize(json).map(Spec::Build),
        _ => JobSpec::deserialize(json).map(Spec::Job),
    };
    read.map_err(|e| {
        Error::Invalid(format!("the job's work is not understood, it may be of another version of Caretaker: {e}"))
    })
}

fn on(job: &Job) -> Vec<String> {
    match (&job.shard, spec(&job.spec)) {
        (Some(shard), _) => vec![shard.clone()],
        (None, Ok(Spec::Job(spec))) => crate::registry::indexes(&spec),
        (None, _) => Vec::new(),
    }
}

/// Whether a report is that of a job: one may be of many shards' folds.
fn is_of(report: &JobReport, job: &Job) -> bool {
    report.job == job.kind && job.shard.as_ref().is_none_or(|shard| report.on.contains(shard))
}

/// Whether it did not get to an end of its own.
fn stopped(report: &JobReport) -> bool {
    matches!(report.end, JobEnd::Superseded { .. } | JobEnd::Failed { .. })
}
