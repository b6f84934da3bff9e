//! `caretaker run`: everything that is due under a root, once, until quiet.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use planner::plan::Trigger;

use super::bars::Bars;
use super::each::{none_found, selected};
use super::out::{DIM, complain, say, styled};
use super::{Exit, RunArgs, Work};
use crate::apart::tend_apart;
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::show::Summary;
use crate::signal::Stop;

/// Tables begun and not ended: most of them wait for readers before they retire.
const UNDER_WAY_MAX: usize = 256;

/// Tends the tables; a failing one stops no other.
pub(super) async fn run(args: &RunArgs, work: Work, bars: Bars) -> Result<Exit> {
    let started = Instant::now();
    let stop = Stop::listen()?;
    let tables = selected(&work.root, &work.session, &args.tables).await?;
    if tables.is_empty() && !args.json {
        return none_found(&work.root);
    }
    let tender = Arc::new(work.tender(stop.token().clone()).at_once(work.settings.tables_at_once));
    let all = tables.len() as u64;
    let mut summary = Summary::new(args.verbose);
    {
        let up = bars.start(all);
        let (tender, up, stop) = (&tender, &up, &stop);
        let waiting = futures::stream::iter(tables).take_while(|_| std::future::ready(stop.code().is_none()));
        let reports = waiting.map(|table| async move {
            let (name, progress) = (table.name.clone(), up.begin(&table.name));
            // The walk's period is no reason not to fold by hand: relief has the same triggers (R2.3).
            let report = tend_apart(tender, table, Trigger::Relief, Depth::Garbage, progress).await;
            up.end(&name);
            report
        });
        let mut reports = reports.buffer_unordered(UNDER_WAY_MAX);
        while let Some(report) = reports.next().await {
            summary.add(&report);
            if args.json {
                line(&report)?;
            }
        }
    }
    summary.totals.left = all - summary.totals.tables;
    summary.totals.interrupted = stop.code().is_some();
    summary.totals.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    close(&mut summary, args.json)?;
    Ok(match stop.code() {
        Some(code) => Exit::Interrupted(code),
        None if summary.totals.failed > 0 => Exit::Failed,
        None => Exit::Done,
    })
}

/// Prints what is left to say after the last table.
pub(super) fn close(summary: &mut Summary, json: bool) -> Result<()> {
    if json {
        return line(&serde_json::json!({ "summary": summary.totals }));
    }
    let rows = summary.rows();
    if let Some((names, rows)) = rows.split_first() {
        say(styled(DIM, names))?;
        rows.iter().try_for_each(say)?;
        say("")?;
    }
    summary.notes.iter().try_for_each(say)?;
    say(summary.closing())?;
    summary.failures.iter().for_each(complain);
    Ok(())
}

/// One JSON object on a line of its own.
pub(super) fn line(value: &impl serde::Serialize) -> Result<()> {
    say(serde_json::to_string(value).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?)
}
