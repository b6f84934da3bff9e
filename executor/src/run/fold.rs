//! The fold: a prefix of one or more shards' SSTables moves into the base, in one commit.
//!
//! ```text
//! keys newest first -> winners ─┬─> key columns of the base -> rows that go (replaced, deleted)
//!                               └─> winning rows, streamed  -> new fragments
//!                                                              one commit: both, and the marker
//! ```
//!
//! Lance's `merge_insert` is not used: it joins on one side held in memory, needs a second commit
//! for tombstones, and a pass that stalls between the two could delete a key that a later pass
//! wrote again. The transaction made here is the one `merge_insert` makes (`Operation::Update`
//! with a key filter), so every conflict rule of Lance applies to it.

mod ahead;
mod columns;
mod commit;
mod keys;
mod newest;
mod source;
mod winners;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::DataType;
use futures::{StreamExt, TryStreamExt};
use lance_index::mem_wal::CompactedSsTable;
use lance_table::format::Fragment;
use planner::job::SsTableId;
use roaring::RoaringTreemap;
use uuid::Uuid;

use self::keys::{Encoder, KeySet, Slice};
pub(crate) use self::newest::Newest;
use self::source::Source;
pub(crate) use self::source::addresses;
use self::winners::{Filter, Matches, Stop};
use crate::error::{Error, Result};
use crate::run::files::{data_bytes, discard};
use crate::run::scan::ScanLimits;
use crate::run::{Progress, properties};
use crate::table::{Table, shard_id};

/// Commits lost to other writers before a pass gives up and is planned again.
const ATTEMPTS_MAX: u32 = 20;
/// SSTables opened at once.
const OPEN_PARALLEL: usize = 8;
/// Slices the keys may be cut into before a pass is refused.
const PARTS_MAX: u64 = 4096;

/// One shard's share of a pass: a prefix of its SSTables, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Shard id.
    pub shard: String,
    /// The SSTables, oldest first.
    pub sstables: Vec<SsTableId>,
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FoldReport {
    /// SSTables folded.
    pub sstables: u64,
    /// Live rows and tombstones read.
    pub rows_read: u64,
    /// Base rows replaced by a newer value.
    pub rows_updated: u64,
    /// Rows with a key the base did not have.
    pub rows_inserted: u64,
    /// Base rows deleted by a tombstone.
    pub rows_deleted: u64,
    /// Bytes of new data files.
    pub bytes_written: u64,
    /// Version of the base that holds the result.
    pub version: u64,
    /// Commits tried.
    pub attempts: u32,
}

/// Runs one pass over `prefixes` and returns the table as committed.
///
/// # Errors
/// `Superseded`: another pass did it. `Invalid`: a null key, a missing SSTable, a schema that does
/// not fit. In each case nothing was changed.
pub async fn fold(
    table: &Table,
    prefixes: &[Prefix],
    memory_bytes: u64,
    progress: &Arc<Progress>,
) -> Result<(Table, FoldReport)> {
    let mut conflict = None;
    for attempt in 1..=ATTEMPTS_MAX {
        let table = table.refreshed().await?;
        let pass = Pass::open(&table, prefixes, memory_bytes, progress).await?;
        match pass.run().await {
            Ok((table, report)) => return Ok((table, FoldReport { attempts: attempt, ..report })),
            Err(Error::Conflict(why)) => {
                tracing::info!(table = table.name, attempt, why, "another commit came first; matching again");
                conflict = Some(why);
            }
            Err(other) => return Err(other),
        }
    }
    Err(Error::Conflict(format!(
        "lost {ATTEMPTS_MAX} commits in a row to other writers; the SSTables stay listed and the next pass tries \
         again ({})",
        conflict.unwrap_or_default()
    )))
}

struct Pass<'a> {
    table: &'a Table,
    sources: Vec<Source>,
    marks: Vec<CompactedSsTable>,
    /// Key columns with their field ids, in key order.
    key: Vec<(String, i32)>,
    encoder: Encoder,
    limits: ScanLimits,
    keys_bytes_max: usize,
    progress: &'a Arc<Progress>,
}

/// What the slices of a pass add up to.
#[derive(Default)]
struct Outcome {
    gone: RoaringTreemap,
    fragments: Vec<Fragment>,
    report: FoldReport,
}

impl<'a> Pass<'a> {
    async fn open(
        table: &'a Table,
        prefixes: &[Prefix],
        memory_bytes: u64,
        progress: &'a Arc<Progress>,
    ) -> Result<Self> {
        let key = key_columns(table)?;
        let types: Vec<(String, DataType)> = key.iter().map(|(name, _, t)| (name.clone(), t.clone())).collect();
        let mut marks = Vec::new();
        let mut wanted: Vec<(Uuid, SsTableId)> = Vec::new();
        for prefix in prefixes {
            let shard = shard_id(&prefix.shard)?;
            let newest = prefix.sstables.iter().map(|s| s.generation).max();
            let newest = newest.ok_or_else(|| Error::Invalid(format!("nothing to fold in shard `{shard}`")))?;
            marks.push(CompactedSsTable::new(shard, newest));
            wanted.extend(prefix.sstables.iter().map(|s| (shard, s.clone())));
        }
        commit::check_marks(table, &marks).await?;
        for prefix in prefixes {
            check_listed(table, prefix).await?;
        }
        let sources = futures::stream::iter(wanted)
            .map(|(shard, id)| Source::open(table.clone(), shard, id))
            .buffered(OPEN_PARALLEL)
            .try_collect()
            .await?;
        // A quarter for keys, the rest for batches on their way through reader and writer.
        let limits =
            ScanLimits { batch_bytes: (memory_bytes / 256).max(1 << 20), io_bytes: (memory_bytes / 16).max(8 << 20) };
        Ok(Self {
            table,
            sources,
            marks,
            encoder: Encoder::new(&types)?,
            key: key.into_iter().map(|(name, id, _)| (name, id)).collect(),
            limits,
            keys_bytes_max: usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX),
            progress,
        })
    }

    async fn run(self) -> Result<(Table, FoldReport)> {
        let mut filter = Filter::new(&self.key);
        self.progress.start("fold", self.sources.iter().map(|s| s.rows).sum());
        let mut parts = 1;
        let outcome = loop {
            let mut outcome = Outcome::default();
            match self.slices(parts, &mut filter, &mut outcome).await {
                Ok(()) => break outcome,
                Err(stop) => {
                    discard(self.table, outcome.fragments.iter()).await;
                    match stop {
                        Stop::Failed(error) => return Err(error),
                        Stop::Full if parts >= PARTS_MAX => {
                            return Err(Error::Invalid(format!(
                                "the keys of this prefix do not fit into `compact_pass_memory_bytes` even in {parts} \
                                 slices; raise it, or lower `compact_pass_target_bytes`"
                            )));
                        }
                        Stop::Full => parts *= 2,
                    }
                }
            }
        };
        crate::fault::at(&self.table.uri, "fold.written").await;
        let change = commit::Change {
            marks: self.marks.clone(),
            gone: outcome.gone,
            new_fragments: outcome.fragments.clone(),
            filter: filter.build(),
            properties: properties(self.table, "memwal_compaction").into_iter().collect(),
        };
        let committed = match change.commit(self.table).await {
            Ok(table) => table,
            Err(error) => {
                // These answers are definite: the files can't have been committed.
                if matches!(error, Error::Conflict(_) | Error::Superseded(_)) {
                    discard(self.table, outcome.fragments.iter()).await;
                }
                return Err(error);
            }
        };
        crate::fault::at(&self.table.uri, "fold.committed").await;
        let report = FoldReport {
            sstables: self.sources.len() as u64,
            rows_read: self.sources.iter().map(|s| s.rows).sum(),
            bytes_written: outcome.fragments.iter().map(data_bytes).sum(),
            version: committed.version(),
            ..outcome.report
        };
        Ok((committed, report))
    }

    /// Works through the keys in `parts` slices, so that the keys in memory stay bounded.
    async fn slices(&self, parts: u64, filter: &mut Filter, outcome: &mut Outcome) -> Result<(), Stop> {
        let names: Vec<String> = self.key.iter().map(|(name, _)| name.clone()).collect();
        let dataset = &self.table.dataset;
        let rows = write::Rows {
            table: self.table,
            sources: &self.sources,
            key: &names,
            limits: self.limits,
            progress: self.progress,
        };
        for part in 0..parts {
            self.table.fence.pass()?;
            let mut set = KeySet::new(&self.encoder, Slice { part, parts }, self.keys_bytes_max);
            let winners = winners::find(&self.sources, &self.key, &self.encoder, self.limits, &mut set, filter).await?;
            crate::fault::at(&self.table.uri, "fold.scanned").await;
            self.table.fence.pass()?;
            let mut matches = Matches::default();
            if set.len() > 0 {
                winners::probe(dataset, &self.key, &self.encoder, self.limits, &mut set, &mut matches).await?;
            }
            let (updated, inserted) = set.outcome();
            outcome.report.rows_updated += updated;
            outcome.report.rows_inserted += inserted;
            outcome.report.rows_deleted += matches.deleted;
            if dataset.manifest().uses_stable_row_ids() {
                let (replacing, ids) = self.keep_ids(&set, matches.kept_ids, &winners);
                drop(set);
                let fresh: Vec<_> = winners.iter().zip(&replacing).map(|(all, old)| all - old).collect();
                outcome.fragments.extend(rows.write_with_ids(&replacing, &ids).await?);
                outcome.fragments.extend(rows.write(&fresh).await?);
            } else {
                drop(set);
                outcome.fragments.extend(rows.write(&winners).await?);
            }
            outcome.gone |= matches.gone;
        }
        Ok(())
    }

    /// Splits off the winners that replace a base row, with the row ids they keep, in stream order.
    fn keep_ids(
        &self,
        set: &KeySet,
        kept: Vec<(u32, u64)>,
        winners: &[RoaringTreemap],
    ) -> (Vec<RoaringTreemap>, Vec<u64>) {
        let by_slot: BTreeMap<u32, u64> = kept.into_iter().collect();
        let mut found: Vec<(usize, u64, u64)> =
            by_slot.into_iter().map(|(slot, id)| (set.source(slot), set.address(slot), id)).collect();
        found.sort_unstable();
        let mut replacing = vec![RoaringTreemap::new(); winners.len()];
        for (source, address, _) in &found {
            replacing[*source].insert(*address);
        }
        (replacing, found.into_iter().map(|(_, _, id)| id).collect())
    }
}

/// Name, field id and type of each key column.
fn key_columns(table: &Table) -> Result<Vec<(String, i32, DataType)>> {
    let key = table.dataset.schema().unenforced_primary_key();
    if key.is_empty() {
        return Err(Error::Invalid(format!(
            "`{}` has no primary key to fold by; set one with `set_unenforced_primary_key`",
            table.name
        )));
    }
    Ok(key.iter().map(|f| (f.name.clone(), f.id, f.data_type())).collect())
}

/// Checks the prefix against the shard manifest as it is now (R3.6): by identity, never by position.
async fn check_listed(table: &Table, prefix: &Prefix) -> Result<()> {
    let shard = shard_id(&prefix.shard)?;
    let manifest = table.listed_manifest(shard).await?;
    if manifest.status == lance_index::mem_wal::ShardStatus::Sealed {
        return Err(Error::Invalid(format!("shard `{shard}` is sealed: it is being dropped and is left alone")));
    }
    for wanted in &prefix.sstables {
        if !manifest.sstables.iter().any(|s| s.generation == wanted.generation && s.path == wanted.path) {
            return Err(Error::Superseded(format!(
                "SSTable `{}` (generation {}) of shard `{shard}` is no longer listed",
                wanted.path, wanted.generation
            )));
        }
    }
    let oldest_left_out = {
        let details = table.mem_wal().await?;
        let done =
            details.and_then(|d| d.compacted_sstables.iter().find(|c| c.shard_id == shard).map(|c| c.generation));
        let newest = prefix.sstables.iter().map(|s| s.generation).max().unwrap_or(0);
        manifest
            .sstables
            .iter()
            .filter(|s| done.is_none_or(|d| s.generation > d) && s.generation < newest)
            .find(|s| !prefix.sstables.iter().any(|p| p.generation == s.generation))
            .map(|s| s.generation)
    };
    match oldest_left_out {
        Some(generation) => Err(Error::Invalid(format!(
            "generation {generation} of shard `{shard}` would be skipped: a prefix holds the oldest SSTables without gaps"
        ))),
        None => Ok(()),
    }
}
