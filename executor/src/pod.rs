//! The shard writers of this process: what it has claimed, and writes to.
//!
//! ```text
//! put ── align ── route ──► one writer a shard: WAL (durable), memtable ──► SSTable ──► the agent folds it
//!                    ▲                │
//!        back-pressure: memory of all writers, SSTables of each shard (module `pressure`)
//! ```
//!
//! A shard is claimed by the first request that needs it: Lance raises its epoch, so that a writer elsewhere
//! is fenced, and replays what is in the log. A writer that was fenced is let go of; its request is told so
//! ([`Error::Fenced`]), and the next one claims the shard again.

mod align;
mod fresh;
mod pressure;
mod route;
mod stats;
mod tick;
mod turns;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrow_array::RecordBatch;
use futures::future::{join_all, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriter, ShardWriterConfig};
use lance_core::datatypes::Schema;
use lance_core::error::FenceReason;
use lance_index::mem_wal::MemWalIndexDetails;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use uuid::Uuid;

pub use self::align::align;
pub use self::fresh::{Fresh, left_over};
pub use self::pressure::{Bounds, Pressure};
pub use self::stats::MemtableStats;
use self::turns::Gates;
pub use self::turns::{Closed, Turn};
use crate::catalog::TableRef;
use crate::error::{Doing, Error, Result};
use crate::table::Table;

/// Shards that one process writes to at once. Each has tasks and a memtable of its own.
const SHARDS_MAX: usize = 1_024;
/// Memtables that one request flushes at the same time.
const FLUSHES: usize = 16;
/// How long the end of a writer whose table is dropped, or that was fenced, is waited for.
const ABORT: Duration = Duration::from_secs(10);
/// Of a spec that Lance's own builder has installed.
const SHARDING_SPEC_ID: u32 = 1;

/// A table and one of its shards.
type Key = (String, Uuid);
/// A writer that may be used, and is not closed meanwhile.
type Held = OwnedRwLockReadGuard<Option<Open>, Open>;

/// All shard writers of a process.
pub struct Pod {
    shards: Mutex<HashMap<Key, Arc<Shard>>>,
    /// Whose turn it is to write.
    gates: Gates,
    /// What keeps memory and SSTables within their bounds.
    pub pressure: Arc<Pressure>,
    draining: AtomicBool,
    /// Counts requests, so that the shard is known that was not used for longest.
    used: AtomicU64,
}

/// What is written.
#[derive(Clone, Copy)]
enum What {
    Rows,
    /// Of rows that are deleted.
    Keys,
}

/// A shard's place: one writer, or none yet.
struct Shard {
    table: String,
    open: Arc<RwLock<Option<Open>>>,
    used: AtomicU64,
}

/// A claimed shard.
struct Open {
    writer: ShardWriter,
    /// The base's schema that the writer was brought to.
    schema: Schema,
    /// Which memtable was seen to hold rows, and since when, milliseconds since the epoch.
    filled: Mutex<Option<(u64, u64)>>,
}

impl Pod {
    /// A pod that has claimed nothing.
    pub fn new(pressure: Arc<Pressure>) -> Self {
        let (shards, gates) = (Mutex::default(), Gates::default());
        Self { shards, gates, pressure, draining: AtomicBool::new(false), used: AtomicU64::new(0) }
    }

    /// Writes rows, newest last: durable, and read by everyone, when it returns. They may go to many shards;
    /// where one of those fails, the rows of others may be written. Writing them again is no mistake. They go to the
    /// table as it is by now.
    ///
    /// # Errors
    /// `Invalid` for rows that are not as the table's, `Busy` under back-pressure, `Fenced` where another writer
    /// has claimed a shard, `Draining`, `Retry` where the table has gone or takes no LSM writes any more.
    pub async fn put(&self, table: &Table, batches: Vec<RecordBatch>) -> Result<u64> {
        let turn = self.turn(&table.uri).await?;
        let table = &turns::now(table).await?;
        if table.mem_wal().await?.is_none() {
            return Err(Error::Retry(format!("`{}` takes no LSM writes any more; write again", table.name)));
        }
        self.replace(&turn, table, batches).await
    }

    /// The same, in a turn that the caller has, in which it has opened the table.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn replace(&self, _: &Turn, table: &Table, batches: Vec<RecordBatch>) -> Result<u64> {
        let schema = Arc::new(arrow_schema::Schema::from(table.dataset().schema()));
        let aligned = batches.iter().filter(|batch| batch.num_rows() > 0).map(|batch| align(batch, &schema));
        let aligned = aligned.collect::<Result<Vec<_>>>()?;
        align::keyed(&aligned, &table.primary_key())?;
        self.write(table, aligned, What::Rows).await
    }

    /// Deletes rows by key: each batch has the key's columns, and the one that names the shard. Where they
    /// are folded they go; until then they are hidden.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn delete(&self, _: &Turn, table: &Table, keys: Vec<RecordBatch>) -> Result<u64> {
        let keys = keys.into_iter().filter(|batch| batch.num_rows() > 0).collect();
        self.write(table, keys, What::Keys).await
    }

    async fn write(&self, table: &Table, batches: Vec<RecordBatch>, what: What) -> Result<u64> {
        let details = &self.writable(table).await?;
        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let routed = route::route(details, table.dataset().schema(), batches)?;
        let writes = routed.into_iter().map(|(shard, batches)| {
            async move {
                let open = self.open(table, details, shard).await?;
                for batches in parts(batches, open.writer.config().max_memtable_rows) {
                    let written = match what {
                        What::Rows => open.writer.put(batches).await,
                        What::Keys => open.writer.delete(batches).await,
                    };
                    self.told(table, shard, written)?;
                }
                Ok::<_, Error>(())
            }
            .boxed()
        });
        try_join_all(writes).await?;
        Ok(rows)
    }

    /// Freezes every memtable of the table, and returns when each is an SSTable (R2.4). A shard that nobody
    /// has claimed here is claimed where its log holds rows that no SSTable has, and those are replayed. An empty memtable gives none.
    ///
    /// # Errors
    /// As [`Self::put`]; `Invalid` for a table that takes no LSM writes.
    pub async fn flush(&self, table: &Table) -> Result<()> {
        let _turn = self.turn(&table.uri).await?;
        self.flush_now(&turns::now(table).await?).await
    }

    /// The same for a table that the caller has closed.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub async fn flush_closed(&self, _: &Closed, table: &Table) -> Result<()> {
        self.flush_now(table).await
    }

    async fn flush_now(&self, table: &Table) -> Result<()> {
        let details = self.writable(table).await?;
        let flushes = crate::read::shard_ids(table).await?.into_iter().map(|shard| {
            let details = &details;
            async move {
                let open = match self.held(&table.uri, shard).await {
                    Some(open) => open,
                    None if fresh::unread(table, shard).await? => self.open(table, details, shard).await?,
                    None => return Ok(()),
                };
                let frozen = async { open.writer.force_freeze_active().await?.wait().await }.await;
                self.told(table, shard, frozen)
            }
            .boxed()
        });
        stream::iter(flushes).buffer_unordered(FLUSHES).try_collect().await
    }

    /// Lets go of every writer of a table; what they have not flushed is in the log.
    pub async fn release(&self, uri: &str) {
        join_all(self.claimed(uri).into_iter().map(|shard| self.let_go(uri, shard))).await;
    }

    /// From now on writes are refused.
    pub fn refuse(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether writes are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Refuses writes, flushes and closes every writer (R2.12, R2.16). What can't be flushed stays in the
    /// log, from where whoever claims the shard next replays it.
    pub async fn drain(&self) {
        self.refuse();
        let shards: Vec<(Key, Arc<Shard>)> =
            lock(&self.shards).iter().map(|(key, place)| (key.clone(), place.clone())).collect();
        let closing = shards.into_iter().map(|(key, place)| async move {
            // Readers wait for it, and find an SSTable then: for no moment is a row in neither.
            let mut open = place.open.write().await;
            if let Some(open) = open.take() {
                match open.writer.close().await {
                    Ok(()) => tracing::debug!(uri = key.0, shard = %key.1, "shard flushed and let go of"),
                    Err(error) => {
                        tracing::warn!(uri = key.0, shard = %key.1, %error, "not flushed: its rows stay in the log");
                    }
                }
            }
            lock(&self.shards).remove(&key);
            self.pressure.forget(&key.0, key.1);
        });
        join_all(closing).await;
    }

    /// Shards with a writer here.
    pub fn open_shards(&self) -> usize {
        lock(&self.shards).len()
    }

    /// Tables of which a shard has a writer here.
    pub fn tables(&self) -> Vec<TableRef> {
        let shards = lock(&self.shards);
        let tables = shards.iter().map(|((uri, _), shard)| TableRef { name: shard.table.clone(), uri: uri.clone() });
        tables.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What the table records of its MemWAL, if it takes writes at the moment.
    async fn writable(&self, table: &Table) -> Result<MemWalIndexDetails> {
        if self.is_draining() {
            return Err(Error::Draining("this server is stopping and takes no more writes".into()));
        }
        details_of(table).await
    }

    /// Shards of a table with a writer here.
    fn claimed(&self, uri: &str) -> Vec<Uuid> {
        lock(&self.shards).keys().filter(|(of, _)| of == uri).map(|(_, shard)| *shard).collect()
    }

    /// The writer of a shard, if there is one.
    async fn held(&self, uri: &str, shard: Uuid) -> Option<Held> {
        let place = lock(&self.shards).get(&(uri.to_string(), shard)).cloned()?;
        OwnedRwLockReadGuard::try_map(place.open.clone().read_owned().await, Option::as_ref).ok()
    }

    /// The writer of a shard, claimed if need be, and brought to the table's schema.
    async fn open(&self, table: &Table, details: &MemWalIndexDetails, shard: Uuid) -> Result<Held> {
        let key = (table.uri.clone(), shard);
        loop {
            if self.is_draining() {
                return Err(Error::Draining("this server is stopping and claims no more shards".into()));
            }
            let place = self.place(&table.name, &key).await;
            // Nothing of this is held on: the lock is taken for writing below.
            if let Ok(open) = OwnedRwLockReadGuard::try_map(place.open.clone().read_owned().await, Option::as_ref)
                && open.schema == *table.dataset().schema()
            {
                return Ok(open);
            }
            let mut open = place.open.clone().write_owned().await;
            // Let go of meanwhile: then it is no longer the place.
            if !lock(&self.shards).get(&key).is_some_and(|now| Arc::ptr_eq(now, &place)) {
                continue;
            }
            match open.as_mut() {
                Some(claimed) if claimed.schema != *table.dataset().schema() => {
                    // A request that has opened the table earlier than another does not take it back.
                    let newest = table.refreshed().await?;
                    if claimed.schema != *newest.dataset().schema() {
                        let evolved = evolve(&claimed.writer, newest.dataset()).await;
                        evolved.doing(|| format!("bringing shard `{shard}` to the schema of `{}`", table.name))?;
                        claimed.schema = newest.dataset().schema().clone();
                    }
                }
                Some(_) => {}
                None => *open = Some(self.claim(table, details, shard).await?),
            }
            return OwnedRwLockReadGuard::try_map(open.downgrade(), Option::as_ref)
                .map_err(|_| Error::Fatal("a writer vanished while it was held".into()));
        }
    }

    async fn claim(&self, table: &Table, details: &MemWalIndexDetails, shard: Uuid) -> Result<Open> {
        let mut config = config(&details.writer_config_defaults);
        config.backpressure = Some(self.pressure.valve(&table.name, &table.uri, shard));
        config.observer = Some(self.pressure.observer(&table.name, &table.uri, shard));
        let writer = table.dataset().mem_wal_writer(shard, config).boxed().await;
        let writer = writer.map_err(failed).map_err(|e| e.context(format!("claiming shard `{shard}`")))?;
        self.pressure.watch(&table.uri, shard, writer.memory());
        tracing::info!(table = table.name, %shard, epoch = writer.epoch(), "shard claimed");
        Ok(Open { writer, schema: table.dataset().schema().clone(), filled: Mutex::default() })
    }

    /// The place of a shard. Where there are too many, the one that was not used for longest goes.
    async fn place(&self, table: &str, key: &Key) -> Arc<Shard> {
        let now = self.used.fetch_add(1, Ordering::Relaxed);
        let (place, surplus) = {
            let mut shards = lock(&self.shards);
            let surplus = (shards.len() >= SHARDS_MAX && !shards.contains_key(key)).then(|| {
                let oldest = shards.iter().min_by_key(|(_, shard)| shard.used.load(Ordering::Relaxed));
                oldest.map(|(key, _)| key.clone())
            });
            let surplus = surplus.flatten().and_then(|oldest| Some((oldest.clone(), shards.remove(&oldest)?)));
            let place = shards.entry(key.clone()).or_insert_with(|| {
                Arc::new(Shard { table: table.into(), open: Arc::default(), used: AtomicU64::new(now) })
            });
            place.used.store(now, Ordering::Relaxed);
            (place.clone(), surplus)
        };
        if let Some(((uri, shard), surplus)) = surplus {
            self.pressure.forget(&uri, shard);
            if let Some(open) = surplus.open.write().await.take()
                && let Err(error) = open.writer.close().await
            {
                tracing::warn!(uri, %shard, %error, "not flushed: its rows stay in the log");
            }
        }
        place
    }

    /// What a writer answered. One that was fenced, or can't write any more, is let go of.
    fn told<T>(&self, table: &Table, shard: Uuid, answer: lance_core::Result<T>) -> Result<T> {
        answer.map_err(|error| {
            if error.fence_reason().is_some() {
                let place = lock(&self.shards).remove(&(table.uri.clone(), shard));
                self.pressure.forget(&table.uri, shard);
                if let Some(place) = place {
                    tokio::spawn(abort(place).boxed());
                }
            }
            failed(error).context(format!("shard `{shard}` of `{}`", table.name))
        })
    }

    async fn let_go(&self, uri: &str, shard: Uuid) {
        let place = lock(&self.shards).remove(&(uri.to_string(), shard));
        self.pressure.forget(uri, shard);
        if let Some(place) = place {
            abort(place).await;
        }
    }
}

/// Rows in parts that a memtable has room for: Lance refuses what is more.
fn parts(batches: Vec<RecordBatch>, rows_max: usize) -> Vec<Vec<RecordBatch>> {
    let (mut parts, mut left) = (vec![Vec::new()], rows_max.max(1));
    for batch in batches {
        let mut at = 0;
        while at < batch.num_rows() {
            if left == 0 {
                parts.push(Vec::new());
                left = rows_max.max(1);
            }
            let rows = left.min(batch.num_rows() - at);
            if let Some(part) = parts.last_mut() {
                part.push(batch.slice(at, rows));
            }
            (at, left) = (at + rows, left - rows);
        }
    }
    parts
}

async fn details_of(table: &Table) -> Result<MemWalIndexDetails> {
    let details = table.mem_wal().await?;
    details.ok_or_else(|| Error::Invalid(format!("`{}` takes no LSM writes: it has no write spec", table.name)))
}

/// Brings a writer to a table's schema and indexes; returns when what it had is an SSTable, which indexed
/// reads of new rows wait for.
async fn evolve(writer: &ShardWriter, dataset: &Dataset) -> lance_core::Result<()> {
    match writer.evolve_to(dataset).await? {
        Some(frozen) => frozen.wait().await,
        None => Ok(()),
    }
}

/// Ends a writer without a flush: its rows are in the log.
async fn abort(place: Arc<Shard>) {
    let Some(open) = place.open.write().await.take() else { return };
    match tokio::time::timeout(ABORT, open.writer.abort()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a writer ended badly"),
        Err(_) => tracing::warn!(secs = ABORT.as_secs(), "a writer did not end in time"),
    }
}

/// What a writer said, by what its client does next.
fn failed(error: lance_core::Error) -> Error {
    match error.fence_reason() {
        Some(FenceReason::PeerClaimedEpoch) => Error::Fenced("another writer has claimed it".into()),
        Some(FenceReason::PersistenceFailure) => {
            Error::Retry(format!("its log could not be written, and is replayed; write again: {}", Error::from(error)))
        }
        None if error.is_backpressure() => Error::Busy(Error::from(error).to_string()),
        None => Error::from(error),
    }
}

/// How a writer is to be, as the table says. What can't be read is left as it is, as the LanceDB client does.
/// A memtable there always is: reads see what was written at once.
fn config(defaults: &HashMap<String, String>) -> ShardWriterConfig {
    fn of<T: std::str::FromStr>(defaults: &HashMap<String, String>, key: &str) -> Option<T> {
        defaults.get(key)?.parse().ok()
    }
    let millis = |key| of(defaults, key).map(Duration::from_millis);
    let plain = ShardWriterConfig::default().with_shard_spec_id(SHARDING_SPEC_ID).with_stats_log_interval(None);
    ShardWriterConfig {
        durable_write: of(defaults, "durable_write").unwrap_or(plain.durable_write),
        max_wal_buffer_size: of(defaults, "max_wal_buffer_size").unwrap_or(plain.max_wal_buffer_size),
        max_wal_flush_interval: millis("max_wal_flush_interval_ms").or(plain.max_wal_flush_interval),
        max_memtable_size: of(defaults, "max_memtable_size").unwrap_or(plain.max_memtable_size),
        max_memtable_rows: of(defaults, "max_memtable_rows").unwrap_or(plain.max_memtable_rows),
        max_memtable_batches: of(defaults, "max_memtable_batches").unwrap_or(plain.max_memtable_batches),
        ..plain
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
