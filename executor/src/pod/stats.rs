//! What a shard's writer holds.

use uuid::Uuid;

use super::Pod;
use crate::error::Result;
use crate::table::Table;

/// One memtable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemtableStats {
    /// The generation it will be flushed as.
    pub generation: u64,
    /// Rows, tombstones and older values of a key among them.
    pub rows: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Indexes that it maintains.
    pub indexes: Vec<String>,
}

impl Pod {
    /// The memtables of a shard, the oldest first; `None`: it has no writer here.
    ///
    /// # Errors
    /// `Fenced` where another writer has claimed it.
    pub async fn memtables(&self, table: &Table, shard: Uuid) -> Result<Option<Vec<MemtableStats>>> {
        let Some(open) = self.held(&table.uri, shard).await else { return Ok(None) };
        self.told(table, shard, open.writer.check_fenced().await)?;
        let refs = self.told(table, shard, open.writer.in_memory_memtable_refs().await)?;
        let indexes = open.writer.maintained_index_names().await;
        let mut all: Vec<MemtableStats> = refs
            .frozen
            .iter()
            .chain(std::iter::once(&refs.active))
            .map(|memtable| MemtableStats {
                generation: memtable.generation,
                rows: memtable.batch_store.total_rows() as u64,
                bytes: memtable.resident_bytes() as u64,
                batches: memtable.batch_store.len() as u64,
                indexes: indexes.clone(),
            })
            .collect();
        all.sort_by_key(|memtable| memtable.generation);
        Ok(Some(all))
    }
}
