//! `caretaker policy lint`: which settings are unsafe or useless; by themselves, and for the tables of a root.

use clap::Args;
use planner::lint::{EVALUATION, JobSpent, Lint, Pinned, Seen};
use planner::plan::{Trigger, cleanup_job};
use serde_json::json;

use super::bars::Bars;
use super::each::{each, selected};
use super::out::{complain, say};
use super::run::line;
use super::{Exit, Intent, Work, log, on};
use crate::catalog::TableRef;
use crate::error::Result;
use crate::read::Depth;
use crate::read::space::{Kept, Pin};
use crate::registry::{Filter, State};
use crate::run::cleanup::dry_run;
use crate::settings::Settings;
use crate::show::things;

/// Ended jobs of a table whose times count.
const JOBS: u64 = 200;

#[derive(Args)]
pub(super) struct LintArgs {
    /// Database or table: its tables are held against the settings, too.
    root: Option<String>,
    /// Only this table; may be given again.
    #[arg(long = "table", value_name = "NAME", requires = "root")]
    tables: Vec<String>,
    /// The longest that a reader reads from one version of a table.
    #[arg(long, value_name = "SECONDS", requires = "root")]
    longest_read_secs: Option<u64>,
    /// One JSON object a line: the deployment's settings, then each table.
    #[arg(long)]
    json: bool,
}

/// Exit code 1: there is something to look at.
pub(super) fn run(args: &LintArgs, settings: Settings) -> Result<Exit> {
    let own = settings.policy.lint();
    let Some(root) = &args.root else {
        log::start(&settings, log::QUIET, Bars::default());
        told(None, &own, args.json)?;
        return closed(own.len(), 0, args.json);
    };
    let root = root.clone();
    on(&root, settings, Intent::Look, async |work, _| {
        told(None, &own, args.json)?;
        let tables = selected(&work.root, &work.session, &args.tables).await?;
        let (mut remarks, mut failed) = (own.len(), 0);
        let look = async |table| of_table(&work, table, args.longest_read_secs).await;
        each(&work, &tables, look, |table, lints: Result<Vec<Lint>>| match lints {
            Ok(lints) => {
                remarks += lints.len();
                told(Some(&table.name), &lints, args.json)
            }
            Err(error) => {
                failed += 1;
                complain(format!("table `{}`: {error}", table.name));
                Ok(())
            }
        })
        .await?;
        closed(remarks, failed, args.json)
    })
}

fn told(table: Option<&str>, lints: &[Lint], as_json: bool) -> Result<()> {
    if as_json {
        return line(&json!({ "table": table, "lints": lints }));
    }
    let of = table.map(|table| format!("`{table}`: ")).unwrap_or_default();
    lints.iter().try_for_each(|lint| say(format!("{of}{}: {}", lint.key, lint.why)))
}

fn closed(remarks: usize, failed: usize, as_json: bool) -> Result<Exit> {
    if !as_json {
        say(format!("{} to look at", things(remarks as u64, "setting")))?;
    }
    Ok(if remarks + failed == 0 { Exit::Done } else { Exit::Failed })
}

async fn of_table(work: &Work, table: &TableRef, longest_read_secs: Option<u64>) -> Result<Vec<Lint>> {
    let tender = work.tender(tokio_util::sync::CancellationToken::new());
    let began = std::time::Instant::now();
    let evaluation = tender.evaluate(table, Depth::Garbage, Trigger::Tick).await?;
    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let job = cleanup_job(&evaluation.facts, &tender.policy);
    let (removes, space) = dry_run(&evaluation.table, &evaluation.facts, job.as_ref(), job.is_some()).await?;
    let mut seen = Seen {
        longest_read_ms: longest_read_secs.map(|secs| secs.saturating_mul(1_000)),
        jobs: vec![JobSpent { kind: EVALUATION.into(), millis: took }],
        pinned: space.kept.iter().filter_map(pinned).collect(),
        removable_bytes: Some(removes.bytes),
    };
    let ended =
        Filter { states: vec![State::Succeeded], table: Some(table.name.clone()), limit: JOBS, ..Filter::default() };
    for job in work.registry.jobs(&ended).await?.into_iter().filter(|job| job.uri == table.uri) {
        if let Some(millis) = job.ended_ms.zip(job.started_ms).map(|(end, start)| end.saturating_sub(start)) {
            seen.jobs.push(JobSpent { kind: job.kind, millis });
        }
    }
    Ok(planner::lint::table(&tender.policy, &evaluation.facts, &seen))
}

/// Versions that only tags and branches keep.
fn pinned(kept: &Kept) -> Option<Pinned> {
    let by = kept.pins.iter().map(|pin| match pin {
        Pin::Tag { name } => Some(format!("tag `{name}`")),
        Pin::Branch { name } => Some(format!("branch `{name}`")),
        _ => None,
    });
    let by: Option<Vec<String>> = by.collect();
    let by = by.filter(|by| !by.is_empty())?.join(", ");
    Some(Pinned { by, versions: kept.versions.clone(), bytes: Some(kept.amount.bytes) })
}
