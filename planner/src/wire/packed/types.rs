//! The fields of each type, in their order.

use alloc::vec::Vec;

use super::{Input, Out, Packed, columns};
use crate::facts::{
    CleanupFacts, CleanupSuccess, FailedFacts, GarbageFacts, GarbageKind, IndexFacts, MismatchFacts, PassFacts,
    RemapFacts, RunningFacts, ShardFacts, ShardStatus, SsTableFacts, TableFacts,
};
use crate::job::{GarbageId, IndexOp, JobSpec, Predicted, SsTableId};
use crate::plan::{Decision, Hold, Measure, Outcome, Plan, Reason, Trigger, Verdict};
use crate::policy::{AgentPolicy, CleanupPolicy, CompactionPolicy, IndexPolicy, Policy, Refused, RemapPolicy};

macro_rules! packed {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl Packed for $name {
            fn put(&self, out: &mut Out) {
                let Self { $($field),* } = self;
                $($field.put(out);)*
            }

            fn get(input: &mut Input<'_>) -> Option<Self> {
                Some(Self { $($field: Packed::get(input)?),* })
            }
        }
    };
    (enum $name:ident { $($tag:literal $variant:ident $({ $($field:ident),* })?),* $(,)? }) => {
        impl Packed for $name {
            fn put(&self, out: &mut Out) {
                match self {
                    $(Self::$variant $({ $($field),* })? => {
                        out.bytes.push($tag);
                        $($($field.put(out);)*)?
                    })*
                }
            }

            fn get(input: &mut Input<'_>) -> Option<Self> {
                match input.byte()? {
                    $($tag => Some(Self::$variant $({ $($field: Packed::get(input)?),* })?),)*
                    _ => None,
                }
            }
        }
    };
}

packed!(SsTableFacts { generation, path, bytes, rows, flushed_at_ms });
packed!(enum ShardStatus { 0 Active, 1 Sealed });
packed!(GarbageFacts { kind, path, position, bytes, since_ms });
packed!(enum GarbageKind { 0 SsTable, 1 WalEntry, 2 Manifest });
packed!(PassFacts { since_ms, holder });
packed!(ShardFacts {
    shard,
    status,
    manifest_version,
    sstables,
    compacted_generation,
    recorded_at_ms,
    caught_up,
    retained_generation,
    retained_by,
    garbage,
    detached,
    pass,
});
packed!(IndexFacts { name, kind, unindexed_rows, unindexed_since_ms, segments, withdrawn, inline_only });
packed!(CleanupFacts { opted_out, last_success, last_failure_at_ms });
packed!(CleanupSuccess { start_version, finished_at_ms, recorded_version });
packed!(RemapFacts { rewrites, oldest_at_ms, indexes });
packed!(RunningFacts { kind, since_ms, holder, deferred, indexes });
packed!(FailedFacts { kind, times, last_at_ms });
packed!(MismatchFacts { kind, at_ms });

/// Fragments have a layout of their own, and the names of the indexes are known to what follows them.
impl Packed for TableFacts {
    fn put(&self, out: &mut Out) {
        let Self { table, version, rows, primary_key, indexes, shards, paused, fragments, .. } = self;
        let Self { stable_row_ids, versions, cleanup, remap, running, failed, mismatch, clones, overrides, .. } = self;
        table.put(out);
        version.put(out);
        rows.put(out);
        primary_key.put(out);
        indexes.put(out);
        out.names = indexes.iter().map(|index| index.name.clone()).collect();
        out.names.sort_unstable();
        shards.put(out);
        paused.put(out);
        fragments.is_some().put(out);
        if let Some(fragments) = fragments {
            columns::put(fragments, out);
        }
        stable_row_ids.put(out);
        versions.put(out);
        cleanup.put(out);
        remap.put(out);
        running.put(out);
        failed.put(out);
        mismatch.put(out);
        clones.put(out);
        overrides.put(out);
    }

    fn get(input: &mut Input<'_>) -> Option<Self> {
        let (table, version, rows) = (Packed::get(input)?, Packed::get(input)?, Packed::get(input)?);
        let (primary_key, indexes): (_, Vec<IndexFacts>) = (Packed::get(input)?, Packed::get(input)?);
        input.names = indexes.iter().map(|index| index.name.clone()).collect();
        input.names.sort_unstable();
        // Named one by one, so that a field that is left out does not compile.
        Some(Self {
            table,
            version,
            rows,
            primary_key,
            indexes,
            shards: Packed::get(input)?,
            paused: Packed::get(input)?,
            fragments: if bool::get(input)? { Some(columns::get(input)?) } else { None },
            stable_row_ids: Packed::get(input)?,
            versions: Packed::get(input)?,
            cleanup: Packed::get(input)?,
            remap: Packed::get(input)?,
            running: Packed::get(input)?,
            failed: Packed::get(input)?,
            mismatch: Packed::get(input)?,
            clones: Packed::get(input)?,
            overrides: Packed::get(input)?,
        })
    }
}

packed!(Policy {
    tick_ms,
    trigger_count,
    trigger_bytes,
    age_ms_max,
    prefix_max,
    pass_bytes,
    concurrency,
    pass_memory_bytes,
    retire_delay_ms,
    grace_ms,
    collect_files_max,
    answers_percent,
    index,
    compaction,
    cleanup,
    remap,
    agent,
});
packed!(IndexPolicy { rows_min, permille, age_ms_max, segments_max });
packed!(CompactionPolicy {
    small_min,
    target_bytes,
    target_rows,
    deleted_permille,
    fragments_max,
    job_bytes,
    defer_remap,
});
packed!(CleanupPolicy {
    min_age_ms,
    version_interval,
    interval_ms,
    initial_version,
    retry_delay_ms,
    retain_versions,
    delete_rate_max,
});
packed!(RemapPolicy { rewrites_min, age_ms_max });
packed!(AgentPolicy { tick_ms, sweep_ms, budget, backoff_ms, timeout_ms });
packed!(Refused { key, why });

packed!(enum Trigger { 0 Tick, 1 Relief, 2 Forced });
packed!(Plan { table, version, at_ms, verdicts, staleness_bound_ms, complaints });
packed!(Verdict { decision, shard, outcome });
packed!(enum Decision {
    0 WalCatchup, 1 Index, 2 Compaction, 3 Cleanup, 4 Remap, 5 Fold, 6 Retire, 7 Collect,
});
packed!(enum Outcome {
    0 Due { jobs, reasons }, 1 NotDue { reasons, due_at_ms }, 2 Held { hold, reasons }, 3 Disabled { knob },
});
packed!(Reason { measure, observed, threshold, subject });
packed!(enum Measure {
    0 SsTables, 1 SsTableBytes, 2 SsTableAgeMs, 3 Forced, 4 FoldedListed, 5 FoldAgeMs, 6 CaughtUpGeneration,
    7 GarbageAgeMs, 8 RetainedGeneration, 9 Files, 10 IndexesBehind, 11 Withdrawn, 12 UnindexedRows,
    13 UnindexedAgeMs, 14 Segments, 15 SmallFragments, 16 DeletedPermille, 17 TargetRows, 18 VetoedFragments,
    19 ExcludedFragments, 20 InitialVersion, 21 VersionsSince, 22 CleanupAgeMs, 23 RecordedVersion,
    24 FailureAgeMs, 25 Rewrites, 26 RewriteAgeMs,
});
packed!(enum Hold {
    0 Pass { holder, since_ms }, 1 Index { index }, 2 Retained { version }, 3 Sealed, 4 Detached, 5 Paused,
    6 Mismatch { kind, at_ms }, 7 Clone { table }, 8 NoPrimaryKey, 9 Running { kind, holder, since_ms },
    10 Compaction { holder, since_ms }, 11 Remap { rewrites }, 12 CatchUp { index },
    13 Failing { kind, times, until_ms },
});
packed!(enum JobSpec {
    0 Fold { shard, sstables, bytes }, 1 Retire { shard, sstables }, 2 CatchUp { kind, indexes },
    3 Collect { shard, files, bytes }, 4 Index { kind, indexes, op },
    5 Compact { tasks, deferred, read_version, target_rows, predicted },
    6 Cleanup { min_age_ms, retain_versions, delete_rate_max, read_version }, 7 Remap { indexes },
});
packed!(enum IndexOp { 0 Append, 1 Merge, 2 Reindex });
packed!(Predicted { fragments, rows, bytes });
packed!(SsTableId { generation, path });
packed!(GarbageId { kind, path, position });
