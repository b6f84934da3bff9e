//! Bytes and age of SSTables. An SSTable never changes, so each is measured once a process.

use std::collections::HashMap;
use std::sync::Mutex;

use futures::TryStreamExt;
use uuid::Uuid;

use crate::error::{Doing, Result};
use crate::table::Table;

/// SSTables remembered; past it the memory starts afresh.
const REMEMBERED_MAX: usize = 100_000;

/// What storage says of one SSTable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) flushed_at_ms: u64,
}

/// Measured SSTables.
#[derive(Debug, Default)]
pub struct Sizes(Mutex<HashMap<String, Size>>);

impl Sizes {
    /// `None`: the folder is empty or missing, so there is nothing to measure.
    pub(crate) async fn of(&self, table: &Table, shard: &Uuid, path: &str) -> Result<Option<Size>> {
        let dir = table.shard_dir(shard).join(path);
        let key = format!("{}#{dir}", table.uri);
        if let Some(known) = self.lock().get(&key) {
            return Ok(Some(*known));
        }
        let files: Vec<_> =
            table.store().list(Some(dir)).try_collect().await.doing(|| format!("measuring SSTable `{path}`"))?;
        // The base dataset of the SSTable is written first and never again: its age is the flush.
        let Some(flushed) = files.iter().map(|f| f.last_modified.timestamp_millis()).max() else { return Ok(None) };
        let size =
            Size { bytes: files.iter().map(|f| f.size).sum(), flushed_at_ms: u64::try_from(flushed).unwrap_or(0) };
        let mut known = self.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(key, size);
        Ok(Some(size))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Size>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}
