//! Every knob, once, with its documented default.
//!
//! [`KNOBS`] is the one list behind the environment names, the flags, the settings file, the
//! generated reference and the browser's form: a knob is added in one place.

mod knobs;
mod lint;
mod overrides;
mod parts;
mod text;

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

pub use self::knobs::KNOBS;
pub(crate) use self::knobs::knob;
pub use self::lint::Lint;
pub(crate) use self::lint::Remarks;
pub use self::overrides::TablePolicy;
pub use self::parts::{AgentPolicy, CleanupPolicy, CompactionPolicy, IndexPolicy, RemapPolicy};
pub(crate) use self::text::{distance, set};
use crate::facts::GarbageKind;
use crate::time::{DAY_MS, HOUR_MS, SECOND_MS};

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Bytes of a gibibyte.
pub const GIB: u64 = 1 << 30;

/// What a deployment may choose. Milliseconds and bytes inside, whatever unit a knob is written in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Period of the walk over owned tables (R2.1); 0 disables it.
    pub tick_ms: u64,
    /// SSTables of a shard that make a fold due (R2.2).
    pub trigger_count: u64,
    /// Bytes of SSTables of a shard that make a fold due (R2.2).
    pub trigger_bytes: u64,
    /// Age of the oldest SSTable that makes a fold due (R2.2); also bounds the memtable's age.
    pub age_ms_max: u64,
    /// Most SSTables in one pass (R2.7).
    pub prefix_max: u64,
    /// Most bytes in one pass (R2.7); the first SSTable is taken whatever its size.
    pub pass_bytes: u64,
    /// Passes at once when a worker fleet runs them (R2.6).
    pub concurrency: u64,
    /// Memory one pass may use (executor; the fold is a stream).
    pub pass_memory_bytes: u64,
    /// How long a folded SSTable stays listed after the commit, for readers that hold the version
    /// before it (R2.13).
    pub retire_delay_ms: u64,
    /// How long an unlisted file is kept (R2.15).
    pub grace_ms: u64,
    /// Most files one collection deletes (R2.15).
    pub collect_files_max: u64,
    /// Of a hundred jobs, those after which the table's answers are compared with those before.
    pub answers_percent: u64,
    /// When indexes are brought up to date.
    pub index: IndexPolicy,
    /// When fragments are rewritten.
    pub compaction: CompactionPolicy,
    /// When old versions go.
    pub cleanup: CleanupPolicy,
    /// When deferred remaps are caught up.
    pub remap: RemapPolicy,
    /// How tables take turns.
    pub agent: AgentPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            tick_ms: 5 * SECOND_MS,
            trigger_count: 4,
            trigger_bytes: GIB,
            age_ms_max: 7 * DAY_MS,
            prefix_max: 32,
            pass_bytes: 2 * GIB,
            concurrency: 32,
            pass_memory_bytes: 512 * MIB,
            retire_delay_ms: 5 * SECOND_MS,
            grace_ms: 24 * HOUR_MS,
            collect_files_max: 10_000,
            answers_percent: 5,
            index: IndexPolicy::default(),
            compaction: CompactionPolicy::default(),
            cleanup: CleanupPolicy::default(),
            remap: RemapPolicy::default(),
            agent: AgentPolicy::default(),
        }
    }
}

impl Policy {
    /// How long an unlisted file of this kind is kept: Lance never prunes a shard manifest younger
    /// than a day, so that a stalled writer still collides with it.
    pub fn grace_ms_of(&self, kind: GarbageKind) -> u64 {
        match kind {
            GarbageKind::Manifest => self.grace_ms.max(DAY_MS),
            GarbageKind::SsTable | GarbageKind::WalEntry => self.grace_ms,
        }
    }
}

/// What a knob's number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes; `512MiB`, `2GiB` are understood.
    Bytes,
    /// Seconds as written, milliseconds in [`Policy`]; `90s`, `5m`, `24h`, `7d` are understood.
    Seconds,
}

/// One knob of [`Policy`], or of another set of numbers that people write.
#[derive(Debug)]
pub struct Knob<T: 'static = Policy> {
    /// Settings-file key. In upper case it is the environment name, with hyphens the flag.
    pub key: &'static str,
    /// Unit of the written number.
    pub unit: Unit,
    /// Lowest value, in the written unit.
    pub min: u64,
    /// Highest value, in the written unit.
    pub max: u64,
    /// What 0 means, where 0 is allowed.
    pub zero: Option<&'static str>,
    /// One sentence for people, with the SPEC rule.
    pub help: &'static str,
    pub(crate) get: fn(&T) -> u64,
    pub(crate) field: fn(&mut T) -> &mut u64,
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused {
    /// The knob's key, or the unknown key.
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}

impl Knob {
    /// The knob of a settings-file key.
    pub fn named(key: &str) -> Option<&'static Self> {
        KNOBS.iter().find(|knob| knob.key == key)
    }
}

impl<T> Knob<T> {
    /// Environment name: the key in upper case.
    pub fn env(&self) -> String {
        self.key.to_ascii_uppercase()
    }

    /// Long flag, without its dashes: the key with hyphens.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The knob's value in its written unit: seconds where [`Policy`] holds milliseconds (rounded
    /// down; [`Policy::set`] takes whole seconds only).
    pub fn value(&self, of: &T) -> u64 {
        (self.get)(of) / self.scale()
    }

    /// How many of [`Policy`]'s units one written unit is.
    fn scale(&self) -> u64 {
        if self.unit == Unit::Seconds { SECOND_MS } else { 1 }
    }
}

impl Policy {
    /// Checks every knob against its range; what [`Policy::set`] sets is always within.
    ///
    /// # Errors
    /// The first knob that is out of range.
    pub fn check(&self) -> Result<(), Refused> {
        KNOBS.iter().try_for_each(|knob| knob.check(self))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.why)
    }
}

impl core::error::Error for Refused {}
