//! When clients' rows come, and when a memtable is frozen.

use alloc::vec::Vec;

use super::rows::Written;
use super::workload::Workload;
use crate::time::DAY_MS;

/// Writes at which a memtable is frozen, whatever they hold: Lance's `max_memtable_batches`.
const WRITES_MAX: u64 = 8_000;
/// Thousandths of a row: what a rate of rows a second gives in a millisecond.
const ROW: u128 = 1_000;

/// A time in which more rows come: from, until, how many times as many.
pub(super) type Burst = (u64, u64, u64);

/// The clients of a table, and the memtables they write into.
pub(super) struct Writer {
    workload: Workload,
    start_ms: u64,
    bursts: Vec<Burst>,
    /// Rows so far, in thousandths, at `at_ms`.
    units: u128,
    at_ms: u64,
    /// Clients wait: back-pressure, or nothing can be written.
    pub(super) held: bool,
    /// Rows at which a memtable is frozen, or a write is full.
    limit: u64,
    /// How old a memtable may be; `None` where there are none.
    age_ms_max: Option<u64>,
    pub(super) memtables: Vec<Memtable>,
}

/// What of a shard's rows is no SSTable yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Memtable {
    /// Rows of the shard that have left it.
    flushed: u64,
    /// When its oldest row came.
    pub(super) first_ms: Option<u64>,
    /// Nothing can be flushed: the shard has too many SSTables, or the disk is full.
    pub(super) blocked: bool,
}

impl Writer {
    pub(super) fn new(workload: &Workload, shards: usize, age_ms_max: u64, start_ms: u64, bursts: Vec<Burst>) -> Self {
        let lsm = workload.lsm > 0;
        let shards = if lsm { shards } else { 1 };
        let per_shard = (workload.rows_per_write / shards.max(1) as u64).max(1);
        let frozen = workload.flush_rows.min(workload.flush_bytes.div_ceil(workload.row_bytes.max(1)));
        Self {
            workload: workload.clone(),
            start_ms,
            bursts,
            units: 0,
            at_ms: 0,
            held: false,
            limit: if lsm { frozen.min(per_shard.saturating_mul(WRITES_MAX)) } else { workload.rows_per_write }.max(1),
            age_ms_max: lsm.then_some(age_ms_max),
            memtables: alloc::vec![Memtable::default(); shards],
        }
    }

    /// Rows that clients wrote so far.
    pub(super) fn rows(&self) -> u64 {
        u64::try_from(self.units / ROW).unwrap_or(u64::MAX)
    }

    /// Rows of one shard so far.
    fn rows_of(&self, shard: usize) -> u64 {
        let (rows, shards) = (self.rows(), self.memtables.len().max(1) as u64);
        rows / shards + u64::from((shard as u64) < rows % shards)
    }

    /// Rows in a memtable.
    pub(super) fn waiting(&self, shard: usize) -> u64 {
        self.rows_of(shard).saturating_sub(self.memtables[shard].flushed)
    }

    /// Lets rows come until `now_ms`, which is not behind [`Writer::next`].
    pub(super) fn advance(&mut self, now_ms: u64) {
        let (rate, _) = self.rate();
        self.units = self.units.saturating_add(u128::from(rate) * u128::from(now_ms - self.at_ms));
        self.at_ms = now_ms;
        for shard in 0..self.memtables.len() {
            if self.memtables[shard].first_ms.is_none() && self.waiting(shard) > 0 {
                self.memtables[shard].first_ms = Some(now_ms);
            }
        }
    }

    /// When something happens next: a memtable gets its first row or must be frozen, or the rate changes.
    pub(super) fn next(&self) -> Option<u64> {
        let (rate, until) = self.rate();
        let each = self.memtables.iter().enumerate();
        let frozen = each.filter_map(|(shard, memtable)| self.next_of(shard, memtable, rate));
        frozen.chain(until).min()
    }

    fn next_of(&self, shard: usize, memtable: &Memtable, rate: u64) -> Option<u64> {
        let full = |rows: u64| self.moment(shard, memtable.flushed.saturating_add(rows), rate);
        let Some(first) = memtable.first_ms else { return full(1) };
        let old = self.age_ms_max.filter(|_| !memtable.blocked).map(|age| first.saturating_add(age).max(self.at_ms));
        // One that is full and can't be flushed waits for whatever blocks it.
        let full = full(self.limit).filter(|at| !(memtable.blocked && *at <= self.at_ms));
        full.into_iter().chain(old).min()
    }

    /// Whether a memtable must be frozen now: by its rows, or by its age.
    pub(super) fn is_full(&self, shard: usize) -> bool {
        self.waiting(shard) >= self.limit
    }

    pub(super) fn is_old(&self, shard: usize) -> bool {
        let first = self.memtables[shard].first_ms;
        first.zip(self.age_ms_max).is_some_and(|(first, age)| self.at_ms >= first.saturating_add(age))
    }

    /// Takes the rows out of a memtable: when the oldest came, and what they do.
    pub(super) fn flush(&mut self, shard: usize) -> (u64, Written) {
        let rows = match self.age_ms_max {
            Some(_) => self.waiting(shard),
            // A write is as large as it is.
            None => self.waiting(shard).min(self.limit),
        };
        let memtable = &mut self.memtables[shard];
        let (from, until) = (memtable.flushed, memtable.flushed.saturating_add(rows));
        let first = memtable.first_ms.take().unwrap_or(self.at_ms);
        memtable.flushed = until;
        if self.waiting(shard) > 0 {
            self.memtables[shard].first_ms = Some(self.at_ms);
        }
        let Workload { update_permille, delete_permille, .. } = self.workload;
        let of = |rows| Written::of(rows, update_permille, delete_permille);
        (first, of(until).less(of(from)))
    }

    /// When a shard has so many rows, at this rate.
    fn moment(&self, shard: usize, rows: u64, rate: u64) -> Option<u64> {
        let shards = self.memtables.len() as u128;
        let all = u128::from(rows.saturating_sub(1)) * shards + shard as u128 + 1;
        let missing = (all * ROW).saturating_sub(self.units);
        if missing == 0 {
            return Some(self.at_ms);
        }
        let wait = match u64::try_from(missing) {
            Ok(missing) if rate > 0 => missing.div_ceil(rate),
            Err(_) if rate > 0 => u64::try_from(missing.div_ceil(u128::from(rate))).ok()?,
            _ => return None,
        };
        self.at_ms.checked_add(wait)
    }

    /// Rows a second now, and until when.
    fn rate(&self) -> (u64, Option<u64>) {
        // A table whose shards are all being dropped takes nothing.
        if self.held || self.memtables.is_empty() {
            return (0, None);
        }
        let (now, workload) = (self.at_ms, &self.workload);
        let (mut times, mut until) = (1u64, None::<u64>);
        let mut change = |at: Option<u64>| until = until.into_iter().chain(at.filter(|at| *at > now)).min();
        let every = workload.burst_every_ms;
        if let Some(passed) = now.checked_rem(every) {
            let begin = now - passed;
            // The first burst comes after a period.
            let bursts = begin > 0 && passed < workload.burst_for_ms;
            times = if bursts { workload.burst_times } else { 1 };
            change(begin.checked_add(workload.burst_for_ms).filter(|_| bursts && workload.burst_for_ms < every));
            change(begin.checked_add(every));
        }
        for (from, to, more) in &self.bursts {
            times = if (*from..*to).contains(&now) { times.saturating_mul(*more) } else { times };
            change(Some(*from));
            change(Some(*to));
        }
        let (from, to) = (workload.quiet_from_ms, workload.quiet_to_ms);
        let time = self.start_ms.saturating_add(now) % DAY_MS;
        let quiet = if from <= to { (from..to).contains(&time) } else { time >= from || time < to };
        if from != to {
            let wait = |to: u64| if to > time { to - time } else { to + DAY_MS - time };
            change(now.checked_add(wait(from).min(wait(to))));
        }
        (if quiet { 0 } else { workload.rows_per_sec.saturating_mul(times) }, until)
    }
}
