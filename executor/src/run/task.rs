//! A part of a job: work on a few fragments of one version, whose output is committed with that of the
//! other parts. Any worker may run it.

use lance::dataset::optimize::RewriteResult;
use lance_io::utils::CachedFileSize;
use lance_table::format::Fragment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::run::Progress;
use crate::run::compact::{self, Shape};
use crate::run::files::discard as discard_files;
use crate::table::Table;

/// The most bytes of an output, as JSON: it goes through the registry.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// A part, as the registry keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Its type, as the registry shows it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Rewrite { .. } => "compact_task",
        }
    }

    /// Whether both do the same to the same: a version between whose fragments are those is no difference.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let at = |task: &Self| match task.clone() {
            Self::Rewrite { groups, seen, shape, .. } => Self::Rewrite { version: 0, groups, seen, shape },
        };
        at(self) == at(other)
    }

    /// Runs it, and returns what to commit.
    ///
    /// # Errors
    /// `Conflict` where the version is another than the one that it was cut for; what the work itself
    /// fails of. What was written is deleted then.
    pub(crate) async fn run(&self, table: &Table, progress: &Progress) -> Result<Value> {
        let Self::Rewrite { version, groups, seen, shape } = self;
        let table = table.at(*version).await.map_err(|e| Error::Conflict(e.to_string()))?;
        let groups = groups.iter().map(|ids| compact::group(&table.dataset, ids)).collect::<Result<Vec<_>>>()?;
        if digest(groups.iter().flatten())? != *seen {
            return Err(Error::Conflict(format!("version {version} is another than when the work was cut")));
        }
        let done = compact::rewrite(&table, &groups, *shape, progress).await?;
        let written: Vec<Fragment> = done.iter().flat_map(|r| r.new_fragments.clone()).collect();
        let output = encode(done);
        if output.is_err() {
            discard_files(&table, written.iter()).await;
        }
        output
    }
}

/// What the parts of a compaction did, checked against what they were to do.
///
/// # Errors
/// `Fatal` where it is not that.
pub(crate) fn rewritten(output: Value, groups: &[Vec<Fragment>]) -> Result<Vec<RewriteResult>> {
    let done = decode(output)?;
    let same = digest(done.iter().flat_map(|r| &r.original_fragments))? == digest(groups.iter().flatten())?;
    if !same || done.len() != groups.len() {
        return Err(Error::Fatal("a part of the compaction rewrote other fragments than it was given".into()));
    }
    for (result, group) in done.iter().zip(groups) {
        compact::check_rows(group, result)?;
    }
    Ok(done)
}

/// Deletes what a part wrote and nobody has committed.
pub(crate) async fn discard(table: &Table, output: Value) {
    match decode(output) {
        Ok(done) => discard_files(table, done.iter().flat_map(|r| &r.new_fragments)).await,
        Err(error) => tracing::debug!(%error, "what a part left is not understood; Lance's cleanup takes its files"),
    }
}

fn encode(done: Vec<RewriteResult>) -> Result<Value> {
    let pack = |mut result: RewriteResult| {
        let row_addrs = result.row_addrs.take().map(|bytes| hex(&bytes));
        Rewritten { result, row_addrs }
    };
    let packed: Vec<Rewritten> = done.into_iter().map(pack).collect();
    let failed = |e: serde_json::Error| Error::Fatal(format!("can't write JSON: {e}"));
    let bytes = serde_json::to_string(&packed).map_err(failed)?.len();
    if bytes > OUTPUT_BYTES_MAX {
        return Err(Error::Fatal(format!(
            "what became of the rows of this part takes {bytes} bytes, and the registry keeps no more than \
             {OUTPUT_BYTES_MAX}; lower the row target of the compaction"
        )));
    }
    serde_json::to_value(&packed).map_err(failed)
}

fn decode(output: Value) -> Result<Vec<RewriteResult>> {
    let packed: Vec<Rewritten> = serde_json::from_value(output)
        .map_err(|e| Error::Fatal(format!("what a part left is not understood, it may be of another version: {e}")))?;
    let unpack = |Rewritten { result, row_addrs }| {
        let row_addrs = row_addrs.as_deref().map(unhex).transpose()?;
        Ok(RewriteResult { row_addrs, ..result })
    };
    packed.into_iter().map(unpack).collect()
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
