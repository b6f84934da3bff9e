//! `caretaker cleanup`: old versions, removed now; or who holds the space of a table (R4.6).

use clap::Args;
use planner::draw::bytes;
use planner::job::JobSpec;
use planner::plan::{Trigger, cleanup_job};
use serde::Serialize;

use super::compact::only;
use super::out::{DIM, complain, say, styled};
use super::run::line;
use super::{Exit, Work};
use crate::error::{Error, Result};
use crate::holders::{Holders, off, refusal, removed};
use crate::read::Depth;
use crate::read::space::Amount;
use crate::report::{JobEnd, JobReport};
use crate::run::cleanup::Removal;
use crate::show::{Grid, Side, count, things};
use crate::signal::Stop;
use crate::tend::{Evaluation, Tender};

#[derive(Args)]
pub(super) struct CleanupArgs {
    /// Table.
    pub(super) table: String,
    /// Change nothing: show what a cleanup would remove now, and who holds the rest.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Cleans the table up by its own policy, whatever the triggers say; a dry run only looks.
pub(super) async fn run(args: &CleanupArgs, work: &Work) -> Result<Exit> {
    let stop = Stop::listen()?;
    let table = only(work).await?;
    let tender = work.tender(stop.token().clone());
    let depth = if args.dry_run { Depth::Garbage } else { Depth::Fold };
    tender.look_beside(&table).await?;
    let seen = tender.evaluate(&table, depth, Trigger::Tick).await?;
    if args.dry_run {
        let holders = Holders::look(&seen, &tender.policy).await?;
        if args.json { line(&holders) } else { print(&holders) }?;
        return Ok(Exit::Done);
    }
    let job = cleanup_job(&seen.facts, &tender.policy);
    let job = job.ok_or_else(|| Error::Invalid(off(&seen.facts.table)))?;
    if let Some(why) = refusal(&seen.facts) {
        return Err(Error::Fatal(why));
    }
    let exit = remove(&tender, &seen, job, args.json).await?;
    Ok(stop.code().map_or(exit, Exit::Interrupted))
}

async fn remove(tender: &Tender, seen: &Evaluation, job: JobSpec, json: bool) -> Result<Exit> {
    let mut exit = Exit::Done;
    for job in tender.now(&seen.table, job).await {
        exit = tell(&seen.table.name, &job, json)?;
        tender.log(&seen.table, &job);
    }
    Ok(exit)
}

fn tell(table: &str, job: &JobReport, json: bool) -> Result<Exit> {
    let failed = matches!(job.end, JobEnd::Failed { .. });
    let exit = if failed { Exit::Failed } else { Exit::Done };
    if json {
        #[derive(Serialize)]
        struct Line<'a> {
            table: &'a str,
            #[serde(flatten)]
            job: &'a JobReport,
        }
        line(&Line { table, job })?;
        return Ok(exit);
    }
    match &job.end {
        JobEnd::Cleaned(done) => {
            say(format!("`{table}`: removed {}", removed(done.versions, done.files, done.bytes)))?;
            if done.failed > 0 {
                say(format!(
                    "{} could not be deleted; the next cleanup finds them again",
                    things(done.failed, "file")
                ))?;
            }
        }
        JobEnd::Failed { why, .. } => complain(format!("table `{table}`: {why}")),
        other => say(format!("`{table}`: {other}"))?,
    }
    Ok(exit)
}

fn print(holders: &Holders) -> Result<()> {
    let lines = grid(holders).lines();
    if let Some((names, rows)) = lines.split_first() {
        say(styled(DIM, names))?;
        rows.iter().try_for_each(say)?;
        say("")?;
    }
    let Removal { versions, files, bytes, .. } = &holders.removes;
    match &holders.refused {
        Some(why) => say(why),
        None => say(format!("a cleanup now would remove {}", removed(versions.len() as u64, *files, *bytes))),
    }
}

fn grid(holders: &Holders) -> Grid {
    let columns = [("who", Side::Left), ("versions", Side::Left), ("files", Side::Right), ("bytes", Side::Right)];
    let mut grid = Grid::new(columns);
    let mut all = Amount::default();
    for held in holders.rows() {
        all.files += held.amount.files;
        all.bytes += held.amount.bytes;
        grid.row([held.who, held.versions, count(held.amount.files), bytes(held.amount.bytes)]);
    }
    grid.row(["all".into(), String::new(), count(all.files), bytes(all.bytes)]);
    grid
}
