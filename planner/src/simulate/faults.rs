//! What goes wrong, and when.

use serde::{Deserialize, Serialize};

use crate::time::MINUTE_MS;

/// Something that goes wrong at a moment. Times are milliseconds since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "fault", deny_unknown_fields)]
pub enum Fault {
    /// The worker dies with all it runs. Its jobs are given to another when it has been silent for long
    /// enough.
    WorkerDies {
        /// When.
        at_ms: u64,
        /// How long a worker may be silent.
        #[serde(default = "silence")]
        silent_ms: u64,
    },
    /// Somebody else commits first: the next job that would commit to the base loses, and is planned anew.
    CommitConflict {
        /// When.
        at_ms: u64,
    },
    /// More rows for a while.
    Burst {
        /// When.
        at_ms: u64,
        /// How long.
        for_ms: u64,
        /// How many times as many.
        times: u64,
    },
    /// The machine's clock is put back. What happened keeps the times it was given.
    ClockBack {
        /// When.
        at_ms: u64,
        /// By how much.
        by_ms: u64,
    },
    /// Nothing can be written: flushes wait, writes are held when a memtable is full, jobs fail.
    DiskFull {
        /// When.
        at_ms: u64,
        /// How long.
        for_ms: u64,
    },
    /// The job registry does not answer: nothing is decided and no job begins.
    RegistryAway {
        /// When.
        at_ms: u64,
        /// How long.
        for_ms: u64,
    },
}

fn silence() -> u64 {
    MINUTE_MS
}

impl Fault {
    /// When it happens.
    pub fn at_ms(&self) -> u64 {
        match self {
            Self::WorkerDies { at_ms, .. }
            | Self::CommitConflict { at_ms }
            | Self::Burst { at_ms, .. }
            | Self::ClockBack { at_ms, .. }
            | Self::DiskFull { at_ms, .. }
            | Self::RegistryAway { at_ms, .. } => *at_ms,
        }
    }

    /// How long it lasts; 0 where it is a moment.
    pub fn for_ms(&self) -> u64 {
        match self {
            Self::Burst { for_ms, .. } | Self::DiskFull { for_ms, .. } | Self::RegistryAway { for_ms, .. } => *for_ms,
            Self::WorkerDies { .. } | Self::CommitConflict { .. } | Self::ClockBack { .. } => 0,
        }
    }
}
