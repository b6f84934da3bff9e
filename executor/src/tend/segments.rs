//! An index that lacks many rows is brought up to date in parts: each builds a segment, then they are merged
//! and committed in one version.

use lance::index::optimize::OptimizeIndicesPlan;
use planner::job::IndexOp;

use super::Tender;
use super::parts::SHARE;
use crate::error::Result;
use crate::run::compact::live;
use crate::run::files::data_bytes;
use crate::run::task::{self, Task};
use crate::run::{Progress, compact, files, index};
use crate::table::Table;

/// Most parts of one index: they are merged by one worker.
const PARTS_MAX: u64 = 16;
/// The fault place behind each index.
const AFTER: &str = "index.after";

impl Tender {
    /// Works on each of `names` in a commit of its own. One that fails does not stop the others; the first
    /// failure is returned after all were tried.
    pub(super) async fn index(&self, table: &Table, names: &[String], op: IndexOp, progress: &Progress) -> Result<()> {
        let mut failed = None;
        for name in names {
            table.fence.pass()?;
            // The commit for the index before is no news to this one.
            let table = table.refreshed().await?;
            let done = match self.segments(&table, name, op, progress).await {
                Ok(true) => {
                    crate::fault::at(&table.uri, AFTER).await;
                    Ok(())
                }
                Ok(false) => index::index(&table, std::slice::from_ref(name), op, AFTER).await,
                Err(error) => Err(error.context(format!("bringing index `{name}` of `{}` up to date", table.name))),
            };
            if let Err(error) = self.cleared(&table, done).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Brings an index up to date in parts; `false`: it has to go in one piece.
    async fn segments(&self, table: &Table, name: &str, op: IndexOp, progress: &Progress) -> Result<bool> {
        let Some(lease) = table.fence.lease() else { return Ok(false) };
        let Some(plan) = self.index_plan(table, name, op).await? else { return Ok(false) };
        let parent = self.registry.held(lease).await?;
        let tasks = plan.tasks.iter().map(|task| Task::segment(table, task)).collect::<Result<Vec<_>>>()?;
        let mut rows = Vec::with_capacity(plan.tasks.len());
        for task in &plan.tasks {
            let ids: Vec<u64> = task.fragments.iter().copied().map(u64::from).collect();
            rows.push(compact::group(&table.dataset, &ids)?.iter().map(live).sum());
        }
        // A merge of old segments without some of the new ones would be due again at once.
        let outputs = self.work_off(table, &parent, &tasks, rows, true, progress).await?;
        let (mut built, mut bad) = (Vec::with_capacity(outputs.len()), None);
        for (n, output) in outputs {
            match task::segment(output) {
                Ok(None) => {}
                Ok(Some(mut result)) => {
                    // An earlier attempt's plan had other numbers for the same work on the same fragments.
                    (result.plan_id, result.read_version) = (plan.plan_id, plan.read_version);
                    result.group = plan.tasks[n].group;
                    built.push(result);
                }
                Err(error) => bad = Some(error),
            }
        }
        if let Some(error) = bad {
            files::discard_indexes(table, built.iter().map(|result| result.segment.uuid)).await;
            return Err(error);
        }
        index::publish(table, &plan, built).await?;
        Ok(true)
    }

    async fn index_plan(&self, table: &Table, name: &str, op: IndexOp) -> Result<Option<OptimizeIndicesPlan>> {
        let missing = index::missing(table, name).await?;
        let bytes: u64 = missing.iter().map(data_bytes).sum();
        if missing.len() < 2 || bytes < self.split_bytes {
            return Ok(None);
        }
        let rows: u64 = missing.iter().map(live).sum();
        let parts = (bytes / (self.split_bytes / SHARE).max(1)).clamp(2, PARTS_MAX);
        index::plan(table, name, op, rows.div_ceil(parts)).await
    }
}
