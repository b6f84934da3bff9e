//! `caretaker compact`: forces one pass, and what follows from it (R2.4).

use std::sync::Arc;
use std::time::Instant;

use planner::plan::{Hold, Plan, Trigger};

use super::bars::Bars;
use super::out::say;
use super::run::{close, line};
use super::{CompactArgs, Exit, Work};
use crate::apart::tend_apart;
use crate::catalog::TableRef;
use crate::error::{Error, Result};
use crate::latch::busy;
use crate::read::Depth;
use crate::report::{Held, JobEnd, TableReport, fold_holds};
use crate::show::{Summary, held};
use crate::signal::Stop;

/// Folds what the table has now. While a pass runs it is refused outright, never queued (R2.12).
pub(super) async fn run(args: &CompactArgs, work: Work, bars: Bars) -> Result<Exit> {
    let started = Instant::now();
    let stop = Stop::listen()?;
    let table = only(&work).await?;
    let mut tender = work.tender(stop.token().clone());
    tender.only_shard.clone_from(&args.shard);
    let evaluation = tender.evaluate(&table, Depth::Fold, Trigger::Forced).await?;
    if let Some(shard) = &args.shard
        && !evaluation.facts.shards.iter().any(|known| known.shard == *shard)
    {
        return Err(Error::Invalid(format!(
            "table `{}` has no shard `{shard}`; `caretaker facts` lists its shards",
            table.name
        )));
    }
    may_run(&evaluation.plan)?;
    let up = bars.start(1);
    let progress = up.begin(&table.name);
    let report = tend_apart(&Arc::new(tender), table, Trigger::Forced, Depth::Fold, progress).await;
    drop(up);
    let mut summary = Summary::new(true);
    summary.add(&report);
    summary.totals.interrupted = stop.code().is_some();
    summary.totals.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    if args.json {
        line(&report)?;
    } else if report.jobs.is_empty() && !report.failed() {
        let why = if evaluation.facts.shards.is_empty() { ": it takes no LSM writes" } else { "" };
        say(format!("`{}` has nothing to fold{why}", report.table))?;
        return Ok(Exit::Done);
    }
    close(&mut summary, args.json)?;
    Ok(exit(&report, &stop))
}

fn exit(report: &TableReport, stop: &Stop) -> Exit {
    let busy = report.jobs.iter().any(|job| matches!(job.end, JobEnd::Busy { .. }));
    match stop.code() {
        Some(code) => Exit::Interrupted(code),
        // What could be folded was; a shard that stays held needs a person all the same.
        None if report.failed() || report.held.iter().any(stays) => Exit::Failed,
        None if busy => Exit::Refused,
        None => Exit::Done,
    }
}

/// Another process's pass ends by itself; what else holds a fold does not.
fn stays(held: &Held) -> bool {
    !matches!(held.hold, Hold::Pass { .. })
}

/// The one table that is meant.
///
/// # Errors
/// `Invalid` where there is none, or several.
pub(super) async fn only(work: &Work) -> Result<TableRef> {
    let mut tables = work.root.tables(&work.session).await?;
    match (tables.pop(), tables.first()) {
        (Some(table), None) => Ok(table),
        (None, _) => Err(Error::Invalid(format!("there is no table under `{}`", work.root.uri()))),
        (Some(_), Some(first)) => Err(Error::Invalid(format!(
            "`{}` is a database of {} tables; name one of them, such as `{}`",
            work.root.uri(),
            tables.len() + 1,
            first.uri
        ))),
    }
}

/// Refuses outright while a pass runs on a shard, and a table of which no shard can be folded as it is.
///
/// # Errors
/// `Busy`, `Fatal`.
fn may_run(plan: &Plan) -> Result<()> {
    let holds = fold_holds(plan);
    let running = holds.iter().find_map(|held| match &held.hold {
        Hold::Pass { holder, since_ms } => Some(busy(&held.shard, holder, *since_ms)),
        _ => None,
    });
    match (running, holds.first()) {
        (Some(busy), _) => Err(busy),
        (None, Some(Held { shard, hold })) if plan.jobs().next().is_none() => {
            Err(Error::Fatal(format!("table `{}`: {}", plan.table, held(shard, hold))))
        }
        _ => Ok(()),
    }
}
