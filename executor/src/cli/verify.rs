//! `caretaker verify`: whether indexes answer like a full scan; and the way on after a job that changed
//! what a table answers.

use clap::Args;
use futures::TryStreamExt;
use serde::Serialize;

use super::compact::only;
use super::out::{complain, say};
use super::run::line;
use super::{Exit, Work};
use crate::answers::{Answers, indexes, scan};
use crate::env::show;
use crate::error::{Error, Result};
use crate::show::{count, things};
use crate::table::Table;

#[derive(Args)]
pub(super) struct VerifyArgs {
    /// Table.
    pub(super) table: String,
    /// Also read every row.
    #[arg(long)]
    rows: bool,
    /// You have looked at a table whose answers a job changed, and it is as it should be: let its
    /// maintenance go on.
    #[arg(long)]
    accept: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl VerifyArgs {
    /// Whether the job registry is written.
    pub(super) fn writes(&self) -> bool {
        self.accept
    }
}

/// What was found; also the `--json`.
#[derive(Serialize)]
struct Found<'a> {
    table: &'a str,
    version: u64,
    #[serde(flatten)]
    answers: Answers,
    /// How an index answers otherwise than a full scan.
    wrong: Option<String>,
    /// The job that changed the table's answers, and has not been looked at.
    mismatch: Option<Mismatch>,
    accepted: bool,
}

#[derive(Serialize)]
struct Mismatch {
    job: String,
    at_ms: u64,
    why: String,
}

/// Asks every index, and says what the registry holds against the table.
pub(super) async fn run(args: &VerifyArgs, work: &Work) -> Result<Exit> {
    let place = only(work).await?;
    let table = Table::open(&place.name, &place.uri, &work.session).await?;
    let mut answers = Answers::default();
    let wrong = match indexes::compare(&table, None, &mut answers).await {
        Err(Error::Mismatch(why)) => Some(why),
        compared => compared.map(|()| None)?,
    };
    if args.rows {
        answers.rows = read_all(&table).await?;
    }
    let marked = work.registry.mismatch(&table.uri).await?;
    let mut mismatch = marked.map(|(job, at_ms, why)| Mismatch { job, at_ms, why });
    if args.accept && mismatch.is_none() {
        complain(format!("`{}` has nothing to accept: no job changed its answers", table.name));
    }
    let accepted = args.accept && wrong.is_none() && mismatch.is_some();
    if accepted {
        work.registry.accept(&table.uri).await?;
        mismatch = None;
    }
    let found = Found { table: &table.name, version: table.version(), answers, wrong, mismatch, accepted };
    if args.json {
        line(&found)?;
    } else {
        found.print()?;
    }
    Ok(if found.wrong.is_some() || found.mismatch.is_some() { Exit::Failed } else { Exit::Done })
}

async fn read_all(table: &Table) -> Result<u64> {
    let (mut rows, mut batches) = (0, scan(table.dataset(), table.dataset().manifest().fragments.to_vec(), None));
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

impl Found<'_> {
    fn print(&self) -> Result<()> {
        let Self { table, version, answers, .. } = self;
        if answers.rows > 0 {
            say(format!("`{table}` version {version}: {} rows can be read", count(answers.rows)))?;
        }
        match answers.indexes.len() as u64 {
            0 => say(format!("`{table}` version {version}: no index answers to compare"))?,
            some => say(format!(
                "`{table}` version {version}: a sample of answers of {} is that of a full scan ({})",
                things(some, "index").replace("indexs", "indexes"),
                answers.indexes.join(", ")
            ))?,
        }
        answers.skipped.iter().try_for_each(|skipped| say(format!("  not compared: {skipped}")))?;
        if let Some(wrong) = &self.wrong {
            complain(format!(
                "table `{table}`: {wrong}; rebuild the index with `create_index(..., replace=True)` and verify again"
            ));
        }
        if let Some(Mismatch { job, at_ms, why }) = &self.mismatch {
            complain(format!(
                "table `{table}`: {job} ({}): {why}; nothing but catch-up runs on it until `caretaker verify --accept`. \
                 The version before is still there: `table.restore(<version>)` brings it back",
                show(*at_ms)
            ));
        }
        if self.accepted {
            say(format!("`{table}` is accepted as it is: its maintenance goes on"))?;
        }
        Ok(())
    }
}
