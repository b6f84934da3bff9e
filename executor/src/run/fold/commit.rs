//! The one commit of a pass: rows out, rows in, and the marker, together or not at all (R2.9).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::scanner::RowAddrTreeMap;
use lance::dataset::transaction::{Operation, Transaction, TransactionBuilder, UpdateMode};
use lance_index::mem_wal::CompactedSsTable;
use lance_table::format::Fragment;
use lance_table::format::key_existence::KeyExistenceFilter;
use lance_table::io::deletion::deletion_file_path;
use object_store::path::Path;
use roaring::{RoaringBitmap, RoaringTreemap};

use crate::error::{Doing, Error, Result};
use crate::run::files::discard_paths;
use crate::table::Table;

/// Everything a pass changes.
pub(super) struct Change {
    pub(super) marks: Vec<CompactedSsTable>,
    pub(super) gone: RoaringTreemap,
    pub(super) new_fragments: Vec<Fragment>,
    pub(super) filter: KeyExistenceFilter,
    pub(super) properties: BTreeMap<String, String>,
}

impl Change {
    /// Commits on top of `table`'s version, or of a later one that does not conflict.
    ///
    /// # Errors
    /// `Superseded` when a marker is not above the recorded generation, `Conflict` when rows this
    /// change touches were changed meanwhile: nothing was changed then.
    pub(super) async fn commit(self, table: &Table) -> Result<Table> {
        let dataset = &table.dataset;
        let version = table.version();
        let marks = self.marks.clone();
        let affected = RowAddrTreeMap::from(self.gone.clone());
        let (operation, properties) = self.operation(table).await?;
        let deletions = deletion_files(table, &operation);
        let transaction = TransactionBuilder::new(version, operation)
            .transaction_properties(Some(Arc::new(properties.into_iter().collect())))
            .build();
        let id = transaction.uuid.clone();
        crate::fault::at(&table.uri, "fold.before_commit").await;
        let committed = match table.fence.check().await {
            Ok(()) => {
                let commit = CommitBuilder::new(dataset.clone()).with_affected_rows(affected).execute(transaction);
                match commit.await {
                    Ok(dataset) => Ok(Table { dataset: Arc::new(dataset), ..table.clone() }),
                    Err(error) => explain(table, version, &id, &marks, error.into()).await,
                }
            }
            Err(stopped) => Err(stopped),
        };
        // A definite answer: no version needs them.
        if let Err(Error::Conflict(_) | Error::Superseded(_)) = &committed {
            discard_paths(table, deletions).await;
        }
        committed
    }

    async fn operation(self, table: &Table) -> Result<(Operation, BTreeMap<String, String>)> {
        if self.gone.is_empty() && self.new_fragments.is_empty() {
            return Ok((Operation::UpdateMemWalState { compacted_sstables: self.marks }, self.properties));
        }
        let (updated_fragments, removed_fragment_ids) = delete(table, &self.gone).await?;
        // Whole rows move, so no index may claim the new fragments: every field counts as rewritten.
        let fields = table.dataset.schema().fields_pre_order().map(|f| f.id as u32).collect();
        let update = Operation::Update {
            removed_fragment_ids,
            updated_fragments,
            new_fragments: self.new_fragments,
            fields_modified: vec![],
            compacted_sstables: self.marks,
            fields_for_preserving_frag_bitmap: fields,
            update_mode: Some(UpdateMode::RewriteRows),
            inserted_rows_filter: Some(self.filter),
            updated_fragment_offsets: None,
        };
        Ok((update, self.properties))
    }
}

/// The deletion files that were written for a commit.
fn deletion_files(table: &Table, operation: &Operation) -> Vec<Path> {
    let Operation::Update { updated_fragments, .. } = operation else { return Vec::new() };
    let base = table.base();
    let of = |f: &Fragment| Some(deletion_file_path(&base, f.id, f.deletion_file.as_ref()?));
    updated_fragments.iter().filter_map(of).collect()
}

/// Writes deletion files for `gone`; returns the fragments they change and those left empty.
async fn delete(table: &Table, gone: &RoaringTreemap) -> Result<(Vec<Fragment>, Vec<u64>)> {
    let changes: Vec<_> =
        gone.bitmaps().map(|(id, rows)| delete_from(table.dataset.clone(), id, rows.clone())).collect();
    let changes: Vec<(u32, Option<Fragment>)> =
        futures::stream::iter(changes).buffered(table.store().io_parallelism()).try_collect().await?;
    let (mut updated, mut removed) = (Vec::new(), Vec::new());
    for (id, left) in changes {
        match left {
            Some(fragment) => updated.push(fragment),
            None => removed.push(u64::from(id)),
        }
    }
    Ok((updated, removed))
}

async fn delete_from(dataset: Arc<Dataset>, id: u32, rows: RoaringBitmap) -> Result<(u32, Option<Fragment>)> {
    let fragment = dataset
        .get_fragment(id as usize)
        .ok_or_else(|| Error::Fatal(format!("fragment {id} is gone from version {}", dataset.manifest().version)))?;
    let left = fragment.extend_deletions(rows.iter()).await.doing(|| format!("deleting from fragment {id}"))?;
    Ok((id, left.map(|f| f.metadata().clone())))
}

/// What a failed commit means. An answer that got lost is looked up: the commit may have landed.
async fn explain(
    table: &Table,
    read_version: u64,
    id: &str,
    marks: &[CompactedSsTable],
    error: Error,
) -> Result<Table> {
    let latest = table.refreshed().await?;
    for version in read_version + 1..=latest.version() {
        let other = latest.dataset.read_transaction_by_version(version).await;
        if other.is_ok_and(|t: Option<Transaction>| t.is_some_and(|t| t.uuid == id)) {
            tracing::warn!(table = table.name, version, %error, "the commit landed though its answer was lost");
            return Ok(latest);
        }
    }
    check_marks(&latest, marks).await?;
    Err(match error {
        Error::Conflict(m) => Error::Conflict(m),
        other => other.context("committing the fold"),
    })
}

/// `Superseded` if the table records one of these generations, or a later one, already.
pub(super) async fn check_marks(table: &Table, marks: &[CompactedSsTable]) -> Result<()> {
    let details = table.mem_wal().await?.ok_or_else(|| {
        Error::Invalid(format!(
            "`{}` has no MemWAL index, so fold progress can't be recorded; install one with `set_lsm_write_spec`",
            table.name
        ))
    })?;
    for mark in marks {
        let recorded = details.compacted_sstables.iter().find(|c| c.shard_id == mark.shard_id);
        if let Some(recorded) = recorded.filter(|c| c.generation >= mark.generation) {
            return Err(Error::Superseded(format!(
                "shard `{}` is folded up to generation {} already, this pass ends at {}; nothing was changed",
                mark.shard_id, recorded.generation, mark.generation
            )));
        }
    }
    Ok(())
}
