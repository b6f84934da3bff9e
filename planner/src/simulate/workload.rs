//! What clients and machines do to a table while time passes.

use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use super::knobs::{PRESETS, WORKLOAD};
use crate::policy::{self, Refused};
use crate::time::{MINUTE_MS, SECOND_MS};

/// A workload. Milliseconds and bytes inside, whatever unit a knob is written in. What a JSON object
/// leaves out has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Rows that clients write each second, of every kind and over all shards.
    pub rows_per_sec: u64,
    /// Bytes of a row, in an SSTable and in the base.
    pub row_bytes: u64,
    /// Thousandths of the rows that replace a row of the table.
    pub update_permille: u64,
    /// Thousandths of the rows that delete a row of the table.
    pub delete_permille: u64,
    /// Thousandths of the updates that go to the hot keys; the others go to any key.
    pub hot_update_permille: u64,
    /// Thousandths of the keys that are hot.
    pub hot_keys_permille: u64,
    /// Rows of the base at the start, each with a key of its own. Facts say so themselves.
    pub table_rows: u64,
    /// Rows of one write: of a commit, where there is no log.
    pub rows_per_write: u64,
    /// 1: writes go through shards, memtables and SSTables. 0: each write is a commit to the base.
    pub lsm: u64,
    /// Shards. Facts with shards say so themselves.
    pub shards: u64,
    /// Bytes at which a memtable is frozen.
    pub flush_bytes: u64,
    /// Rows at which a memtable is frozen.
    pub flush_rows: u64,
    /// SSTables of a shard that are not folded, from which on writes are held.
    pub stop_sstables: u64,
    /// Period of bursts; 0: none.
    pub burst_every_ms: u64,
    /// How long a burst lasts.
    pub burst_for_ms: u64,
    /// How many times as many rows come in a burst.
    pub burst_times: u64,
    /// When clients fall silent, of the day in UTC.
    pub quiet_from_ms: u64,
    /// When they begin again, of the day in UTC. The same as `quiet_from_ms`: they never fall silent.
    pub quiet_to_ms: u64,
    /// Jobs that run at once.
    pub worker_slots: u64,
    /// Bytes that one job reads and writes each second.
    pub worker_bytes_per_sec: u64,
    /// Rows that one job indexes each second.
    pub index_rows_per_sec: u64,
    /// Bytes of a row in an index.
    pub index_row_bytes: u64,
    /// What beginning a job and committing it costs.
    pub commit_ms: u64,
    /// Thousandths of the jobs that fail.
    pub failure_permille: u64,
    /// B-tree indexes. Facts say so themselves, as they do of the others.
    pub btree_indexes: u64,
    /// Full-text indexes.
    pub fts_indexes: u64,
    /// IVF-PQ vector indexes.
    pub ivfpq_indexes: u64,
    /// The longest read of the table; only remarks on settings look at it.
    pub longest_read_ms: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            rows_per_sec: 100,
            row_bytes: 1 << 10,
            update_permille: 0,
            delete_permille: 0,
            hot_update_permille: 0,
            hot_keys_permille: 10,
            table_rows: 0,
            rows_per_write: 1_000,
            lsm: 1,
            shards: 1,
            // What Lance's own writer has.
            flush_bytes: 256 << 20,
            flush_rows: 100_000,
            stop_sstables: 64,
            burst_every_ms: 0,
            burst_for_ms: MINUTE_MS,
            burst_times: 10,
            quiet_from_ms: 0,
            quiet_to_ms: 0,
            worker_slots: 2,
            worker_bytes_per_sec: 100 << 20,
            index_rows_per_sec: 100_000,
            index_row_bytes: 32,
            commit_ms: 500,
            failure_permille: 0,
            btree_indexes: 1,
            fts_indexes: 0,
            ivfpq_indexes: 0,
            longest_read_ms: 10 * SECOND_MS,
        }
    }
}

impl Workload {
    /// Sets one knob from text, as [`policy::Policy::set`] does.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one; a value that is malformed or out of range.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Refused> {
        policy::set(WORKLOAD, self, key, text)
    }

    /// The defaults with `pairs` of key and text on top; a later pair wins.
    ///
    /// # Errors
    /// The first pair that [`Workload::set`] refuses.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Refused> {
        let mut workload = Self::default();
        for (key, text) in pairs {
            workload.set(key, text)?;
        }
        Ok(workload)
    }

    /// A workload that has a name.
    ///
    /// # Errors
    /// A name that none has.
    pub fn preset(name: &str) -> Result<Self, Refused> {
        let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) else {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            let why = format!("`{name}` is no preset; there are {}", names.join(", "));
            return Err(Refused { key: "preset".into(), why });
        };
        Self::from_pairs(preset.set.iter().copied())
    }

    /// Checks every knob against its range, and those that belong together.
    ///
    /// # Errors
    /// The first knob that is out of range.
    pub fn check(&self) -> Result<(), Refused> {
        WORKLOAD.iter().try_for_each(|knob| knob.check(self))?;
        if self.update_permille + self.delete_permille > 1_000 {
            let (updates, deletes) = (self.update_permille, self.delete_permille);
            let why = format!("{updates} updates and {deletes} deletes are more than 1000 of a thousand rows");
            return Err(Refused { key: "delete_permille".into(), why });
        }
        Ok(())
    }

    /// A file with every knob explained. A knob at its default stands there as a comment.
    pub fn to_toml(&self) -> String {
        let defaults = Self::default();
        let head = "# A workload for `caretaker simulate`. A line that begins with `#` shows a default.\n";
        WORKLOAD.iter().fold(head.into(), |out: String, knob| out + &knob.lines(self, &defaults, ""))
    }
}
