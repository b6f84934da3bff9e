//! The knobs of a workload, and workloads that have a name.

use super::workload::Workload;
use crate::policy::{Knob, knob};

const YEAR_SECS: u64 = 365 * 24 * 3600;
const DAY_SECS: u64 = 24 * 3600;

/// A workload that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// What differs from the defaults: key and text, as [`Workload::from_pairs`] takes them.
    pub set: &'static [(&'static str, &'static str)],
}

/// Every preset, in the order in which they are shown.
pub const PRESETS: &[Preset] = &[
    Preset { name: "insert-only", help: "New rows only, at a steady rate: events, logs, embeddings.", set: &[] },
    Preset {
        name: "zipfian-updates",
        help: "Most rows replace others, and a hundredth of the keys takes most of that.",
        set: &[("update_permille", "800"), ("hot_update_permille", "800"), ("table_rows", "5000000")],
    },
    Preset {
        name: "delete-heavy",
        help: "A third of the rows are deletes, so that fragments fill with deleted rows.",
        set: &[("update_permille", "200"), ("delete_permille", "350"), ("table_rows", "10000000")],
    },
    Preset {
        name: "small-appends",
        help: "A small commit every five minutes and no log: many small fragments, versions and index segments.",
        set: &[("lsm", "0"), ("rows_per_sec", "1"), ("rows_per_write", "300"), ("table_rows", "1000000")],
    },
    Preset {
        name: "bursty",
        help: "Little most of the time, and for ten minutes of every six hours fifty times as much, over four shards.",
        set: &[
            ("rows_per_sec", "50"),
            ("shards", "4"),
            ("burst_every_secs", "6h"),
            ("burst_for_secs", "10m"),
            ("burst_times", "50"),
        ],
    },
    Preset {
        name: "quiet",
        help: "A row a second by day and none by night: age alone freezes memtables and folds.",
        set: &[
            ("rows_per_sec", "1"),
            ("row_bytes", "256"),
            ("flush_rows", "10000000"),
            ("quiet_from_secs", "20h"),
            ("quiet_to_secs", "6h"),
        ],
    },
];

/// Every knob, in the order in which they are shown.
pub const WORKLOAD: &[Knob<Workload>] = &[
    knob!(
        "rows_per_sec",
        Count,
        0,
        10_000_000,
        Some("nothing is written"),
        rows_per_sec,
        "Rows that clients write each second, of every kind and over all shards."
    ),
    knob!("row_bytes", Bytes, 1, 64 << 20, None, row_bytes, "Bytes of a row, in an SSTable and in the base."),
    knob!(
        "update_permille",
        Count,
        0,
        1_000,
        Some("no row replaces another"),
        update_permille,
        "Thousandths of the rows that replace a row of the table."
    ),
    knob!(
        "delete_permille",
        Count,
        0,
        1_000,
        Some("no row is deleted"),
        delete_permille,
        "Thousandths of the rows that delete a row of the table."
    ),
    knob!(
        "hot_update_permille",
        Count,
        0,
        1_000,
        Some("updates go to any key alike"),
        hot_update_permille,
        "Thousandths of the updates that go to the hot keys; the others go to any key."
    ),
    knob!("hot_keys_permille", Count, 1, 1_000, None, hot_keys_permille, "Thousandths of the keys that are hot."),
    knob!(
        "table_rows",
        Count,
        0,
        1 << 40,
        Some("the table is empty"),
        table_rows,
        "Rows of the base at the start; facts say so themselves."
    ),
    knob!(
        "rows_per_write",
        Count,
        1,
        1 << 32,
        None,
        rows_per_write,
        "Rows of one write: of a commit, where there is no log. A memtable is frozen at 8000 writes, too."
    ),
    knob!(
        "lsm",
        Count,
        0,
        1,
        Some("each write is a commit to the base"),
        lsm,
        "1: writes go through shards, memtables and SSTables."
    ),
    knob!("shards", Count, 1, 64, None, shards, "Shards; facts with shards say so themselves."),
    knob!("flush_bytes", Bytes, 1 << 10, 1 << 40, None, flush_bytes, "Bytes at which a memtable is frozen."),
    knob!("flush_rows", Count, 1, 1 << 40, None, flush_rows, "Rows at which a memtable is frozen."),
    knob!(
        "stop_sstables",
        Count,
        1,
        100_000,
        None,
        stop_sstables,
        "SSTables of a shard that are not folded, from which on writes are held (pod_stop_sstables)."
    ),
    knob!("burst_every_secs", Seconds, 0, YEAR_SECS, Some("no bursts"), burst_every_ms, "Period of bursts."),
    knob!("burst_for_secs", Seconds, 1, YEAR_SECS, None, burst_for_ms, "How long a burst lasts."),
    knob!(
        "burst_times",
        Count,
        0,
        10_000,
        Some("a pause"),
        burst_times,
        "How many times as many rows come in a burst."
    ),
    knob!(
        "quiet_from_secs",
        Seconds,
        0,
        DAY_SECS - 1,
        Some("midnight"),
        quiet_from_ms,
        "When clients fall silent, of the day in UTC; at the same time as they begin: never."
    ),
    knob!(
        "quiet_to_secs",
        Seconds,
        0,
        DAY_SECS - 1,
        Some("midnight"),
        quiet_to_ms,
        "When clients begin again, of the day in UTC."
    ),
    knob!("worker_slots", Count, 1, 1_024, None, worker_slots, "Jobs that run at once."),
    knob!(
        "worker_bytes_per_sec",
        Bytes,
        1 << 10,
        1 << 40,
        None,
        worker_bytes_per_sec,
        "Bytes that one job reads and writes each second."
    ),
    knob!("index_rows_per_sec", Count, 1, 1 << 32, None, index_rows_per_sec, "Rows that one job indexes each second."),
    knob!(
        "index_row_bytes",
        Bytes,
        0,
        1 << 20,
        Some("indexes take no room"),
        index_row_bytes,
        "Bytes of a row in an index."
    ),
    knob!(
        "commit_ms",
        Count,
        0,
        3_600_000,
        Some("a job costs its bytes alone"),
        commit_ms,
        "Milliseconds that beginning a job and committing it cost."
    ),
    knob!(
        "failure_permille",
        Count,
        0,
        1_000,
        Some("no job fails"),
        failure_permille,
        "Thousandths of the jobs that fail."
    ),
    knob!("btree_indexes", Count, 0, 8, Some("none"), btree_indexes, "B-tree indexes; facts say so themselves."),
    knob!("fts_indexes", Count, 0, 8, Some("none"), fts_indexes, "Full-text indexes; facts say so themselves."),
    knob!("ivfpq_indexes", Count, 0, 8, Some("none"), ivfpq_indexes, "IVF-PQ vector indexes; facts say so themselves."),
    knob!(
        "longest_read_secs",
        Seconds,
        0,
        YEAR_SECS,
        Some("not measured"),
        longest_read_ms,
        "The longest read of the table; only remarks on settings look at it."
    ),
];
