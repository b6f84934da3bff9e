//! What is newer than the base: memtables and SSTables that are not folded, for readers (R2.13).

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::dataset::mem_wal::scanner::InMemoryMemTables;
use lance::dataset::mem_wal::{LsmScanner, ShardSnapshot, WalTailer};
use lance_index::mem_wal::{MemWalIndexDetails, ShardManifest};
use uuid::Uuid;

use super::Pod;
use crate::error::{Doing, Error, Result};
use crate::table::Table;

/// Shards that are looked at together.
const LOOKS: usize = 16;
/// Looks until no memtable was folded while they were taken.
const LOOKS_MAX: u32 = 10;

/// A table as of one moment.
pub struct Fresh {
    /// Its base.
    pub table: Table,
    snapshots: Vec<ShardSnapshot>,
    memtables: HashMap<Uuid, InMemoryMemTables>,
}

/// A shard, its SSTables, and what its writer here holds.
type Look = (Uuid, Option<ShardManifest>, Option<InMemoryMemTables>);

impl Pod {
    /// What the table is at this moment; `None`: it takes no LSM writes.
    ///
    /// Memtables are taken first, then the list of SSTables, then the base: a row that moves on meanwhile is
    /// then seen twice, of which the newer is read, and never in neither. A shard whose log holds rows that no
    /// SSTable has is claimed, since they would be missing else.
    ///
    /// # Errors
    /// Whatever keeps the table from being read; `Fenced` where a shard was claimed by another writer.
    pub async fn fresh(&self, table: &Table) -> Result<Option<Fresh>> {
        let Some(details) = table.mem_wal().await? else { return Ok(None) };
        for _ in 0..LOOKS_MAX {
            let mut looks: Vec<BoxFuture<'_, Result<Look>>> = Vec::new();
            for shard in crate::read::shard_ids(table).await? {
                looks.push(self.look(table, &details, shard).boxed());
            }
            let looks: Vec<Look> = stream::iter(looks).buffer_unordered(LOOKS).try_collect().await?;
            let (mut manifests, mut memtables) = (Vec::with_capacity(looks.len()), HashMap::new());
            for (shard, manifest, memory) in looks {
                manifests.extend(manifest);
                memtables.extend(memory.map(|memory| (shard, memory)));
            }
            let table = table.refreshed().await?;
            let Some(details) = table.mem_wal().await? else { return Ok(None) };
            let folded: HashMap<Uuid, u64> =
                details.compacted_sstables.iter().map(|entry| (entry.shard_id, entry.generation)).collect();
            let folded = |shard: &Uuid| folded.get(shard).copied().unwrap_or(0);
            if memtables
                .iter()
                .any(|(shard, memory): (_, &InMemoryMemTables)| memory.active.generation <= folded(shard))
            {
                continue;
            }
            for (shard, memory) in &mut memtables {
                memory.frozen.retain(|frozen| frozen.generation > folded(shard));
            }
            let snapshots = manifests.iter().map(|manifest| snapshot(manifest, folded(&manifest.shard_id))).collect();
            return Ok(Some(Fresh { table, snapshots, memtables }));
        }
        Err(Error::Retry(format!("`{}` is folded faster than it can be read", table.name)))
    }

    async fn look(&self, table: &Table, details: &MemWalIndexDetails, shard: Uuid) -> Result<Look> {
        let open = match self.held(&table.uri, shard).await {
            Some(open) => Some(open),
            None if unread(table, shard).await? => Some(self.open(table, details, shard).await?),
            None => None,
        };
        let Some(open) = open else { return Ok((shard, table.shard_manifest(shard).await?, None)) };
        let memory = self.told(table, shard, open.writer.in_memory_memtable_refs().await)?;
        let manifest = self.told(table, shard, open.writer.manifest().await)?;
        Ok((shard, manifest, Some(memory)))
    }
}

/// Whether the log of a shard holds rows that no SSTable does. Each claim leaves an entry without any.
pub(super) async fn unread(table: &Table, shard: Uuid) -> Result<bool> {
    let Some(manifest) = table.shard_manifest(shard).await? else { return Ok(false) };
    if manifest.status == lance_index::mem_wal::ShardStatus::Sealed {
        return Ok(false);
    }
    let log = WalTailer::new(table.store(), table.base(), shard);
    let next = log.next_position().await;
    let next = next.doing(|| format!("looking for the end of the log of shard `{shard}`"))?;
    for position in manifest.replay_after_wal_entry_position + 1..next {
        let entry = log.read_entry(position).await.doing(|| format!("reading the log of shard `{shard}`"))?;
        if entry.is_some_and(|entry| entry.batches.iter().any(|batch| batch.num_rows() > 0)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A shard of a table without a write spec that holds rows, left by one that it had.
///
/// # Errors
/// Whatever keeps the shards from being read.
pub async fn left_over(table: &Table) -> Result<Option<Uuid>> {
    for shard in crate::read::shard_ids(table).await? {
        let manifest = table.shard_manifest(shard).await?;
        if manifest.is_some_and(|manifest| !manifest.sstables.is_empty()) || unread(table, shard).await? {
            return Ok(Some(shard));
        }
    }
    Ok(None)
}

fn snapshot(manifest: &ShardManifest, folded: u64) -> ShardSnapshot {
    let mut snapshot = ShardSnapshot::new(manifest.shard_id)
        .with_spec_id(manifest.shard_spec_id)
        .with_current_generation(manifest.current_generation);
    for sstable in manifest.sstables.iter().filter(|sstable| sstable.generation > folded) {
        snapshot = snapshot.with_sstable(sstable.generation, sstable.path.clone());
    }
    snapshot
}

impl Fresh {
    /// Whether the base is all there is.
    pub fn is_empty(&self) -> bool {
        self.snapshots.iter().all(|shard| shard.sstables.is_empty()) && !self.has_memtables()
    }

    /// Whether a memtable holds rows.
    pub fn has_memtables(&self) -> bool {
        let holds = |memory: &InMemoryMemTables| !memory.frozen.is_empty() || !memory.active.batch_store.is_empty();
        self.memtables.values().any(holds)
    }

    /// All rows, the newest of each key.
    pub fn union(&self) -> LsmScanner {
        let (base, key) = (self.table.dataset().clone(), self.table.primary_key());
        self.filled(LsmScanner::new(base, self.snapshots.clone(), key))
    }

    /// The rows that are newer than the base.
    pub fn only(&self) -> LsmScanner {
        let dataset = self.table.dataset();
        let schema = Arc::new(arrow_schema::Schema::from(dataset.schema()));
        let ids = lance::dataset::mem_wal::arrow_schema_with_field_ids(dataset.schema());
        let (snapshots, key) = (self.snapshots.clone(), self.table.primary_key());
        let scanner = LsmScanner::without_base_table(schema, dataset.uri(), snapshots, key)
            .with_identity_schema(Arc::new(ids))
            .with_session(dataset.session());
        let scanner = match dataset.store_params() {
            Some(params) => scanner.with_store_params(params.clone()),
            None => scanner,
        };
        self.filled(scanner)
    }

    /// SSTables that are not folded, and their paths below the table's folder.
    pub fn sstables(&self) -> impl Iterator<Item = (Uuid, &str)> {
        self.snapshots
            .iter()
            .flat_map(|shard| shard.sstables.iter().map(|sstable| (shard.shard_id, sstable.path.as_str())))
    }

    /// Whether every memtable that holds rows has a full text index on a column.
    pub fn memtables_have_text(&self, column: &str) -> bool {
        self.memtables.values().flat_map(|memory| std::iter::once(&memory.active).chain(&memory.frozen)).all(
            |memtable| memtable.batch_store.is_empty() || !memtable.index_store.fts_granularities_on(column).is_empty(),
        )
    }

    fn filled(&self, scanner: LsmScanner) -> LsmScanner {
        let memtables = self.memtables.iter();
        memtables.fold(scanner, |scanner, (shard, memory)| scanner.with_in_memory_memtables(*shard, memory.clone()))
    }
}
