//! What is simulated, and the table that it begins with.

use alloc::{format, string::String, string::ToString, vec, vec::Vec};
use core::{fmt, ops::RangeInclusive};
use serde::{Deserialize, Serialize};

use super::faults::Fault;
use super::workload::Workload;
use crate::check::{self, Violation};
use crate::facts::{CleanupFacts, FragmentFacts, IndexFacts, RemapFacts, ShardFacts, TableFacts};
use crate::policy::{Policy, Refused};
use crate::time::{DAY_MS, MINUTE_MS};

/// How long a simulation may be, milliseconds.
pub const DURATION_MS: RangeInclusive<u64> = MINUTE_MS..=400 * DAY_MS;
/// How many entries a series may have.
pub const SAMPLES: RangeInclusive<u64> = 60..=5_000;
/// Most faults.
pub const FAULTS_MAX: usize = 1_000;
/// Most jobs that a timeline lists.
pub const JOBS_MAX: usize = 2_000;
/// Latest start and end: the year 9999.
const TIME_MS_MAX: u64 = 253_402_300_799_999;
/// 2026-01-01, a Thursday.
const START_MS: u64 = 1_767_225_600_000;
/// Most rows of a fragment of the table that a workload begins with: Lance's `max_rows_per_file`.
const FRAGMENT_ROWS: u64 = 1 << 20;

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Simulation {
    /// What clients and machines do.
    pub workload: Workload,
    /// By what is decided.
    pub policy: Policy,
    /// The table at the start. `None`: as the workload says.
    pub facts: Option<TableFacts>,
    /// When it starts, milliseconds since the epoch. `None`: the newest time in the facts, or the
    /// beginning of 2026.
    pub start_ms: Option<u64>,
    /// How long it lasts, milliseconds.
    pub duration_ms: u64,
    /// Which jobs fail.
    pub seed: u64,
    /// What goes wrong, in any order.
    pub faults: Vec<Fault>,
    /// Most entries of a series.
    pub samples: u64,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            workload: Workload::default(),
            policy: Policy::default(),
            facts: None,
            start_ms: None,
            duration_ms: 7 * DAY_MS,
            seed: 0,
            faults: Vec::new(),
            samples: 600,
        }
    }
}

/// Why nothing is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A value of the workload.
    Workload(Refused),
    /// A value of the policy.
    Policy(Refused),
    /// The facts contradict themselves.
    Facts(Vec<Violation>),
    /// A bound of the simulation itself: duration, samples, faults, start.
    Bounds(Refused),
    /// So many steps were done, and it had come so far.
    TooMany {
        /// Milliseconds since the start.
        at_ms: u64,
        /// Events so far.
        steps: u64,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(refused) | Self::Policy(refused) | Self::Bounds(refused) => refused.fmt(f),
            Self::Facts(violations) => {
                let all: Vec<String> = violations.iter().map(ToString::to_string).collect();
                f.write_str(&all.join("; "))
            }
            Self::TooMany { at_ms, steps } => write!(
                f,
                "too many events: {steps} in the first {}; raise the flush size (or the rows of a write), write fewer rows, or shorten the time",
                crate::draw::duration(*at_ms)
            ),
        }
    }
}

impl core::error::Error for Unfit {}

impl Simulation {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// The first that is out of range, and facts that contradict themselves.
    pub fn check(&self) -> Result<(), Unfit> {
        self.workload.check().map_err(Unfit::Workload)?;
        self.policy.check().map_err(Unfit::Policy)?;
        if let Some(facts) = &self.facts {
            check::facts(facts).map_err(Unfit::Facts)?;
        }
        let within = |key: &str, value: u64, range: RangeInclusive<u64>| match range.contains(&value) {
            true => Ok(()),
            false => {
                let why = format!("{value} is out of range; from {} to {}", range.start(), range.end());
                Err(Unfit::Bounds(Refused { key: key.into(), why }))
            }
        };
        within("duration_ms", self.duration_ms, DURATION_MS)?;
        within("samples", self.samples, SAMPLES)?;
        within("faults", self.faults.len() as u64, 0..=FAULTS_MAX as u64)?;
        within("start_ms", self.start_ms(), 0..=TIME_MS_MAX)?;
        for fault in &self.faults {
            within("at_ms", fault.at_ms(), 0..=self.duration_ms)?;
            within("for_ms", fault.for_ms(), 0..=*DURATION_MS.end())?;
            match fault {
                Fault::Burst { times, .. } => within("times", *times, 0..=10_000)?,
                Fault::ClockBack { by_ms, .. } => within("by_ms", *by_ms, 0..=*DURATION_MS.end())?,
                Fault::WorkerDies { silent_ms, .. } => within("silent_ms", *silent_ms, 0..=*DURATION_MS.end())?,
                _ => {}
            }
        }
        Ok(())
    }

    /// When it starts, milliseconds since the epoch.
    pub fn start_ms(&self) -> u64 {
        self.start_ms.or_else(|| newest(self.facts.as_ref()?)).unwrap_or(START_MS)
    }

    /// The table at the start. What runs in the facts has ended without a trace.
    pub(super) fn table(&self) -> TableFacts {
        let mut facts = self.facts.clone().unwrap_or_else(|| self.fresh());
        facts.running.clear();
        for shard in &mut facts.shards {
            shard.pass = None;
            shard.garbage.get_or_insert_default();
        }
        facts.shards.sort_by(|a, b| a.shard.cmp(&b.shard));
        facts.cleanup.get_or_insert_default();
        if self.workload.lsm > 0 && facts.shards.is_empty() {
            facts.shards = (1..=self.workload.shards).map(shard).collect();
            if facts.primary_key.is_empty() {
                facts.primary_key = vec!["id".into()];
            }
        }
        facts
    }

    fn fresh(&self) -> TableFacts {
        let Workload { table_rows, row_bytes, btree_indexes, fts_indexes, ivfpq_indexes, .. } = self.workload;
        let full = table_rows / FRAGMENT_ROWS;
        // A table of a million fragments and more begins with larger ones.
        let rows = if full > 10_000 { table_rows.div_ceil(10_000) } else { FRAGMENT_ROWS };
        let part = |id: u64| rows.min(table_rows - id * rows);
        let fragment = |id: u64| FragmentFacts {
            id,
            rows: part(id),
            deleted: Some(0),
            bytes: Some(part(id).saturating_mul(row_bytes)),
            coverage: 1,
            excluded: false,
        };
        let kinds = [("btree", btree_indexes), ("fts", fts_indexes), ("ivfpq", ivfpq_indexes)];
        let index = |kind: &str, nth: u64| IndexFacts {
            name: format!("{kind}_{nth}"),
            kind: kind.into(),
            unindexed_rows: Some(0),
            segments: Some(1),
            ..IndexFacts::default()
        };
        let indexes = kinds.iter().flat_map(|(kind, many)| (1..=*many).map(move |nth| index(kind, nth)));
        let indexes: Vec<IndexFacts> = indexes.collect();
        let coverage = u32::from(!indexes.is_empty());
        TableFacts {
            table: "simulated".into(),
            version: 1,
            rows: Some(table_rows),
            primary_key: vec!["id".into()],
            fragments: Some(
                (0..table_rows.div_ceil(rows)).map(|id| FragmentFacts { coverage, ..fragment(id) }).collect(),
            ),
            indexes,
            versions: Some(1),
            cleanup: Some(CleanupFacts::default()),
            remap: Some(RemapFacts::default()),
            ..TableFacts::default()
        }
    }
}

fn shard(nth: u64) -> ShardFacts {
    ShardFacts {
        shard: format!("00000000-0000-4000-8000-{nth:012}"),
        garbage: Some(Vec::new()),
        ..ShardFacts::default()
    }
}

/// The newest time that facts know of.
fn newest(facts: &TableFacts) -> Option<u64> {
    let of_shard = |shard: &ShardFacts| {
        let sstables = shard.sstables.iter().filter_map(|s| s.flushed_at_ms);
        let garbage = shard.garbage.iter().flatten().filter_map(|g| g.since_ms);
        sstables.chain(garbage).chain(shard.recorded_at_ms).max()
    };
    let of_cleanup = facts
        .cleanup
        .iter()
        .flat_map(|c| c.last_success.map(|success| success.finished_at_ms).into_iter().chain(c.last_failure_at_ms));
    let unindexed = facts.indexes.iter().filter_map(|index| index.unindexed_since_ms);
    let remap = facts.remap.iter().filter_map(|remap| remap.oldest_at_ms);
    let failed = facts.failed.iter().map(|failed| failed.last_at_ms);
    facts.shards.iter().filter_map(of_shard).chain(of_cleanup).chain(unindexed).chain(remap).chain(failed).max()
}
