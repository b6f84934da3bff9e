//! A large job is cut into parts, which any worker may take; the job waits for them and commits once.
//!
//! ```text
//! job ── cut ──► parts ── claim ──► this worker, one after the other
//!  ▲              │  └─── claim ──► any other worker
//!  └── take the outputs out of the registry, commit or delete them ◄── all have ended
//! ```
//!
//! A worker whose slots are all taken by such jobs still gets on, since each works off its own parts. What a
//! part wrote is deleted by whoever has the right to commit it. Where nobody is left who has it, because a
//! worker died on the way, Lance's cleanup takes the files when they are a week old.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use lance::dataset::optimize::RewriteResult;
use lance_table::format::Fragment;
use planner::job::JobSpec;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Tender;
use crate::catalog::TableRef;
use crate::error::{Error, Result};
use crate::registry::{Claim, Job, NewJob, POLL, Part, Queued, Ring, State, Want};
use crate::report::JobReport;
use crate::run::compact::{self, CompactReport, Uncommitted};
use crate::run::files::data_bytes;
use crate::run::task::{self, Task};
use crate::run::{Progress, files};
use crate::table::Table;

/// A job that works on fewer bytes runs in one piece.
pub const SPLIT_BYTES: u64 = 1 << 30;
/// A part is at least this share of those bytes.
pub(super) const SHARE: u64 = 4;
/// Most parts of one job.
const PARTS_MAX: u64 = 256;
/// No further task joins a part of so many rows: its output holds a bit or so of each.
const ROWS_MAX: u64 = 1 << 27;
/// How old an earlier attempt's output may be, well below the week after which Lance's cleanup takes it.
const OUTPUT_AGE_MAX_MS: u64 = 24 * 3_600_000;

/// Work for the parts of one job.
struct Cut {
    /// The parts, by their ids in the registry.
    tasks: BTreeMap<String, usize>,
    rows: Vec<u64>,
}

impl Tender {
    /// Runs a compaction, in parts where it is large.
    pub(super) async fn compact(&self, table: &Table, job: &JobSpec, progress: &Progress) -> Result<CompactReport> {
        let done = async {
            let table = self.check(table, job).await?;
            self.compact_checked(&table, job, progress).await
        };
        self.cleared(table, done.await).await
    }

    /// Clears up after what did not work out. What storage failed is tried again, with the parts that are done.
    pub(super) async fn cleared<T>(&self, table: &Table, done: Result<T>) -> Result<T> {
        if !matches!(done, Ok(_) | Err(Error::Retry(_) | Error::Away(_))) {
            self.clear(table).await;
        }
        done
    }

    async fn compact_checked(&self, table: &Table, job: &JobSpec, progress: &Progress) -> Result<CompactReport> {
        let (groups, shape, predicted) = compact::planned(table, job)?;
        let (Some(lease), Some(parts)) = (table.fence.lease(), cut(&groups, self.split_bytes)) else {
            return compact::compact(table, job, progress).await;
        };
        let parent = self.registry.held(lease).await?;
        let tasks = parts.iter().map(|part| Task::rewrite(table, part, shape)).collect::<Result<Vec<_>>>()?;
        let rows = parts.iter().map(|part| part.iter().flatten().map(compact::live).sum()).collect();
        let outputs = self.work_off(table, &parent, &tasks, rows, !shape.deferred, progress).await?;
        crate::fault::at(&table.uri, "compact.rewritten").await;
        let done = outputs.into_iter().map(|(n, output)| task::rewritten(output, &parts[n])).collect::<Vec<_>>();
        let (good, bad): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
        let good: Vec<RewriteResult> = good.into_iter().filter_map(Result::ok).flatten().collect();
        let written: Vec<Fragment> = good.iter().flat_map(|r| r.new_fragments.clone()).collect();
        let committed = match bad.into_iter().find_map(Result::err) {
            Some(error) => Err(Uncommitted::from(error)),
            None => compact::commit(table, good, shape, predicted).await,
        };
        match committed {
            Ok(report) => Ok(report),
            Err(Uncommitted { error, certain }) => {
                if certain {
                    files::discard(table, written.iter()).await;
                }
                Err(error)
            }
        }
    }

    /// Has the parts of a job done, and returns what they left, each with its number among `tasks`. Some are
    /// missing where they failed, unless `all` are needed.
    pub(super) async fn work_off(
        &self,
        table: &Table,
        parent: &Job,
        tasks: &[Task],
        rows: Vec<u64>,
        all: bool,
        progress: &Progress,
    ) -> Result<Vec<(usize, Value)>> {
        // From before the look: nothing is missed between.
        let mut bell = self.registry.listen();
        let cut = Cut { tasks: self.queue(table, parent, tasks).await?, rows };
        progress.start("parts", cut.rows.iter().sum());
        let ended = self.wait(table, parent, &cut, &mut bell, progress).await?;
        let failed: Vec<&Part> = ended.iter().filter(|part| !part.output).collect();
        if let Some(part) = failed.first() {
            let why = part.message.as_deref().unwrap_or("it was stopped, or what it was cut from has changed");
            let why = format!("{} of {} parts did not work out; the first: {why}", failed.len(), ended.len());
            if all || failed.len() == ended.len() {
                return Err(match part.state {
                    State::Failed => Error::Fatal(why),
                    _ => Error::Conflict(why),
                });
            }
            // Each part stands alone. What is left out is planned again.
            tracing::warn!(table = table.name, "{why}; the others are committed without them");
        }
        let (mut wanted, mut rest) = (Vec::new(), Vec::new());
        for (id, output) in self.registry.take_outputs(parent).await? {
            match cut.tasks.get(&id) {
                Some(n) => wanted.push((*n, output)),
                // An earlier attempt's, from fragments that have changed since.
                None => rest.push(output),
            }
        }
        if all && wanted.len() < tasks.len() {
            rest.extend(wanted.drain(..).map(|(_, output)| output));
        }
        for output in rest {
            task::discard(table, output).await;
        }
        if wanted.is_empty() {
            return Err(Error::Fatal("what the parts left can't be read".into()));
        }
        wanted.sort_by_key(|(n, _)| *n);
        Ok(wanted)
    }

    /// Hands the parts in that no earlier attempt has, and returns all by id.
    async fn queue(&self, table: &Table, parent: &Job, tasks: &[Task]) -> Result<BTreeMap<String, usize>> {
        let now = parent.started_ms.unwrap_or_default();
        let all = self.registry.parts(&parent.id).await?;
        let open: Vec<String> = all.iter().filter(|part| !part.state.is_end()).map(|part| part.id.clone()).collect();
        let there: Vec<(Part, Task)> = all.into_iter().filter_map(known).collect();
        let of_use = |part: &Part| match part.ended_ms {
            None => true,
            Some(ended) => part.output && ended.saturating_add(OUTPUT_AGE_MAX_MS) > now,
        };
        let (mut ids, mut new) = (BTreeMap::new(), Vec::new());
        for (n, task) in tasks.iter().enumerate() {
            match there.iter().find(|(part, has)| of_use(part) && has.is_same(task)) {
                Some((part, _)) => drop(ids.insert(part.id.clone(), n)),
                None => new.push((part(table, parent, task)?, n)),
            }
        }
        for stale in open.iter().filter(|id| !ids.contains_key(*id)) {
            self.registry.cancel(stale).await?;
        }
        // In the order of the registry's answers.
        new.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        let queued = self.registry.enqueue(new.iter().map(|(job, _)| job.clone()).collect(), 0).await?;
        for (queued, (job, n)) in queued.into_iter().zip(new) {
            let Queued::Yes(id) = queued else {
                return Err(Error::Retry(format!("`{}` is there already and was not found", job.key)));
            };
            ids.insert(id, n);
        }
        Ok(ids)
    }

    /// Works the parts off, beside any worker that does too, until all have ended.
    async fn wait(
        &self,
        table: &Table,
        parent: &Job,
        cut: &Cut,
        bell: &mut Receiver<Ring>,
        progress: &Progress,
    ) -> Result<Vec<Part>> {
        let stop = table.fence.stop();
        let mut own: Option<BoxFuture<'_, Vec<JobReport>>> = None;
        loop {
            table.fence.pass()?;
            if own.is_none() {
                let want = Want {
                    worker: self.name.clone(),
                    // What the job itself was given is free while it waits.
                    free_bytes: u64::MAX,
                    folds: false,
                    any: true,
                    root: String::new(),
                    parent: Some(parent.id.clone()),
                };
                let claim = self.registry.claim(&want, 0).await?;
                own = claim.map(|claim| self.attempt_part(claim, table));
            }
            let all = self.registry.parts(&parent.id).await?;
            let mine: Vec<Part> = all.into_iter().filter(|part| cut.tasks.contains_key(&part.id)).collect();
            let ended = |part: &&Part| part.state.is_end();
            progress.at(mine.iter().filter(ended).map(|part| cut.rows[cut.tasks[&part.id]]).sum());
            if own.is_none() && mine.iter().all(|part| part.state.is_end()) {
                return Ok(mine);
            }
            if mine.iter().any(|part| part.state == State::Running) {
                // Whether it gets on is its own worker's to see.
                progress.alive();
            }
            tokio::select! {
                _ = done(&mut own) => own = None,
                () = heard(bell, &table.uri) => {}
                () = tokio::time::sleep(POLL) => {}
                () = stop.cancelled() => {
                    // A part that is told to stop here clears up after itself.
                    if self.clear(table).await && own.is_some() {
                        done(&mut own).await;
                        own = None;
                    }
                }
            }
        }
    }

    /// Stops the parts of a job that does not work out, and deletes what they wrote. Of a paused one they stay,
    /// and so do those of one that is another worker's by now. Whether it did.
    async fn clear(&self, table: &Table) -> bool {
        let Some(lease) = table.fence.lease() else { return false };
        let taken = async {
            let parent = self.registry.held(lease).await?;
            match parent.ask.as_deref() {
                Some("pause") => Ok(None),
                _ => self.registry.take_outputs(&parent).await.map(Some),
            }
        };
        match taken.await {
            Ok(None) => false,
            Ok(Some(outputs)) => {
                for (_, output) in outputs {
                    task::discard(table, output).await;
                }
                true
            }
            Err(error) => {
                tracing::debug!(table = table.name, %error, "parts stay with whoever has the job now");
                false
            }
        }
    }

    /// A boxed future by its type: an attempt at a job may hold one at a part of it.
    fn attempt_part<'a>(&'a self, claim: Claim, table: &'a Table) -> BoxFuture<'a, Vec<JobReport>> {
        async move { self.attempt(claim, Some(table), &Arc::new(Progress::default())).await }.boxed()
    }
}

/// The parts of a compaction, where it is worth cutting.
fn cut(groups: &[Vec<Fragment>], split_bytes: u64) -> Option<Vec<Vec<Vec<Fragment>>>> {
    let bytes = |group: &[Fragment]| group.iter().map(data_bytes).sum::<u64>();
    let total: u64 = groups.iter().map(|group| bytes(group)).sum();
    if total < split_bytes {
        return None;
    }
    let share = (split_bytes / SHARE).max(total.div_ceil(PARTS_MAX));
    let (mut parts, mut held, mut rows) = (vec![Vec::new()], 0, 0);
    for group in groups {
        if held >= share || rows >= ROWS_MAX {
            parts.push(Vec::new());
            (held, rows) = (0, 0);
        }
        held += bytes(group);
        rows += group.iter().map(compact::live).sum::<u64>();
        parts.last_mut()?.push(group.clone());
    }
    (parts.len() > 1).then_some(parts)
}

/// A part as the registry takes it.
fn part(table: &Table, parent: &Job, task: &Task) -> Result<NewJob> {
    let at = TableRef { name: table.name.clone(), uri: table.uri.clone() };
    let spec = serde_json::to_string(task).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
    Ok(NewJob::part(parent, at, task.kind(), spec))
}

fn known(part: Part) -> Option<(Part, Task)> {
    let task = Task::deserialize(&part.spec).ok()?;
    Some((part, task))
}

async fn done(own: &mut Option<BoxFuture<'_, Vec<JobReport>>>) {
    match own {
        Some(own) => drop(own.await),
        None => std::future::pending().await,
    }
}

/// Waits until something happened that may be about the table's parts.
async fn heard(bell: &mut Receiver<Ring>, uri: &str) {
    loop {
        match bell.recv().await {
            Ok(Ring::Ended(of)) if of != uri => {}
            Ok(Ring::Ended(_) | Ring::Anything) | Err(RecvError::Lagged(_)) => return,
            Ok(Ring::Waiting | Ring::Asked | Ring::Members) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
