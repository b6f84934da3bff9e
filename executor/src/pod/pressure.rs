//! Back-pressure: writers are slowed down, then refused, before memory or the SSTables of a shard run away.
//!
//! ```text
//! memory of all writers   |------------------|3/4 slower ------|1 refused
//! SSTables of a shard     |-- trigger -------|slow   slower ---|stop refused, where a new one would follow
//! ```
//!
//! Each time something is held back a relief pass is asked for: the largest memtable becomes an SSTable, and the
//! table is evaluated, which looks at the triggers of its shards again (R2.3).

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lance::dataset::mem_wal::observer::WalObserver;
use lance::dataset::mem_wal::write::{BackpressureController, ShardMemory};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::{Key, lock};
use crate::error::{Error, Result};

/// The longest that one write is slowed down, and that one is kept waiting before it is refused.
const DELAY_MAX: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);
/// How often somebody who waits looks again.
const LOOK: Duration = Duration::from_millis(20);

/// Where writers are slowed down, and where they are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all memtables of this process.
    pub memory_bytes: u64,
    /// SSTables of a shard that are not folded: from here on its writers are slower.
    pub slow_sstables: u64,
    /// From here on they are refused.
    pub stop_sstables: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { memory_bytes: 2 << 30, slow_sstables: 16, stop_sstables: 64 }
    }
}

/// The state of all writers.
pub struct Pressure {
    bounds: Bounds,
    gauges: RwLock<HashMap<Key, Arc<Gauge>>>,
    /// Tables that asked for relief, and who is told.
    pub(super) hot: Mutex<BTreeSet<String>>,
    pub(super) asked: Notify,
    counts: Counts,
    /// Room for the rows of requests that are under way, in units.
    intake: Arc<Semaphore>,
}

/// What happened so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Writes that were slowed down, and for how long, milliseconds.
    pub delayed: AtomicU64,
    /// See [`Self::delayed`].
    pub delayed_ms: AtomicU64,
    /// Writes that were refused.
    pub refused: AtomicU64,
    /// Relief passes.
    pub reliefs: AtomicU64,
    /// Memtables that became SSTables, and attempts at it that failed.
    pub flushes: AtomicU64,
    /// See [`Self::flushes`].
    pub flush_failures: AtomicU64,
    /// Bytes written to logs.
    pub log_bytes: AtomicU64,
}

/// One shard's numbers.
struct Gauge {
    table: String,
    memory: Mutex<Option<ShardMemory>>,
    unfolded: AtomicU64,
    /// Memtables on their way to be SSTables: those count as such, or a fast writer is ahead of the bound.
    frozen: AtomicU64,
}

/// A shard's part in it, which Lance asks before each write and tells of each flush.
struct Valve {
    pressure: Arc<Pressure>,
    shard: Uuid,
    gauge: Arc<Gauge>,
}

impl Pressure {
    /// No pressure yet.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        let (gauges, hot) = (RwLock::default(), Mutex::default());
        let intake = Arc::new(Semaphore::new(units(bounds.memory_bytes / 4) as usize));
        Arc::new(Self { bounds, gauges, hot, asked: Notify::new(), counts: Counts::default(), intake })
    }

    /// Room for rows that a request holds until they are written; all requests together have a quarter of what
    /// the writers have.
    ///
    /// # Errors
    /// `Busy` where there is none soon.
    pub async fn room(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let units = units(bytes).min(units(self.bounds.memory_bytes / 4));
        match tokio::time::timeout(PATIENCE, self.intake.clone().acquire_many_owned(units)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(closed)) => Err(Error::Fatal(closed.to_string())),
            Err(_) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                Err(Error::Busy("too many rows are on their way to be written; try again".into()))
            }
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Bytes that all writers hold in memory.
    pub fn memory_bytes(&self) -> u64 {
        let gauges = self.gauges.read().unwrap_or_else(|e| e.into_inner());
        gauges.values().map(|gauge| gauge.bytes()).sum()
    }

    /// The most SSTables that a shard with a writer has not folded.
    pub fn unfolded_max(&self) -> u64 {
        let gauges = self.gauges.read().unwrap_or_else(|e| e.into_inner());
        gauges.values().map(|gauge| gauge.unfolded.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    pub(super) fn valve(self: &Arc<Self>, table: &str, uri: &str, shard: Uuid) -> Arc<dyn BackpressureController> {
        Arc::new(Valve { pressure: self.clone(), shard, gauge: self.gauge(table, uri, shard) })
    }

    pub(super) fn observer(self: &Arc<Self>, table: &str, uri: &str, shard: Uuid) -> Arc<dyn WalObserver> {
        Arc::new(Valve { pressure: self.clone(), shard, gauge: self.gauge(table, uri, shard) })
    }

    /// A shard's writer holds this.
    pub(super) fn watch(&self, uri: &str, shard: Uuid, memory: ShardMemory) {
        let gauges = self.gauges.read().unwrap_or_else(|e| e.into_inner());
        if let Some(gauge) = gauges.get(&(uri.to_string(), shard)) {
            *lock(&gauge.memory) = Some(memory);
        }
    }

    /// A shard has no writer here any more.
    pub(super) fn forget(&self, uri: &str, shard: Uuid) {
        self.gauges.write().unwrap_or_else(|e| e.into_inner()).remove(&(uri.to_string(), shard));
    }

    /// So many SSTables of a shard are not folded, and so many of its memtables are to become some.
    pub(super) fn counted(&self, uri: &str, shard: Uuid, unfolded: u64, frozen: u64) {
        let gauges = self.gauges.read().unwrap_or_else(|e| e.into_inner());
        if let Some(gauge) = gauges.get(&(uri.to_string(), shard)) {
            gauge.unfolded.store(unfolded, Ordering::Relaxed);
            gauge.frozen.store(frozen, Ordering::Relaxed);
        }
    }

    /// The shard whose memtable is largest, where memory is tight.
    pub(super) fn largest(&self) -> Option<Key> {
        if self.memory_bytes() < self.bounds.memory_bytes / 4 * 3 {
            return None;
        }
        let gauges = self.gauges.read().unwrap_or_else(|e| e.into_inner());
        let active = |gauge: &Gauge| lock(&gauge.memory).as_ref().map_or(0, ShardMemory::row_bytes);
        let sized = gauges.iter().map(|(key, gauge)| (active(gauge), key));
        sized.filter(|(bytes, _)| *bytes > 0).max_by_key(|(bytes, _)| *bytes).map(|(_, key)| key.clone())
    }

    fn gauge(&self, table: &str, uri: &str, shard: Uuid) -> Arc<Gauge> {
        let mut gauges = self.gauges.write().unwrap_or_else(|e| e.into_inner());
        let new = || Gauge { table: table.into(), memory: Mutex::default(), unfolded: 0.into(), frozen: 0.into() };
        gauges.entry((uri.to_string(), shard)).or_insert_with(|| Arc::new(new())).clone()
    }

    fn relieve(&self, table: &str) {
        lock(&self.hot).insert(table.to_string());
        self.asked.notify_one();
    }
}

/// The unit in which room for rows is shared.
const UNIT: u64 = 64 << 10;

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX)
}

impl Gauge {
    /// What an empty memtable has set aside for its indexes no flush gives back, and is hardly touched: it does not
    /// count, or a thousand quiet shards would keep everybody from writing.
    fn bytes(&self) -> u64 {
        let of = |memory: &ShardMemory| match memory.row_bytes() {
            0 => memory.retained_bytes().saturating_sub(memory.active_bytes()),
            _ => memory.retained_bytes(),
        };
        lock(&self.memory).as_ref().map_or(0, |memory| of(memory) as u64)
    }

    /// SSTables that there are to fold once all that is frozen is flushed.
    fn sstables(&self) -> u64 {
        self.unfolded.load(Ordering::Relaxed).saturating_add(self.frozen.load(Ordering::Relaxed))
    }
}

impl Valve {
    /// How far it is from where writes are slowed down to where they are refused: 1 and above is refused.
    fn load(&self, freezes: bool) -> f64 {
        let bounds = &self.pressure.bounds;
        let memory = self.pressure.memory_bytes() as f64 / bounds.memory_bytes.max(1) as f64;
        let span = bounds.stop_sstables.saturating_sub(bounds.slow_sstables).max(1) as f64;
        let depth = self.gauge.sstables().saturating_sub(bounds.slow_sstables) as f64 / span;
        // What still fits into the memtable adds no SSTable: it is slower, and not refused.
        let depth = if freezes { depth } else { depth.min(0.99) };
        (memory.mul_add(4.0, -3.0)).max(depth)
    }
}

#[async_trait]
impl BackpressureController for Valve {
    async fn maybe_apply_backpressure(&self, shard: ShardMemory) -> lance_core::Result<()> {
        let load = self.load(shard.freeze_required());
        if load <= 0.0 {
            return Ok(());
        }
        let (began, counts) = (Instant::now(), &self.pressure.counts);
        self.pressure.relieve(&self.gauge.table);
        let wait = if load < 1.0 { DELAY_MAX.mul_f64(load) } else { PATIENCE };
        let mut now = load;
        while began.elapsed() < wait && now > 0.0 && (now >= 1.0) == (load >= 1.0) {
            tokio::time::sleep(LOOK.min(wait)).await;
            now = self.load(shard.freeze_required());
        }
        if load >= 1.0 && now >= 1.0 {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(lance_core::Error::backpressure(format!(
                "shard `{}` has {} SSTables to fold ({} at most: pod_stop_sstables), and all writers hold {} bytes \
                 ({} at most: pod_memory_bytes); try again",
                self.shard,
                self.gauge.sstables(),
                self.pressure.bounds.stop_sstables,
                self.pressure.memory_bytes(),
                self.pressure.bounds.memory_bytes
            )));
        }
        counts.delayed.fetch_add(1, Ordering::Relaxed);
        counts.delayed_ms.fetch_add(u64::try_from(began.elapsed().as_millis()).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    /// Lance asks under the writer's lock, and freezes if it may.
    fn may_freeze_memtable(&self) -> bool {
        let may = self.gauge.sstables() < self.pressure.bounds.stop_sstables;
        if may {
            self.gauge.frozen.fetch_add(1, Ordering::Relaxed);
        }
        may
    }
}

impl WalObserver for Valve {
    fn on_wal_flush(&self, _: Duration, bytes: usize) {
        self.pressure.counts.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn on_memtable_flush(&self, _: Duration, _: usize) {
        self.pressure.counts.flushes.fetch_add(1, Ordering::Relaxed);
        self.gauge.unfolded.fetch_add(1, Ordering::Relaxed);
        // One that was frozen on demand was not counted.
        let less = |frozen: u64| Some(frozen.saturating_sub(1));
        let _ = self.gauge.frozen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.pressure.relieve(&self.gauge.table);
    }

    fn on_memtable_flush_failure(&self, generation: u64, error: &lance_core::Error) {
        self.pressure.counts.flush_failures.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(table = self.gauge.table, shard = %self.shard, generation, %error, "a memtable was not flushed");
    }
}

impl fmt::Debug for Valve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Valve({})", self.shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn valve(bounds: Bounds, unfolded: u64) -> Valve {
        let (pressure, shard) = (Pressure::new(bounds), Uuid::nil());
        let gauge = pressure.gauge("t", "/t.lance", shard);
        gauge.unfolded.store(unfolded, Ordering::Relaxed);
        Valve { pressure, shard, gauge }
    }

    #[test]
    fn from_the_first_bound_on_writes_are_slower_and_from_the_second_refused() {
        let bounds = Bounds { slow_sstables: 10, stop_sstables: 20, ..Bounds::default() };
        let load = |unfolded| valve(bounds, unfolded).load(true);
        assert!(load(0) <= 0.0 && load(10) <= 0.0);
        assert!(load(11) > 0.0 && load(11) < load(15) && load(15) < 1.0);
        assert!(load(20) >= 1.0 && load(1_000) >= 1.0);
    }

    #[test]
    fn what_still_fits_into_the_memtable_is_never_refused_for_sstables() {
        let bounds = Bounds { slow_sstables: 10, stop_sstables: 20, ..Bounds::default() };
        let full = valve(bounds, 1_000);
        assert!(full.load(false) < 1.0);
        assert!(!full.may_freeze_memtable());
    }

    #[test]
    fn what_is_frozen_and_not_yet_flushed_counts_so_that_no_writer_gets_ahead_of_the_bound() {
        let bounds = Bounds { slow_sstables: 10, stop_sstables: 20, ..Bounds::default() };
        let nearly = valve(bounds, 18);
        assert!(nearly.may_freeze_memtable() && nearly.may_freeze_memtable());
        assert!(!nearly.may_freeze_memtable() && nearly.load(true) >= 1.0);
        // Flushed is as many, and folded is fewer.
        nearly.on_memtable_flush(Duration::ZERO, 1);
        assert!(!nearly.may_freeze_memtable());
        nearly.pressure.counted("/t.lance", nearly.shard, 5, 1);
        assert!(nearly.may_freeze_memtable() && nearly.load(true) <= 0.0);
    }

    #[tokio::test]
    async fn rows_of_requests_have_a_bound_of_their_own_and_leave_it() {
        let pressure = Pressure::new(Bounds { memory_bytes: 64 * MIB, ..Bounds::default() });
        let first = pressure.room(12 * MIB).await.expect("there is room");
        assert!(matches!(pressure.room(8 * MIB).await, Err(Error::Busy(_))));
        drop(first);
        // More than there ever is waits for all of it, and not for ever.
        let all = pressure.room(1 << 40).await.expect("there is room");
        assert!(matches!(pressure.room(1).await, Err(Error::Busy(_))));
        drop(all);
        assert_eq!(pressure.counts().refused.load(Ordering::Relaxed), 2);
    }
}
