//! One series a table. They are filled in when somebody asks, from what is known then: ages go on
//! while nothing happens, and a table that is gone has none (COV-02).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use planner::facts::TableFacts;
use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

use super::{kept, signed};

/// Tables that have series of their own, the first by name. Beyond, sums and the log have to do.
pub(super) const TABLES_MAX: usize = 10_000;

/// What is known of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    failures: u64,
    evaluated: Option<Evaluated>,
}

/// Numbers of the last successful evaluation.
#[derive(Clone, Debug)]
pub(super) struct Evaluated {
    at_ms: u64,
    version: u64,
    rows: Option<u64>,
    fragments: Option<u64>,
    unfolded: u64,
    unfolded_bytes: Option<u64>,
    /// `None`: nothing is un-folded, or nobody knows since when.
    oldest_unfolded_ms: Option<u64>,
    /// Of the index that lags most.
    unindexed_rows: Option<u64>,
    /// Rewrites that wait for a remap, and when the oldest was recorded.
    rewrites: Option<u64>,
    oldest_rewrite_ms: Option<u64>,
    changed: bool,
}

type Value = fn(&Known, now_ms: u64) -> Option<u64>;

/// Name, help and value; where there is no value there is no series.
const METRICS: &[(&str, &str, Value)] = &[
    ("caretaker_table_failures", "Failed evaluations in a row.", |k, _| Some(k.failures)),
    ("caretaker_table_success_age_seconds", "Age of the last successful evaluation.", |k, now| {
        Some(now.saturating_sub(k.evaluated.as_ref()?.at_ms) / 1000)
    }),
    ("caretaker_table_version", "Newest version.", |k, _| Some(k.evaluated.as_ref()?.version)),
    ("caretaker_table_rows", "Rows of the base.", |k, _| k.evaluated.as_ref()?.rows),
    ("caretaker_table_fragments", "Fragments of the base.", |k, _| k.evaluated.as_ref()?.fragments),
    ("caretaker_table_unfolded_sstables", "SSTables not folded yet.", |k, _| Some(k.evaluated.as_ref()?.unfolded)),
    ("caretaker_table_unfolded_bytes", "Bytes of SSTables not folded yet, where all are measured.", |k, _| {
        k.evaluated.as_ref()?.unfolded_bytes
    }),
    ("caretaker_table_oldest_unfolded_age_seconds", "Age of the oldest SSTable not folded yet.", |k, now| {
        let known = k.evaluated.as_ref()?;
        match known.oldest_unfolded_ms {
            None if known.unfolded > 0 => None,
            oldest => Some(now.saturating_sub(oldest.unwrap_or(now)) / 1000),
        }
    }),
    ("caretaker_table_unindexed_rows", "Rows that the index which lags most does not cover.", |k, _| {
        k.evaluated.as_ref()?.unindexed_rows
    }),
    ("caretaker_table_deferred_rewrites", "Rewrites that wait for a remap of index entries.", |k, _| {
        k.evaluated.as_ref()?.rewrites
    }),
    ("caretaker_table_oldest_deferred_rewrite_age_seconds", "Age of the oldest of them.", |k, now| {
        let known = k.evaluated.as_ref()?;
        known.rewrites.map(|_| now.saturating_sub(known.oldest_rewrite_ms.unwrap_or(now)) / 1000)
    }),
    ("caretaker_table_answers_changed", "1: a job changed the table's answers, and nobody has looked.", |k, _| {
        Some(u64::from(k.evaluated.as_ref()?.changed))
    }),
];

/// The series of all tables.
pub(super) struct ByTable {
    known: Mutex<BTreeMap<String, Known>>,
    gauges: Vec<IntGaugeVec>,
    left_out: IntGauge,
}

impl ByTable {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name, help| kept(registry, IntGaugeVec::new(Opts::new(name, help), &["table"])?);
        let left_out = IntGauge::new("caretaker_tables_without_series", "Tables beyond the bound on series.")?;
        Ok(Self {
            known: Mutex::default(),
            gauges: METRICS.iter().map(|(name, help, _)| gauge(*name, *help)).collect::<prometheus::Result<_>>()?,
            left_out: kept(registry, left_out)?,
        })
    }

    pub(super) fn retain(&self, owned: &BTreeSet<String>) {
        self.lock().retain(|table, _| owned.contains(table));
    }

    pub(super) fn failing(&self, table: &str, times: u64) {
        self.lock().entry(table.to_string()).or_default().failures = times;
    }

    pub(super) fn evaluated(&self, table: &str, facts: &TableFacts, now_ms: u64) {
        let unfolded = || {
            let shards = facts.shards.iter();
            shards.flat_map(|shard| shard.sstables.iter().filter(|s| s.generation > shard.compacted_generation))
        };
        let add = |sum: u64, part: Option<u64>| Some(sum.saturating_add(part?));
        let evaluated = Evaluated {
            at_ms: now_ms,
            version: facts.version,
            rows: facts.rows,
            fragments: facts.fragments.as_ref().map(|fragments| fragments.len() as u64),
            unfolded: unfolded().count() as u64,
            unfolded_bytes: unfolded().map(|sstable| sstable.bytes).try_fold(0, add),
            oldest_unfolded_ms: unfolded().filter_map(|sstable| sstable.flushed_at_ms).min(),
            unindexed_rows: facts.indexes.iter().filter_map(|index| index.unindexed_rows).max(),
            rewrites: facts.remap.as_ref().map(|remap| remap.rewrites),
            oldest_rewrite_ms: facts.remap.as_ref().and_then(|remap| remap.oldest_at_ms),
            changed: facts.mismatch.is_some(),
        };
        self.lock().insert(table.to_string(), Known { failures: 0, evaluated: Some(evaluated) });
    }

    /// Brings the series up to date; nobody else does until the guard is dropped.
    pub(super) fn fill(&self, now_ms: u64) -> MutexGuard<'_, BTreeMap<String, Known>> {
        let known = self.lock();
        for (gauge, (_, _, value)) in self.gauges.iter().zip(METRICS) {
            gauge.reset();
            for (table, known) in known.iter().take(TABLES_MAX) {
                if let Some(value) = value(known, now_ms) {
                    gauge.with_label_values(&[table]).set(signed(value));
                }
            }
        }
        self.left_out.set(signed(known.len().saturating_sub(TABLES_MAX) as u64));
        known
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }
}
