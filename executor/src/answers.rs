//! Whether a job changed what the table answers (SPEC: never).
//!
//! Of a share of the jobs (`answers_check_percent`) the rows and the index answers are compared:
//!
//! | job | rows | index answers |
//! |---|---|---|
//! | fold | the commit's own change: the version before it, with the newest row of each folded key | every index |
//! | compaction | the rewritten fragments before and after | every index |
//! | cleanup, remap | a sample of fragments before and after | every index |
//! | catch-up, index | a sample of fragments before and after | the index worked on |
//! | retire, collect | a sample of fragments and of un-folded SSTables before and after | none |
//!
//! A mismatch fails the job, whose work stays committed: the version before it and its SSTables are
//! still there, and the planner lets nothing retire or remove them until somebody has looked.

mod digest;
pub(crate) mod indexes;
mod rows;
mod sample;

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

pub(crate) use self::digest::{LIMITS, RowHasher, scan};
use self::sample::Sample;
use crate::error::{Error, Result};
use crate::report::JobEnd;
use crate::run::fold::{Newest, Prefix};
use crate::table::Table;

/// What was compared, and found equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answers {
    /// Rows, each with its value before.
    pub rows: u64,
    /// Indexes, a sample of whose answers was compared with a full scan's.
    pub indexes: Vec<String>,
    /// What could not be compared, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// Answers from before a job.
pub(crate) struct Before {
    sample: Option<Sample>,
    skipped: Vec<String>,
}

/// What is to be compared after a job.
pub(crate) enum Work<'a> {
    /// It folds these.
    Fold(&'a [Prefix]),
    /// It works on these indexes; empty: on none by itself.
    Indexes(&'a [String]),
    /// Anything of the base.
    Base,
    /// Files of shards.
    Shards,
}

/// Whether this job is one of the `percent` of a hundred. It follows from the job, so that a second
/// look at the same one comes to the same.
pub(crate) fn chosen(table: &Table, kind: &str, percent: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (&table.uri, table.version(), kind).hash(&mut hasher);
    hasher.finish() % 100 < percent
}

impl Before {
    /// Looks at a table before a job. What can't be looked at is not compared.
    pub(crate) async fn of(table: &Table, work: &Work<'_>) -> Self {
        let (mut sample, mut skipped) = (None, Vec::new());
        if !matches!(work, Work::Fold(_)) {
            match Sample::of(table).await {
                Ok(taken) => sample = Some(taken),
                Err(error) => skipped.push(format!("rows: {error}")),
            }
        }
        Self { sample, skipped }
    }

    /// Compares after the job.
    ///
    /// # Errors
    /// `Mismatch` only: what can't be read is told as skipped.
    pub(crate) async fn compare(self, table: &Table, work: &Work<'_>, end: &JobEnd) -> Result<Answers> {
        let mut answers = Answers { skipped: self.skipped, ..Answers::default() };
        let rows = match (self.sample, end) {
            (_, JobEnd::Folded(report)) => committed(table, report.version, work).await,
            (_, JobEnd::Compacted(report)) => committed(table, report.version, work).await,
            (Some(sample), _) => sample.compare(table).await,
            (None, _) => Ok(0),
        };
        match rows {
            Ok(rows) => answers.rows = rows,
            Err(error @ Error::Mismatch(_)) => return Err(error),
            Err(error) => answers.skipped.push(format!("rows: {error}")),
        }
        let names = match work {
            Work::Shards => return Ok(answers),
            Work::Indexes(names) => Some(*names),
            Work::Fold(_) | Work::Base => None,
        };
        // A session of its own: what earlier reads left in memory may hide what is gone by now.
        match table.again().await {
            Ok(now) => indexes::compare(&now, names, &mut answers).await?,
            Err(error) => answers.skipped.push(format!("indexes: {error}")),
        }
        Ok(answers)
    }
}

async fn committed(table: &Table, version: u64, work: &Work<'_>) -> Result<u64> {
    let after = table.again().await?.at(version).await?;
    let before = after.at(version - 1).await?;
    let newest = match work {
        Work::Fold(prefixes) => Some(Newest::of(&before, prefixes).await?),
        _ => None,
    };
    rows::committed(&before, &after, newest.as_ref()).await
}
