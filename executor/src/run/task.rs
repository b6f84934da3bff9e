//! A part of a job: work on a few fragments of one version, whose output is committed with that of the
//! other parts. Any worker may run it.

use lance::dataset::optimize::RewriteResult;
use lance::index::optimize::{IndexSegmentResult, OptimizeIndexTask};
use lance_io::utils::CachedFileSize;
use lance_table::format::Fragment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::error::{Doing, Error, Result};
use crate::run::Progress;
use crate::run::compact::{self, Shape};
use crate::run::files::{discard as discard_files, discard_indexes};
use crate::table::Table;

/// The most bytes of an output, as JSON: it goes through the registry.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// A part, as the registry keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "task", deny_unknown_fields)]
pub(crate) enum Task {
    /// Rewrite fragments: some of Lance's tasks of one compaction.
    Rewrite {
        /// The version whose fragments these are.
        version: u64,
        /// Each task's fragment ids.
        groups: Vec<Vec<u64>>,
        /// What the fragments are made of: [`digest`].
        seen: Uuid,
        /// How.
        shape: Shape,
    },
    /// Build a segment of an index: one of Lance's tasks of its own plan.
    Segment {
        /// Lance's task.
        work: Box<OptimizeIndexTask>,
        /// What the fragments are made of: [`digest`].
        seen: Uuid,
    },
}

/// What a part leaves.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Output {
    Rewritten(Vec<Rewritten>),
    /// `None`: there was nothing to do after all.
    Segment(Option<Box<IndexSegmentResult>>),
}

/// What came of one of Lance's tasks, in as few bytes as JSON needs.
#[derive(Serialize, Deserialize)]
struct Rewritten {
    result: RewriteResult,
    /// Of the result too: a list of numbers is twice as long.
    row_addrs: Option<String>,
}

impl Task {
    /// A part that rewrites `groups`, which are fragments of the version that `table` is at.
    pub(crate) fn rewrite(table: &Table, groups: &[Vec<Fragment>], shape: Shape) -> Result<Self> {
        let ids = groups.iter().map(|group| group.iter().map(|fragment| fragment.id).collect()).collect();
        let seen = digest(groups.iter().flatten())?;
        Ok(Self::Rewrite { version: table.version(), groups: ids, seen, shape })
    }

    /// A part that runs one of Lance's tasks, planned from the version that `table` is at.
    pub(crate) fn segment(table: &Table, task: &OptimizeIndexTask) -> Result<Self> {
        Ok(Self::Segment { seen: digest(fragments(table, task)?.iter())?, work: Box::new(task.clone()) })
    }

    /// Its type, as the registry shows it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Rewrite { .. } => "compact_task",
            Self::Segment { .. } => "reindex_task",
        }
    }

    /// Whether both do the same to the same: a version between whose fragments are those is no difference.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Rewrite { groups, seen, shape, .. },
                Self::Rewrite { groups: groups2, seen: seen2, shape: shape2, .. },
            ) => (groups, seen, shape) == (groups2, seen2, shape2),
            (Self::Segment { work, seen }, Self::Segment { work: work2, seen: seen2 }) => {
                let at = |task: &OptimizeIndexTask| OptimizeIndexTask {
                    plan_id: Uuid::nil(),
                    read_version: 0,
                    group: 0,
                    ..task.clone()
                };
                seen == seen2 && at(work) == at(work2)
            }
            _ => false,
        }
    }

    /// Runs it, and returns what to commit.
    ///
    /// # Errors
    /// `Conflict` where the version is another than the one that it was cut for; what the work itself
    /// fails of. What was written is deleted then.
    pub(crate) async fn run(&self, table: &Table, progress: &Progress) -> Result<Value> {
        let (version, seen) = match self {
            Self::Rewrite { version, seen, .. } => (*version, *seen),
            Self::Segment { work, seen } => (work.read_version, *seen),
        };
        let table = table.at(version).await.map_err(|e| Error::Conflict(e.to_string()))?;
        let other = || Error::Conflict(format!("version {version} is another than when the work was cut"));
        match self {
            Self::Rewrite { groups, shape, .. } => {
                let groups =
                    groups.iter().map(|ids| compact::group(&table.dataset, ids)).collect::<Result<Vec<_>>>()?;
                if digest(groups.iter().flatten())? != seen {
                    return Err(other());
                }
                let done = compact::rewrite(&table, &groups, *shape, progress).await?;
                let written: Vec<Fragment> = done.iter().flat_map(|r| r.new_fragments.clone()).collect();
                let output = json(&Output::Rewritten(done.into_iter().map(Rewritten::pack).collect()));
                if output.is_err() {
                    discard_files(&table, written.iter()).await;
                }
                output
            }
            Self::Segment { work, .. } => {
                let fragments = fragments(&table, work)?;
                if digest(fragments.iter())? != seen {
                    return Err(other());
                }
                progress.start("index", fragments.iter().map(compact::live).sum());
                // As in a rewrite, what was written when it stops is Lance's cleanup's.
                let stop = table.fence.stop();
                let built = tokio::select! {
                    built = work.execute(&table.dataset) => {
                        built.doing(|| format!("building a segment of index `{}`", work.reference.name))?
                    }
                    () = stop.cancelled() => return Err(table.fence.pass().err().unwrap_or_else(other)),
                };
                json(&Output::Segment(built.map(Box::new)))
            }
        }
    }
}

impl Rewritten {
    fn pack(mut result: RewriteResult) -> Self {
        let row_addrs = result.row_addrs.take().map(|bytes| hex(&bytes));
        Self { result, row_addrs }
    }

    fn unpack(self) -> Result<RewriteResult> {
        Ok(RewriteResult { row_addrs: self.row_addrs.as_deref().map(unhex).transpose()?, ..self.result })
    }
}

/// The fragments of one of Lance's tasks, as the table has them.
fn fragments(table: &Table, task: &OptimizeIndexTask) -> Result<Vec<Fragment>> {
    let ids: Vec<u64> = task.fragments.iter().copied().map(u64::from).collect();
    compact::group(&table.dataset, &ids)
}

/// What the parts of a compaction did, checked against what they were to do.
///
/// # Errors
/// `Fatal` where it is not that.
pub(crate) fn rewritten(output: Value, groups: &[Vec<Fragment>]) -> Result<Vec<RewriteResult>> {
    let Output::Rewritten(done) = read(output)? else { return Err(mixed()) };
    let done = done.into_iter().map(Rewritten::unpack).collect::<Result<Vec<_>>>()?;
    let same = digest(done.iter().flat_map(|r| &r.original_fragments))? == digest(groups.iter().flatten())?;
    if !same || done.len() != groups.len() {
        return Err(Error::Fatal("a part of the compaction rewrote other fragments than it was given".into()));
    }
    for (result, group) in done.iter().zip(groups) {
        compact::check_rows(group, result)?;
    }
    Ok(done)
}

/// The segment that a part built.
///
/// # Errors
/// `Fatal` where it built none, but did something else.
pub(crate) fn segment(output: Value) -> Result<Option<IndexSegmentResult>> {
    match read(output)? {
        Output::Segment(built) => Ok(built.map(|built| *built)),
        Output::Rewritten(_) => Err(mixed()),
    }
}

/// Deletes what a part wrote and nobody has committed.
pub(crate) async fn discard(table: &Table, output: Value) {
    match read(output) {
        Ok(Output::Rewritten(done)) => {
            discard_files(table, done.iter().flat_map(|done| &done.result.new_fragments)).await;
        }
        Ok(Output::Segment(built)) => discard_indexes(table, built.into_iter().map(|built| built.segment.uuid)).await,
        Err(error) => tracing::debug!(%error, "what a part left is not understood; Lance's cleanup takes its files"),
    }
}

fn json(output: &Output) -> Result<Value> {
    let failed = |e: serde_json::Error| Error::Fatal(format!("can't write JSON: {e}"));
    let bytes = serde_json::to_string(output).map_err(failed)?.len();
    if bytes > OUTPUT_BYTES_MAX {
        return Err(Error::Fatal(format!(
            "what became of the rows of this part takes {bytes} bytes, and the registry keeps no more than \
             {OUTPUT_BYTES_MAX}; lower the row target of the compaction"
        )));
    }
    serde_json::to_value(output).map_err(failed)
}

fn read(output: Value) -> Result<Output> {
    serde_json::from_value(output)
        .map_err(|e| Error::Fatal(format!("what a part left is not understood, it may be of another version: {e}")))
}

fn mixed() -> Error {
    Error::Fatal("a part did other work than it was given".into())
}

/// What fragments are made of: equal where a rewrite of the one is a rewrite of the other.
pub(crate) fn digest<'a>(fragments: impl Iterator<Item = &'a Fragment>) -> Result<Uuid> {
    let mut text = Vec::new();
    for fragment in fragments {
        let mut fragment = fragment.clone();
        // A size that is not in the manifest is filled in by who reads the file.
        fragment.files.iter_mut().for_each(|file| file.file_size_bytes = CachedFileSize::unknown());
        serde_json::to_writer(&mut text, &fragment).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
    }
    Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, &text))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| char::from(DIGITS[usize::from(half)])).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2);
        text.and_then(|text| u8::from_str_radix(text, 16).ok())
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| Error::Fatal("what a part left has been damaged".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)).expect("its own"), bytes);
        assert!(unhex("0").is_err() && unhex("zz").is_err());
    }
}
