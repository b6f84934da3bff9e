//! Every knob, once, with its documented default.
//!
//! [`KNOBS`] is the one list behind the environment names, the flags, the settings file, the
//! generated reference and the browser's form: a knob is added in one place.

mod lint;
mod text;

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

pub use self::lint::Lint;
use crate::facts::GarbageKind;
use crate::time::{DAY_MS, HOUR_MS, SECOND_MS};

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Bytes of a gibibyte.
pub const GIB: u64 = 1 << 30;

/// What a deployment may choose. Milliseconds and bytes inside, whatever unit a knob is written in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes; `512MiB`, `2GiB` are understood.
    Bytes,
    /// Seconds as written, milliseconds in [`Policy`]; `90s`, `5m`, `24h`, `7d` are understood.
    Seconds,
}

/// One knob of [`Policy`].
#[derive(Clone, Copy, Debug)]
pub struct Knob {
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
    get: fn(&Policy) -> u64,
    field: fn(&mut Policy) -> &mut u64,
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The knob's key, or the unknown key.
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}

const YEAR_SECS: u64 = 365 * 24 * 3600;

macro_rules! knob {
    ($key:literal, $unit:ident, $min:expr, $max:expr, $zero:expr, $field:ident, $help:literal) => {
        Knob {
            key: $key,
            unit: Unit::$unit,
            min: $min,
            max: $max,
            zero: $zero,
            help: $help,
            get: |p| p.$field,
            field: |p| &mut p.$field,
        }
    };
}

/// Every knob, in the order the reference lists them.
pub const KNOBS: &[Knob] = &[
    knob!(
        "wal_compaction_interval_secs",
        Seconds,
        0,
        YEAR_SECS,
        Some("the walk is off; a pass can still be forced"),
        tick_ms,
        "How often each shard's manifest is read and its triggers are checked (R2.1)."
    ),
    knob!(
        "wal_compact_trigger_count",
        Count,
        1,
        1_000_000,
        None,
        trigger_count,
        "Un-folded SSTables of a shard that make a fold due (R2.2)."
    ),
    knob!(
        "wal_compact_trigger_bytes",
        Bytes,
        1,
        1 << 50,
        None,
        trigger_bytes,
        "Bytes of un-folded SSTables of a shard that make a fold due (R2.2)."
    ),
    knob!(
        "wal_max_data_age_secs",
        Seconds,
        1,
        10 * YEAR_SECS,
        None,
        age_ms_max,
        "Age of the oldest un-folded SSTable that makes a fold due, whatever the count (R2.2)."
    ),
    knob!(
        "wal_compact_prefix_max",
        Count,
        1,
        100_000,
        None,
        prefix_max,
        "Most SSTables in one pass, oldest first (R2.7)."
    ),
    knob!(
        "compact_pass_target_bytes",
        Bytes,
        1,
        1 << 50,
        None,
        pass_bytes,
        "Most bytes in one pass; the oldest SSTable is taken whatever its size (R2.7)."
    ),
    knob!("wal_compact_concurrency", Count, 1, 10_000, None, concurrency, "Passes at once (R2.6)."),
    knob!(
        "compact_pass_memory_bytes",
        Bytes,
        64 * MIB,
        1 << 40,
        None,
        pass_memory_bytes,
        "Memory one pass may use, whatever the size of its prefix."
    ),
    knob!(
        "retire_delay_secs",
        Seconds,
        0,
        24 * 3600,
        Some("SSTables leave the list as soon as every index covers them"),
        retire_delay_ms,
        "How long a folded SSTable stays listed for readers that hold the version before the fold (R2.13)."
    ),
    knob!(
        "collect_grace_secs",
        Seconds,
        0,
        YEAR_SECS,
        Some("files go as soon as nothing lists or needs them; only safe while nothing reads or writes the table"),
        grace_ms,
        "How long files that nothing lists are kept before they are deleted (R2.15)."
    ),
    knob!(
        "collect_files_max",
        Count,
        1,
        1_000_000,
        None,
        collect_files_max,
        "Most files one collection deletes; the next one goes on (R2.15)."
    ),
];

impl Knob {
    /// The knob of a settings-file key.
    pub fn named(key: &str) -> Option<&'static Self> {
        KNOBS.iter().find(|knob| knob.key == key)
    }

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
    pub fn value(&self, policy: &Policy) -> u64 {
        (self.get)(policy) / self.scale()
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
        KNOBS.iter().try_for_each(|knob| knob.within(u128::from((knob.get)(self)), None))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.why)
    }
}

impl core::error::Error for Refused {}
