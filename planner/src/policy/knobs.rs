//! The list. One line here is all that a knob needs beside its field.

use super::{Knob, MIB};

const YEAR_SECS: u64 = 365 * 24 * 3600;

/// One line of a list of knobs.
macro_rules! knob {
    ($key:literal, $unit:ident, $min:expr, $max:expr, $zero:expr, $($field:ident).+, $help:literal) => {
        $crate::policy::Knob {
            key: $key,
            unit: $crate::policy::Unit::$unit,
            min: $min,
            max: $max,
            zero: $zero,
            help: $help,
            get: |p| p.$($field).+,
            field: |p| &mut p.$($field).+,
        }
    };
}
pub(crate) use knob;

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
        "Memory the passes of one process may use together, whatever the size of a prefix."
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
    knob!(
        "answers_check_percent",
        Count,
        0,
        100,
        Some("answers are never compared"),
        answers_percent,
        "Of a hundred jobs, those after which rows and index answers are compared with those before; a job that \
         changed an answer fails, and nothing is retired or cleaned until somebody has looked."
    ),
    knob!(
        "index_unindexed_rows_min",
        Count,
        1,
        1 << 40,
        None,
        index.rows_min,
        "Fewest unindexed rows that make an index operation due."
    ),
    knob!(
        "index_unindexed_permille",
        Count,
        0,
        1_000,
        Some("the number of rows alone decides"),
        index.permille,
        "Thousandths of the table's rows that must be unindexed, where that is more."
    ),
    knob!(
        "index_unindexed_age_secs",
        Seconds,
        1,
        10 * YEAR_SECS,
        None,
        index.age_ms_max,
        "Age of the oldest unindexed row that makes an index operation due, however few they are."
    ),
    knob!(
        "index_segments_max",
        Count,
        1,
        100_000,
        None,
        index.segments_max,
        "Segments of an index that are not merged yet; one more makes a merge due."
    ),
    knob!(
        "compaction_small_fragments_min",
        Count,
        1,
        1_000_000,
        None,
        compaction.small_min,
        "Small fragments that a compaction must remove to be due."
    ),
    knob!(
        "compaction_target_bytes",
        Bytes,
        1,
        1 << 40,
        None,
        compaction.target_bytes,
        "Bytes a fragment should have; with the measured bytes per row it bounds the row target."
    ),
    knob!(
        "compaction_target_rows",
        Count,
        1,
        1 << 32,
        None,
        compaction.target_rows,
        "Rows a fragment should have at most; Lance's own default."
    ),
    knob!(
        "compaction_deleted_permille",
        Count,
        0,
        1_000,
        Some("any deleted row is materialized"),
        compaction.deleted_permille,
        "Thousandths of a fragment's rows; more deleted ones are materialized. 1000: never."
    ),
    knob!(
        "compaction_fragments_max",
        Count,
        2,
        10_000_000,
        None,
        compaction.fragments_max,
        "Most fragments one compaction rewrites; the next one goes on."
    ),
    knob!(
        "compaction_job_bytes",
        Bytes,
        1,
        1 << 50,
        None,
        compaction.job_bytes,
        "Most bytes one compaction rewrites; its first task is taken whatever its size."
    ),
    knob!(
        "compaction_defer_remap",
        Count,
        0,
        1,
        Some("index entries are remapped in the commit of the rewrite"),
        compaction.defer_remap,
        "1: index entries are remapped later, where Lance allows it. Only where nothing but Caretaker compacts the table: \
         the compaction of Lance and LanceDB (`optimize`) loses index entries of moves that wait."
    ),
    knob!(
        "cleanup_min_version_age_secs",
        Seconds,
        0,
        10 * YEAR_SECS,
        Some("cleanup is off"),
        cleanup.min_age_ms,
        "Versions at least this old may go; a table can only ask for more (R4.1)."
    ),
    knob!(
        "cleanup_version_interval",
        Count,
        1,
        1 << 32,
        None,
        cleanup.version_interval,
        "Versions since the start of the last successful cleanup that make the next one due (R4.2)."
    ),
    knob!(
        "cleanup_interval_secs",
        Seconds,
        1,
        10 * YEAR_SECS,
        None,
        cleanup.interval_ms,
        "Time since the end of the last successful cleanup that makes the next one due (R4.2)."
    ),
    knob!(
        "cleanup_initial_version",
        Count,
        1,
        1 << 32,
        None,
        cleanup.initial_version,
        "Version that a table must reach before its first cleanup (R4.3)."
    ),
    knob!(
        "cleanup_retry_delay_secs",
        Seconds,
        60,
        24 * 3600,
        None,
        cleanup.retry_delay_ms,
        "How long a failed cleanup waits, whatever trigger holds (R4.4)."
    ),
    knob!(
        "cleanup_retain_versions",
        Count,
        0,
        1 << 32,
        Some("age alone decides"),
        cleanup.retain_versions,
        "Newest versions that stay whatever their age."
    ),
    knob!(
        "cleanup_delete_rate_max",
        Count,
        0,
        1_000_000,
        Some("no limit"),
        cleanup.delete_rate_max,
        "Most deletions a second."
    ),
    knob!(
        "remap_rewrites_min",
        Count,
        1,
        1_000_000,
        None,
        remap.rewrites_min,
        "Recorded rewrites that make the remap catch-up due."
    ),
    knob!(
        "remap_age_secs",
        Seconds,
        1,
        YEAR_SECS,
        None,
        remap.age_ms_max,
        "Age of the oldest recorded rewrite that makes the remap catch-up due."
    ),
    knob!("agent_tick_secs", Seconds, 1, 3600, None, agent.tick_ms, "How often the agent admits tables to evaluation."),
    knob!(
        "agent_sweep_interval_secs",
        Seconds,
        1,
        YEAR_SECS,
        None,
        agent.sweep_ms,
        "How often every owned table is evaluated, whatever happens to it (R3.1)."
    ),
    knob!("agent_budget", Count, 1, 1_000_000, None, agent.budget, "Tables evaluated per tick, and at once (R3.2)."),
    knob!(
        "agent_backoff_secs",
        Seconds,
        1,
        24 * 3600,
        None,
        agent.backoff_ms,
        "First wait of a table or a kind of job that fails; it doubles up to the sweep's interval."
    ),
    knob!(
        "agent_evaluation_timeout_secs",
        Seconds,
        1,
        24 * 3600,
        None,
        agent.timeout_ms,
        "An evaluation that takes longer has failed."
    ),
];
